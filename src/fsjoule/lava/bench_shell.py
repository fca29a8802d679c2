"""The shell on the worker in which a job measures, and the guard that ends what it leaves behind.

LAVA ends a job's shell with SIGKILL, and may be killed itself. Nothing in the shell's session can then clean up. So a
guard outside of it waits for the shell's end. It ends the bench, which switches the board off and closes its run, and
does so itself where the bench could not.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from fsjoule.errors import LabError, StorageError
from fsjoule.host import process
from fsjoule.host.paths import project_dir
from fsjoule.host.process_ref import ProcessRef, wait_gone
from fsjoule.lava.helpers import Bench, off_and_free, program, take
from fsjoule.lava.shell_record import ENDED_S, ShellRecord, await_guard, check_no_shell

PROMPT: Final = "fsjoule-bench# "
# Where LAVA's overlay goes, on the worker; %s is the job's number. LAVA's own folder is root's, as its jobs are.
RESULTS_DIR: Final = "/var/lib/lava/fsjoule-%s"
_DOWNLOADS: Final = Path("/var/lib/lava/dispatcher")
# A bench ends within seconds. After this it is killed, so that the board is off within a minute.
_END_S: Final = ENDED_S - 10.0
_KILLED_S: Final = 5.0
_OVERLAY_TIMEOUT_S: Final = 60.0


def open_shell(bench: Bench, results: Path, say: Callable[[str], None]) -> None:
    """Acquire the place and become the shell. Raises LabError if the place is not to be had.

    The shell is in a folder of its own that goes with it. FSJOULE_DIR, FSJOULE_RESULTS and LG_ENV tell a job's steps
    where fsjoule, its results and the board's environment file are on this worker.
    """
    check_no_shell(bench.place)
    await_guard(bench.place)
    results.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="job-", dir=ShellRecord.path(bench.place).parent))
    _start_guard(bench, folder)
    take(bench, say)
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
    try:
        if (here := _DOWNLOADS / path).is_file() and ".." not in Path(path).parts:
            shutil.copyfile(here, target)
        else:
            with urlopen(url, timeout=_OVERLAY_TIMEOUT_S) as answer, target.open("wb") as file:  # noqa: S310 - checked below
                shutil.copyfileobj(answer, file)
    except (URLError, ValueError, OSError) as error:
        raise LabError(f"LAVA's overlay cannot be fetched: {url}: {error}") from error
    return target


def guard(bench: Bench, shell: int, folder: Path) -> None:
    """Wait until the shell behind the descriptor `shell` has ended, then end all that it leaves behind."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    select.select([shell], [], [])
    record = ShellRecord.read(bench.place)
    try:
        if record is not None:
            _end_session(record.shell.pid)
        off_and_free(bench)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if job := os.environ.get("LAVA_JOB_ID"):
            shutil.rmtree(RESULTS_DIR % job, ignore_errors=True)
        ShellRecord.path(bench.place).unlink(missing_ok=True)


def power_off(bench: Bench) -> None:
    """End the bench of a job's shell, switch the board off and release its place. Nothing of it need be there.

    LAVA calls it at the end of each job, and first of all when a job is cancelled. Raises LabError.
    """
    record = ShellRecord.read(bench.place)
    if record is not None and record.shell.alive():
        _end_session(record.shell.pid, but=record.shell.pid)
    else:
        await_guard(bench.place)
    off_and_free(bench)


def _start_guard(bench: Bench, folder: Path) -> None:
    me = ProcessRef.of(os.getpid())
    assert me is not None
    descriptor = os.pidfd_open(me.pid)
    try:
        words = [program(), "lava", "guard", bench.place, str(descriptor), str(folder)]
        words += ["--lg-env", str(bench.environment)]
        log = ShellRecord.path(bench.place).with_suffix(".log")
        started = process.start(words, log=log, pass_fds=[descriptor], die_with_parent=False)
    except OSError as error:
        raise StorageError(f"{error.filename}: {error.strerror}") from error
    finally:
        os.close(descriptor)
    other = ProcessRef.of(started.pid)
    if other is None:
        raise LabError(f"the guard of the job's shell ended at once: see {log}")
    ShellRecord(me, other).write(bench.place)


def _end_session(session: int, *, but: int | None = None) -> None:
    """End all processes of a session except the one `but`, and wait: SIGTERM first, SIGKILL in the end."""
    for sig, wait_s in ((signal.SIGTERM, _END_S), (signal.SIGKILL, _KILLED_S)):
        left = [each for each in _members(session) if each.pid != but]
        for each in left:
            each.send(sig)
            each.send(signal.SIGCONT)
        wait_gone(left, wait_s)


def _members(session: int) -> list[ProcessRef]:
    found: list[ProcessRef] = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - hundreds of names, none used as a path
        try:
            if name.isdecimal() and os.getsid(int(name)) == session and (one := ProcessRef.of(int(name))) is not None:
                found.append(one)
        except ProcessLookupError:
            continue
    return found
