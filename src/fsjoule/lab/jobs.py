"""A board for one job: its place is held while a command runs, and given back however the job ends.

All jobs of a project on one computer are one user of labgrid, which cannot tell them apart. Each living job has a
locked note (`fsjoule.lab.notes`): another job waits for it, and whoever finds the note of a killed job gives its board
back.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from fsjoule.errors import HostError, LabError, PlaceHeldError, PlaceLostError
from fsjoule.host import process
from fsjoule.host.interrupts import hang_up, interruptible, nobody_reads, pending
from fsjoule.host.paths import state_dir
from fsjoule.host.process_ref import ProcessRef, seen
from fsjoule.lab.coordinator import Coordinator, connected, user
from fsjoule.lab.lease import Lease, acquired_for_job
from fsjoule.lab.notes import Content, Note, NoteKind, in_use, job_notes, one_run_only
from fsjoule.lab.placenames import BY_TAGS, find_place
from fsjoule.lab.reservation import PlaceRequest

_log: Final = logging.getLogger(__name__)

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NUMBER: Final = "CI_JOB_ID"
_STDERR: Final = 2
_LOOK_S: Final = 0.2
_CLIENT_TIMEOUT_S: Final = 30.0
# With an environment file labgrid-client would use the place that the file names, and boot its board before.
_BY_PLACE: Final = {"LG_ENV": None, "LG_STATE": None, "LG_INITIAL_STATE": None}
# Beside its command's own time, a job needs this to switch its board off and to release its place.
_GIVE_BACK_S: Final = 90.0
_SHOWN: Final = 200


def hold(name: str | None, argv: Sequence[str], wanted: PlaceRequest, *, end_s: float) -> int:
    """Run a command while its job holds a place, which LG_PLACE names for it; returns the command's exit code.

    Afterwards the command's process group has ended (SIGKILL after `end_s` seconds), the board is off and the place is
    free; the exit code is 4 if a command succeeded and that failed. A signal ends the command in the same way; so does
    the end of whoever reads this job's stderr, as SIGHUP.
    Raises ConfigError, PlaceHeldError or LabError if there is no place in time, PlaceLostError if it was taken away.
    """
    process.check_program(argv[0])
    found = BY_TAGS if wanted.tags else find_place(name, wanted)
    recover = partial(_recover, end_s=end_s)
    with acquired_for_job(found, wanted, recover=recover) as (lease, note):
        code, off = _run(argv, lease, note, end_s)
    return code or (0 if off and lease.freed else LabError.exit_code)


def release(name: str | None, *, end: bool, end_s: float) -> bool:
    """Give back what jobs on this computer hold: the place `name`, or all places; returns whether that worked.

    A killed job's command is ended, its board switched off and its place released. A living job is ended if it is the
    job of CI that this is part of, or with `end`, which tells it by whom; else it is left alone, and named.
    Raises LabError.
    """
    done = True
    with connected() as coordinator:
        found = [left for left in job_notes(coordinator.address) if name in (None, left.place)]
        if not found:
            what = "a place" if name is None else f"the place {name!r}"
            _log.info("no job of this user on this computer has %s of the coordinator at %s", what, coordinator.address)
        for left in found:
            if _has(coordinator.address, left):
                if not (end or (left.number and left.number == os.environ.get(_NUMBER))):
                    _log.info("place %r is left alone: %s has it", left.place, _told(left))
                    continue
                _end(coordinator.address, left, end_s)
            done = _clear(coordinator, left.place, end_s) and done
    return done


def _run(argv: Sequence[str], lease: Lease, note: Note, end_s: float) -> tuple[int, bool]:
    """The command's exit code as a shell's, and whether the board was switched off."""
    _asked(lease.address, lease.name)  # nobody has asked this job
    program, go = process.held_back(argv, env={"LG_PLACE": lease.name})
    assert note.left is not None, "taking the place has written it"
    content = dataclasses.replace(
        note.left,
        place=lease.name,
        number=os.environ.get(_NUMBER, ""),
        leader=ProcessRef.of(program.pid),
        boot=_boot(),
    )
    off = False
    try:
        # Written before the command begins: it can be ended even if this process is killed.
        note.keep(content)
        go()
        with interruptible():
            while program.poll() is None:
                lease.watch()
                if nobody_reads(_STDERR):
                    # Its runner was killed. Nobody would cancel the job or end it at its limit.
                    hang_up()
                time.sleep(_LOOK_S)
    finally:
        if pending() and (by := _asked(lease.address, lease.name)):
            _log.info("the job is ended by %s", by)
        _end_group(content, end_s)
        program.wait()
        off = _switched_off_if_ours(lease)
    code = program.returncode
    return (code if code >= 0 else 128 - code), off


def _recover(coordinator: Coordinator, *, end_s: float) -> None:
    """Give back the places of this computer's killed jobs. Raises the first LabError when all have been tried."""
    failed: LabError | None = None
    for left in job_notes(coordinator.address):
        try:
            if not in_use(coordinator.address, left.place, NoteKind.JOB):
                _clear(coordinator, left.place, end_s)
        except LabError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def _clear(coordinator: Coordinator, name: str, end_s: float) -> bool:
    """End what a killed job has left, and give its place back; returns whether that worked. Raises LabError."""
    try:
        with one_run_only(coordinator.address, name, NoteKind.JOB) as note:
            left = note.left
            if left is None:
                return True
            _end_group(left, end_s)
            place, off = coordinator.places.get(name), True
            if place is not None and note.acquired(place):
                _log.info("place %r is given back: %s was killed", name, _told(left))
                off = _switch_off(name)
                coordinator.release(name)
            note.write()
            return off
    except PlaceHeldError:
        return True  # another job gives it back at this moment


def _end(address: str, left: Content, end_s: float) -> None:
    """End a living job, tell it by whom, and wait for it. Raises LabError."""
    _log.info("place %r: %s is ended", left.place, _told(left))
    _ask(address, left.place).write_text(f"{user()}, process {os.getpid()}", encoding="utf-8")
    living = ProcessRef.of(left.pid)
    if living is not None:
        living.end()
    deadline = time.monotonic() + end_s + _GIVE_BACK_S
    while _has(address, left):
        if time.monotonic() >= deadline:
            raise LabError(f"{_told(left)} did not end", hint=f"kill -KILL {left.pid}, then the same command again")
        time.sleep(_LOOK_S)


def _has(address: str, job: Content) -> bool:
    """Whether the job lives and has its place. Another job may have it a moment later."""
    same = any((each.pid, each.place) == (job.pid, job.place) for each in job_notes(address))
    return same and in_use(address, job.place, NoteKind.JOB)


def _ask(address: str, name: str) -> Path:
    folder = state_dir() / "asked"
    folder.mkdir(exist_ok=True)
    return folder / f"{address}-{name}".replace("/", "_")


def _asked(address: str, name: str) -> str:
    """Who has asked the job to end; empty if nobody has."""
    path = _ask(address, name)
    try:
        by = path.read_text(encoding="utf-8")
        path.unlink()
    except FileNotFoundError:
        return ""
    return by


def _end_group(job: Content, end_s: float) -> None:
    """End the process group of a job's command, which may outlive its first process."""
    if job.leader is None or job.boot != _boot():
        return
    now = ProcessRef.of(job.leader.pid)
    if now not in (None, job.leader):
        return  # a later process has the number
    deadline = time.monotonic() + end_s
    process.signal_group(job.leader.pid, signal.SIGTERM)
    while _lives(job.leader.pid):
        if time.monotonic() >= deadline:
            _log.info("the command on %s did not end within %.0f s: it was killed", job.place, end_s)
            process.signal_group(job.leader.pid, signal.SIGKILL)
            return
        time.sleep(_LOOK_S)


def _lives(group: int) -> bool:
    """Whether the group has a process that has not ended; a zombie has."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and os.getpgid(int(entry.name)) == group:
                one = seen(int(entry.name))
                if one is not None and not one.ended:
                    return True
        except ProcessLookupError:
            continue
    return False


def _switched_off_if_ours(lease: Lease) -> bool:
    try:
        lease.check()
    except PlaceLostError:
        return False  # hands off; it is said when the place is not released
    except LabError as error:
        _log.warning("the board is not switched off: %s", error.what)
        return False
    return _switch_off(lease.name)


def _switch_off(name: str) -> bool:
    client = Path(sys.executable).with_name("labgrid-client")
    try:
        process.run([client, "-p", name, "power", "off"], timeout_s=_CLIENT_TIMEOUT_S, env=_BY_PLACE)
    except HostError as error:
        _log.warning("the board of %r could not be switched off: %s", name, error.what)
        return False
    return True


def _boot() -> str:
    return _BOOT.read_text().strip()


def _told(job: Content) -> str:
    number = f"job {job.number}, " if job.number else ""
    return f"{number}process {job.pid} ({job.command[:_SHOWN]})"
