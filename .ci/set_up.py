# ruff: noqa: INP001 - make and jobs of CI start it by .ci/set-up
"""A step of the set-up of a clone.

It prints one line, with what it does and the seconds that it took; nothing if there is nothing to do. What the programs
say is in build/setup.log, and its end on the terminal if one fails.

.ci/set-up packages PURPOSE     the distribution's packages that are missing, as `fsjoule setup --for PURPOSE`
.ci/set-up uv VERSION           uv, into build/uv
.ci/set-up python OPTION...     Python's packages of uv.lock, into .venv; the options are those of uv sync
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

sys.path.insert(0, "src")
from fsjoule.host import process
from fsjoule.host.setup.__main__ import ended
from fsjoule.host.setup.install import set_up
from fsjoule.host.setup.steps import Steps, alone

BUILD = Path("build").absolute()
UV = BUILD / "uv" / "bin" / "uv"


def packages(steps: Steps, purpose: str) -> None:
    set_up(purpose, steps, yes=True)


def uv(steps: Steps, version: str) -> None:
    process.run([sys.executable, "-m", "venv", BUILD / "uv"], timeout_s=300)
    pip = [BUILD / "uv" / "bin" / "pip", "install", "--disable-pip-version-check", "--require-hashes"]
    steps.run(f"uv {version}", [*pip, "-r", ".ci/uv.txt"])


def last_release() -> str:
    """The version of the last tag. A clone's commit would be named by its last set-up, and is another one soon."""
    tag = process.run(["git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"], timeout_s=60, check=False)
    return tag.stdout.decode().strip().removeprefix("v") or "0.1.0.dev0"


def python(steps: Steps, *options: str) -> None:
    os.environ["SETUPTOOLS_SCM_PRETEND_VERSION_FOR_FSJOULE"] = last_release()
    sync = [UV, "sync", "--frozen", "--system-certs", "--python", sys.executable, *options]
    plan = process.run([*sync, "--dry-run"], timeout_s=600, check=False)
    said = (plan.stdout + plan.stderr).decode(errors="replace")
    # "Would install 72 packages", and if a package changes also "Would uninstall 1 package".
    if "Would make no changes" in said:
        return
    number = re.search(r"^Would install (\d+ packages?)", said, re.MULTILINE)
    steps.run(f"{number[1] if number else 'packages'} from PyPI", sync)


def main(step: str, *words: str) -> int:
    body = {"packages": packages, "uv": uv, "python": python}[step]

    def alone_in_this_clone() -> None:
        steps = Steps(BUILD / "setup.log")
        with alone(BUILD / "setup.lock", steps):
            body(steps, *words)

    return ended(alone_in_this_clone)


sys.exit(main(*sys.argv[1:]))
