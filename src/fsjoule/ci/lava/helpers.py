"""The programs that a device file names. LAVA calls each on its own, in any order, and more than once.

The first one that needs the board acquires its place. `guard.power_off` switches the board off and releases it.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from fsjoule.ci.lava.guard import SHELL, watch
from fsjoule.ci.lava.settings import LavaBoard, program
from fsjoule.errors import InfrastructureError, LabError
from fsjoule.host import interrupts, process
from fsjoule.host.paths import project_dir, state_dir
from fsjoule.host.process_ref import end_with_parent
from fsjoule.lab import lease, target
from fsjoule.lab.flashers import named_file

_log: Final = logging.getLogger(__name__)

PROMPT: Final = "fsjoule-bench# "
_DOWNLOADS: Final = Path("/var/lib/lava/dispatcher")
_OVERLAY_TIMEOUT_S: Final = 60.0


def take(bench: LavaBoard) -> None:
    """Acquire the place, or wait for it. Raises PlaceHeldError with who has it."""
    watch(bench)
    lease.acquire(bench.place, wait_s=bench.wait_s)


def connect(bench: LavaBoard) -> None:
    """Become a client of the board's console. Raises LabError if the place is not to be had."""
    watch(bench, session="console")
    take(bench)
    client = str(Path(sys.executable).with_name("labgrid-client"))
    os.execv(client, [client, "-p", bench.place, "console"])  # noqa: S606 - LAVA speaks to this process


def power_on(bench: LavaBoard) -> None:
    with _taken(bench):
        target.switch_on(bench.environment)


def hard_reset(bench: LavaBoard) -> None:
    with _taken(bench):
        target.restart(bench.environment)


def flash(bench: LavaBoard, image: Path) -> None:
    """Bring an image onto the card. Raises ConfigError if it cannot be read, LabError."""
    card = named_file(image.resolve())
    with _taken(bench):
        target.flash(bench.environment, card)


@contextmanager
def _taken(bench: LavaBoard) -> Generator[None]:
    """The place is acquired in the body, which ends in order when lava-run has ended."""
    end_with_parent()
    take(bench)
    with interrupts.handled(), interrupts.interruptible():
        yield


def open_shell(bench: LavaBoard, results: Path) -> None:
    """Acquire the place and become the shell. Raises LabError if the place is not to be had.

    The shell is in a folder of its own that goes with it. FSJOULE_DIR, FSJOULE_RESULTS and LG_ENV tell a job's steps
    where fsjoule, its results and the board's environment file are on this worker.
    """
    if os.geteuid() == 0:
        _log.warning("whoever may submit a job is root here: run lava-worker as a user of its own (docs/security.md)")
    results.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="job-", dir=state_dir()))
    try:
        watch(bench, session=SHELL, folder=folder)
    except InfrastructureError:
        folder.rmdir()  # nobody else knows of it
        raise
    take(bench)
    environment = {
        **os.environ,
        "PATH": f"{Path(program()).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "FSJOULE_DIR": str(project_dir()),
        "FSJOULE_RESULTS": str(results.resolve()),
        "LG_ENV": str(bench.environment),
        "PS1": PROMPT,
        "TERM": "dumb",
    }
    os.chdir(folder)
    bash = process.find_tool("bash")
    os.execve(bash, [bash, "--noprofile", "--norc", "--noediting", "-i"], environment)  # noqa: S606 - LAVA speaks to it


def fetch_overlay(url: str, into: Path) -> Path:
    """LAVA's overlay, for a shell on the worker: the worker's own file, or over HTTP. Raises LabError."""
    path = urlsplit(url).path.lstrip("/")
    target = into / Path(path).name
    if not url.startswith(("http://", "https://")):
        raise LabError(f"LAVA's overlay cannot be fetched: {url!r} is no address of a web server")
    try:
        if (here := _DOWNLOADS / path).is_file() and ".." not in Path(path).parts:
            shutil.copyfile(here, target)
        else:
            with urlopen(url, timeout=_OVERLAY_TIMEOUT_S) as answer, target.open("wb") as file:  # noqa: S310 - checked above
                shutil.copyfileobj(answer, file)
    except (URLError, ValueError, OSError) as error:
        raise LabError(f"LAVA's overlay cannot be fetched: {url}: {error}") from error
    return target
