"""The guard of a job: it waits for the end of lava-run, and ends what that leaves behind.

LAVA ends a job's connections with SIGKILL, and may be killed itself. Nothing of the job can then clean up. So the first
helper of a job that needs the board starts a guard in a session of its own. A record beside it tells the job's helpers,
which are separate programs, of each other.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, Final

from fsjoule.ci.lava.settings import LavaBoard, program
from fsjoule.errors import LabError, StorageError
from fsjoule.host import process
from fsjoule.host.paths import state_dir
from fsjoule.host.process_ref import ProcessRef, wait_gone
from fsjoule.lab import lease, target

# Where LAVA's overlay goes, on the worker; %s is the job's number. LAVA's own folder is root's, as its jobs are.
RESULTS_DIR: Final = "/var/lib/lava/fsjoule-%s"
_JOB_ID: Final = "LAVA_JOB_ID"
_LAVA_RUN: Final = b"lava-run"
# The session of the shell in which a job measures.
SHELL: Final = "shell"
# A bench ends within seconds. After this it is killed, so that the board is off within a minute of a cancel: on a busy
# computer the worker hears of it within 5 s, power-off starts within 10 s, and switches off within 10 s.
_END_S: Final = 30.0
_KILLED_S: Final = 5.0
# Switching off and releasing may take this besides; a failure to switch off is tried again for so long.
_LAB_S: Final = 60.0
_AGAIN_S: Final = 10.0
# Every 15 s labgrid's coordinator frees the resources of a place that nobody has, five seconds' worth of them at once.
_FREED_S: Final = 40.0
_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Record:
    """A job on a place: lava-run, its guard, and the first processes of its sessions: `shell`, `console`.

    `helpers` are programs that lava-run has called and may leave behind. `folder` is the shell's own, removed with it.
    """

    job: ProcessRef
    guard: ProcessRef
    sessions: dict[str, ProcessRef]
    helpers: tuple[ProcessRef, ...] = ()
    folder: str = ""

    @classmethod
    def read(cls, place: str) -> Record | None:
        try:
            found: dict[str, Any] = json.loads(_path(place).read_bytes())
            sessions = {name: ProcessRef(*each) for name, each in found["sessions"].items()}
            helpers = tuple(ProcessRef(*each) for each in found["helpers"])
            return cls(ProcessRef(*found["job"]), ProcessRef(*found["guard"]), sessions, helpers, found["folder"])
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, place: str) -> None:
        document = {
            "job": astuple(self.job),
            "guard": astuple(self.guard),
            "sessions": {name: astuple(each) for name, each in self.sessions.items()},
            "helpers": [astuple(each) for each in self.helpers],
            "folder": self.folder,
        }
        _path(place).write_text(json.dumps(document))


def watch(bench: LavaBoard, *, session: str | None = None, folder: Path | None = None) -> None:
    """Have the job that called this process watched by a guard. Call it before the place is acquired.

    `session` names this process's session, which is to end with the job, and `folder` is removed then.
    Raises LabError if another job has the place, or one that has ended is still being cleaned up.
    """
    with _locked(bench.place):
        job, me = _caller(), ProcessRef.of(os.getpid())
        assert me is not None
        record = Record.read(bench.place)
        if record is None or record.job != job or not record.guard.alive():
            _await_guard(bench.place, record)
            record = Record(job, _start(bench, job.pid), {})
        if session is not None:
            record = replace(record, sessions={**record.sessions, session: me})
        elif me not in record.sessions.values():
            record = replace(record, helpers=(*(each for each in record.helpers if each.alive()), me))
        if folder is not None:
            record = replace(record, folder=str(folder))
        record.write(bench.place)


def guard(bench: LavaBoard, job: int) -> None:
    """Wait until the job behind the descriptor has ended, then end all that it leaves behind. Raises LabError."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    select.select([job], [], [])
    # A helper that begins only now waits, and then finds that its job has ended.
    with _locked(bench.place):
        record = Record.read(bench.place)
        try:
            if record is not None:
                end_left(record)
            off_and_free(bench)
        finally:
            if record is not None:
                end_orphans(record.job)
            if number := os.environ.get(_JOB_ID):
                shutil.rmtree(RESULTS_DIR % number, ignore_errors=True)
            _forget(bench.place, record)


def power_off(bench: LavaBoard) -> None:
    """End the bench of a job's shell, switch the board off and release its place. Nothing of it need be there.

    LAVA calls it at the end of each job, and first of all when a job is cancelled. Raises LabError.
    """
    record = Record.read(bench.place)
    if record is not None and not record.job.alive():
        _await_guard(bench.place, record)
        record = None
    if record is not None and (shell := record.sessions.get(SHELL)) is not None and shell.alive():
        end_session(shell)
    off_and_free(bench)
    if record is not None and not any(each.alive() for each in record.sessions.values()):
        # Nothing is left to watch, and whoever called the helpers may live long.
        record.guard.send(signal.SIGKILL)
        _forget(bench.place, record)


def end_left(record: Record, *, limit_s: float = _END_S) -> None:
    """End a job's helpers and all processes of its sessions, at once: the limit is one for all, not one for each."""
    _end(lambda: [*(each for each in record.helpers if each.alive()), *members(record.sessions.values())], limit_s)


def end_orphans(job: ProcessRef) -> None:
    """End what a killed lava-run leaves of itself: the sender of its log waits for more for ever."""

    def left() -> list[ProcessRef]:
        return [each for each in _processes(lambda pid: os.getpgid(pid) == job.pid) if _LAVA_RUN in _title(each.pid)]

    _end(left, _KILLED_S)


def end_session(first: ProcessRef, *, limit_s: float = _END_S) -> None:
    """End all processes of a session except its first."""
    _end(lambda: [each for each in members([first]) if each != first], limit_s)


def off_and_free(bench: LavaBoard) -> None:
    """Switch the board off and release its place, if LAVA has it. Raises LabError."""
    if not lease.is_ours(bench.place):
        return
    try:
        # A helper that was killed while it acquired the place has left it without an outlet.
        lease.complete(bench.place, wait_s=_FREED_S)
        _switch_off(bench)
    finally:
        # A board that stays on is for the next holder to see; a place that stays acquired is for nobody.
        lease.release(bench.place)


def _switch_off(bench: LavaBoard) -> None:
    """Switch the board off. The parts of a place that was acquired just now are there only a moment later."""
    deadline = time.monotonic() + _AGAIN_S
    while True:
        try:
            target.switch_off(bench.environment)
        except LabError as error:
            if not error.transient or time.monotonic() >= deadline:
                raise
            time.sleep(_LOOK_S)
        else:
            return


def _path(place: str, suffix: str = ".json") -> Path:
    folder = state_dir() / "lava"
    folder.mkdir(exist_ok=True)
    return folder / f"{place.replace('/', '_')}{suffix}"


def _forget(place: str, record: Record | None) -> None:
    if record is not None and record.folder:
        shutil.rmtree(record.folder, ignore_errors=True)
    _path(place).unlink(missing_ok=True)


@contextmanager
def _locked(place: str) -> Generator[None]:
    """LAVA starts a console and does not wait until it is there: two helpers may begin at once."""
    with _path(place, ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _await_guard(place: str, record: Record | None) -> None:
    """Wait until the guard of an earlier job has switched the board off. Raises LabError if it does not."""
    if record is None or not record.guard.alive():
        return
    if record.job.alive():
        raise LabError(
            f"another job has the place {place!r}: process {record.job.pid}",
            hint="LAVA gives a device to one job at a time: is this place a second device?",
        )
    if wait_gone([record.guard], _END_S + _KILLED_S + _LAB_S):
        raise LabError(f"an earlier job is still being ended: process {record.guard.pid}", transient=True)


def _start(bench: LavaBoard, job: int) -> ProcessRef:
    log = _path(bench.place, ".log")
    try:
        descriptor = os.pidfd_open(job)
        try:
            words = [program(), "lava", "guard", bench.place, str(descriptor), "--lg-env", str(bench.environment)]
            started = process.start(words, log=log, pass_fds=[descriptor], die_with_parent=False)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageError(f"the job's guard cannot be started: {error}") from error
    found = ProcessRef.of(started.pid)
    if found is None:
        raise LabError(f"the job's guard ended at once: see {log}")
    return found


def _caller() -> ProcessRef:
    """The process that called this one.

    Raises LabError if it was lava-run and has ended, so that another one is parent now, and for a lava-run too old.
    """
    parent = os.getppid()
    found, is_lava_run = ProcessRef.of(parent), _LAVA_RUN in _title(parent)
    if found is None or (_JOB_ID in os.environ and not is_lava_run):
        raise LabError("the job has ended, and this helper of it does nothing any more")
    if is_lava_run and _JOB_ID not in os.environ:
        raise LabError(
            f"this LAVA is too old: it does not tell the device's commands their job's number, {_JOB_ID}",
            hint="fsjoule is tried with LAVA 2026.10; 2023.01 is too old",
        )
    return found


def _end(find: Callable[[], list[ProcessRef]], limit_s: float) -> None:
    """End the processes that `find` finds: SIGTERM first, SIGKILL after `limit_s` to those that are found then."""
    for sig, wait_s in ((signal.SIGTERM, limit_s), (signal.SIGKILL, _KILLED_S)):
        left = find()
        for each in left:
            each.send(sig)
            each.send(signal.SIGCONT)
        wait_gone(left, wait_s)


def members(sessions: Iterable[ProcessRef]) -> list[ProcessRef]:
    """The living processes of the sessions, each given by its first process."""
    wanted = {each.pid for each in sessions}
    return _processes(lambda pid: os.getsid(pid) in wanted)


def _processes(wanted: Callable[[int], bool]) -> list[ProcessRef]:
    found: list[ProcessRef] = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - hundreds of names, none used as a path
        with suppress(ProcessLookupError):
            if name.isdecimal() and wanted(int(name)) and (one := ProcessRef.of(int(name))) is not None:
                found.append(one)
    return found


def _title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
