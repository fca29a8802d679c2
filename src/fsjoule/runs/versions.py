"""Versions of the programs that take part in a run, the revision under test, and the LAVA job."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Final

from fsjoule.host import process
from fsjoule.model import JobFacts

_REVISION: Final = {
    "branch": ("FSJOULE_BRANCH", "CI_COMMIT_REF_NAME"),
    "commit": ("FSJOULE_COMMIT", "CI_COMMIT_SHA"),
    # A report takes runs of one pipeline as one build; a kernel that is not under test has its own history there.
    "pipeline": ("FSJOULE_PIPELINE", "CI_PIPELINE_ID"),
    "kernel_role": ("FSJOULE_KERNEL_ROLE",),
}


def versions(emulator: str | None) -> dict[str, str]:
    """Versions of all programs that take part, except those on the card."""
    by_program = {name: version(name) for name in ("fsjoule", "labgrid", "pytest", "numpy")}
    by_program["python"] = sys.version.split()[0]
    if emulator is not None:
        by_program["ser2net"] = first_line("ser2net", "-v")
        by_program["qemu"] = first_line(emulator, "--version")
    return by_program


def revision() -> dict[str, str]:
    """Branch, commit, pipeline and kernel role, as far as the user or the CI names them."""
    named = {name: next(filter(None, map(os.environ.get, variables)), None) for name, variables in _REVISION.items()}
    return {name: text for name, text in named.items() if text is not None}


def lava_job() -> JobFacts | None:
    """The LAVA job that this process is part of, as far as LAVA and the device's shell name it; None outside."""
    number = os.environ.get("LAVA_JOB_ID")
    if not number:
        return None
    device, worker, server = (os.environ.get(f"FSJOULE_LAVA_{name}", "") for name in ("DEVICE", "WORKER", "SERVER"))
    return JobFacts(number, device, worker, f"{server.rstrip('/')}/scheduler/job/{number}" if server else "")


def first_line(*argv: str) -> str:
    """The first line of a program's output, or "unknown"."""
    done = process.run(argv, timeout_s=20.0, check=False)
    return ((done.stdout or done.stderr).decode(errors="replace").strip().splitlines() or ["unknown"])[0]
