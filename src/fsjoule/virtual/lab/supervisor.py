"""Starts the services of a virtual lab and watches them; `python -m fsjoule.virtual.lab.supervisor LAB_DIRECTORY PIPE`.

It sends its progress to the caller of `up` through the pipe, one JSON object per line: {"progress": TEXT},
{"ready": true} or {"error": TEXT, "hint": TEXT}. During the start, a pipe closed by the caller ends the lab; after that
it ends with SIGTERM, or with its owner. If a service dies by itself, `status` reports it, and the others stay.

The pseudo terminals of the programs are reserved while the lab lives. The kernel reuses the number of a closed terminal
for the next new one: a link to the terminal of a dead meter could then lead to another lab's meter, and ser2net would
serve that stream as this lab's.
"""

from __future__ import annotations

import ctypes
import dataclasses
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fsjoule.errors import FsjouleError, LabError
from fsjoule.host import process
from fsjoule.host.process_ref import ProcessRef, become_subreaper, end_descendants, ending, wait_gone
from fsjoule.virtual.lab.files import BoardRecord, Ended, LabPaths, LabRecord, ServiceRecord, forget
from fsjoule.virtual.lab.health import faults_of, last_words, log_tail
from fsjoule.virtual.lab.services import Service, exporters, first_services, ready_board

_PIDFD_GETFD: Final = 438
# From Linux's header for terminals: get the number of a master's terminal; open its other side without a path.
_TIOCGPTN: Final = 0x80045430
_TIOCGPTPEER: Final = 0x5441
_MASTERS: Final = ("/dev/ptmx", "/dev/pts/ptmx")
_POLL_S: Final = 0.05
_WATCH_S: Final = 0.5
_STOP_TIMEOUT_S: Final = 6.0

_libc = ctypes.CDLL(None, use_errno=True)


class HeldTerminals:
    """Keeps the numbers of other programs' terminals reserved, even after the programs end.

    While a program lives, this holds a second descriptor of the terminal's master, which neither program nor reader
    notices. After its death, `hang_up` closes that descriptor, so that readers see the end, and holds the other side.
    """

    def __init__(self) -> None:
        self._masters: dict[int, list[int]] = {}
        self._numbers: list[int] = []

    def hold(self, pid: int) -> None:
        """Hold a program's present terminals. Raises OSError if the kernel refuses."""
        program = os.pidfd_open(pid)
        try:
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(FileNotFoundError):
                    if str(entry.readlink()) in _MASTERS:
                        self._masters.setdefault(pid, []).append(_copy_of_descriptor(program, int(entry.name)))
        finally:
            os.close(program)

    def hang_up(self, pid: int) -> list[Path]:
        """Let the readers of a dead program see its end. Returns its terminals."""
        gone: list[Path] = []
        for master in self._masters.pop(pid, []):
            gone.append(Path(f"/dev/pts/{_terminal_number(master)}"))
            self._numbers.append(fcntl.ioctl(master, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
            os.close(master)
        return gone

    def close(self) -> None:
        for descriptor in (*self._numbers, *(each for held in self._masters.values() for each in held)):
            os.close(descriptor)
        self._masters.clear()
        self._numbers.clear()


def remove_links(folder: Path, terminals: list[Path]) -> None:
    for link in folder.rglob("*"):
        with suppress(OSError):
            if link.is_symlink() and (link.readlink() in terminals or not link.exists()):
                link.unlink()


def _copy_of_descriptor(program: int, descriptor: int) -> int:
    """A descriptor of our own for a file that another process has open."""
    copy = _libc.syscall(_PIDFD_GETFD, program, descriptor, 0)
    if copy < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return copy


def _terminal_number(master: int) -> int:
    return int.from_bytes(fcntl.ioctl(master, _TIOCGPTN, bytes(4)), "little")


class _Stop(Exception):  # noqa: N818 - no error: the lab is asked to end
    pass


class Supervisor:
    def __init__(self, paths: LabPaths, record: LabRecord, pipe: int) -> None:
        self._paths = paths
        self._record = record
        self._pipe = pipe
        self._running: dict[str, tuple[subprocess.Popen[bytes], signal.Signals]] = {}
        self._terminals = HeldTerminals()
        self._ends: set[int] = set()  # a descriptor per service, readable when it has ended
        signalled, self._signal_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._end_asked = select.poll()  # and services that end by themselves
        self._end_asked.register(signalled, select.POLLIN)
        self._end_asked.register(pipe, 0)  # poll always reports its error: nobody reads the pipe any more

    def run(self) -> int:
        """Start everything, wait for the end of the lab, stop everything. Returns the exit code."""
        signal.set_wakeup_fd(self._signal_writer)
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sig, lambda _signal, _frame: None)
        try:
            self._start_all()
            self._watch()
        except _Stop:
            self._paths.bury(self._record, self._who_asked())
            return 0
        except FsjouleError as error:
            self._tell({"error": error.what, "hint": error.hint})
            return 1
        finally:
            self._stop_all()
        return 0

    def _who_asked(self) -> str:
        """Why the lab should end. The kernel sends the same signal when the guardian has died."""
        guardian = self._record.guardian
        if guardian is not None and guardian.pid != os.getppid():
            return f"its guardian, process {guardian.pid}, died"
        return "it was taken down"

    def _start_all(self) -> None:
        begin = time.monotonic()
        self._update(supervisor=ProcessRef.of(os.getpid()))
        first = first_services(self._paths, self._record)
        self._tell({"progress": f"starting {_parts(first)}"})
        self._start(first)
        numbers = [each.number for each in self._record.boards]
        boards = tuple(BoardRecord(n, ready_board(self._paths, n).status_url) for n in numbers)
        self._update(boards=boards)
        last = exporters(self._paths, self._record)
        self._tell({"progress": f"starting {_parts(last)}"})
        self._start(last)
        self._update(ready=True)
        self._tell({"progress": f"lab is up after {time.monotonic() - begin:.1f} s"})
        self._tell({"ready": True})
        self._end_asked.unregister(self._pipe)
        os.close(self._pipe)

    def _start(self, services: Sequence[Service]) -> None:
        """Start services concurrently and wait until all are ready. Raises LabError with the one that is not."""
        for service in services:
            environment = {**service.env, "PYTHONUNBUFFERED": "1"}
            log = self._paths.log(service.name)
            started = process.start(service.argv, log=log, env=environment, cwd=service.cwd)
            self._running[service.name] = (started, service.stop_signal)
            reference = ProcessRef.of(started.pid) or ProcessRef(started.pid, 0)
            noted = ServiceRecord(service.name, reference, str(log), boards=service.boards)
            self._update(services=(*self._record.services, noted))
        begin = time.monotonic()
        waiting = list(services)
        while waiting:
            self._check_stop()
            waiting = [service for service in waiting if not service.ready()]
            for service in waiting:
                self._check_service(service, time.monotonic() - begin)
            if waiting:
                time.sleep(_POLL_S)
        for service in services:
            self._guard(self._running[service.name][0].pid)

    def _guard(self, pid: int) -> None:
        try:
            self._terminals.hold(pid)
        except OSError as error:
            sys.stderr.write(
                f"the terminals of process {pid} cannot be held; they will only be unlinked when it ends: {error}\n"
            )
        end = os.pidfd_open(pid)
        self._ends.add(end)
        self._end_asked.register(end, select.POLLIN)

    def _check_service(self, service: Service, waited_s: float) -> None:
        exit_code = self._running[service.name][0].poll()
        if exit_code is None and waited_s <= service.timeout_s:
            return
        log = self._paths.log(service.name)
        reason = f"is not ready after {service.timeout_s:.0f} s" if exit_code is None else ending(exit_code)
        lines = log_tail(log)
        tail = last_words(lines) + "".join(f"\n  {service.name}| {line}" for line in lines[:-1])
        # A service may fail because of another one that it needs, which is then the cause.
        self._note_deaths()
        alone = len(service.boards) == 1
        place = next((each.place for each in self._record.boards if alone and each.number in service.boards), "")
        causes = [fault.text for fault in faults_of(self._record, place) if fault.part != service.part]
        what = f"the lab's {service.name} {reason}"
        raise LabError(f"{causes[0]}, so that {what}{tail}" if causes else f"{what}{tail}", hint=f"its log is {log}")

    def _watch(self) -> None:
        owner = self._record.owner
        while True:
            self._check_stop(timeout_s=_WATCH_S)
            if owner is not None and not owner.alive():
                self._paths.bury(self._record, f"its owner, process {owner.pid}, ended")
                return
            self._note_deaths()

    def _note_deaths(self) -> None:
        """Record services that have ended by themselves, with time and status."""
        services = self._record.services
        noted = tuple(self._with_its_end(service) for service in services)
        if noted != services:
            self._update(services=noted)

    def _with_its_end(self, service: ServiceRecord) -> ServiceRecord:
        status = self._running[service.name][0].poll()
        if service.ended is not None or status is None:
            return service
        sys.stderr.write(f"the lab's {service.name} {ending(status)}\n")
        remove_links(Path(self._record.devices), self._terminals.hang_up(service.process.pid))
        return dataclasses.replace(service, ended=Ended(datetime.now(UTC).isoformat(timespec="seconds"), status))

    def _check_stop(self, timeout_s: float = 0.0) -> None:
        for descriptor, _ in self._end_asked.poll(timeout_s * 1000):
            if descriptor not in self._ends:
                raise _Stop
            self._end_asked.unregister(descriptor)
            self._ends.remove(descriptor)
            os.close(descriptor)

    def _stop_all(self) -> None:
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sig, signal.SIG_IGN)
        references = [service.process for service in self._record.services]
        for running, sig in self._running.values():
            if running.poll() is None:
                os.killpg(running.pid, sig)
                os.killpg(running.pid, signal.SIGCONT)  # so that a stopped one can end
        wait_gone(references, _STOP_TIMEOUT_S)
        end_descendants()
        forget(self._paths, self._record)
        if self._record.guardian is not None:
            self._record.guardian.send(signal.SIGCONT)  # a stopped guardian must not stay behind

    def _update(self, **changes: object) -> None:
        self._record = dataclasses.replace(self._record, **changes)  # pyright: ignore[reportArgumentType]
        self._paths.write(self._record)

    def _tell(self, message: dict[str, object]) -> None:
        with suppress(BrokenPipeError):  # `_check_stop` notices it
            os.write(self._pipe, json.dumps(message).encode() + b"\n")


def _parts(services: Sequence[Service]) -> str:
    """`coordinator, board 1 to 12, meter 1 to 12`."""
    counts = Counter(service.part for service in services)
    return ", ".join(part if count == 1 else f"{part} 1 to {count}" for part, count in counts.items())


def main() -> int:
    become_subreaper()
    paths = LabPaths(Path(sys.argv[1]))
    record = paths.read()
    return 1 if record is None else Supervisor(paths, record, int(sys.argv[2])).run()


if __name__ == "__main__":
    sys.exit(main())
