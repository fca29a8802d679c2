"""How a virtual lab is: its faults, and the status of the whole as `fsjoule lab status` tells it.

Faults are programs that have died or are stopped, in words: the first cause of a failure in it. Each wait for the board
or its card asks for them every few seconds, because no wait brings a dead part back. A lab on another computer and a
real lab have no faults to tell.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from fsjoule.errors import Part
from fsjoule.host.process_ref import ProcessRef, Seen, ending, family, seen
from fsjoule.meter.instruments import INSTRUMENTS
from fsjoule.virtual.lab.board import board_status
from fsjoule.virtual.lab.files import BoardRecord, LabPaths, LabRecord, ServiceRecord, lab_at, lab_names
from fsjoule.virtual.lab.services import listens

_BOARD: Final = "board"
_EXPORTER: Final = "exporter"
_METER: Final = "meter"
# The other instruments, and the adapter at the mark line for them.
_INSTRUMENTS: Final = (*INSTRUMENTS, "adapter")
# The services without which a part of the place does not answer.
_SERVICES: Final = {Part.POWER: (_BOARD,), Part.METER: (_METER, *_INSTRUMENTS, _EXPORTER)}
_SER2NET: Final = "ser2net"
_CONSOLE: Final = "console"
# A process may be stopped only for a moment: it is checked twice.
_STOPPED_FOR_S: Final = 0.5
# Time within which the supervisor records the end of a service.
_NOTED_WITHIN_S: Final = 1.5
_POLL_S: Final = 0.1
_LOG_TAIL_LINES: Final = 15
_LONGEST: Final = 300
_WIDTH: Final = 12

LabState = Literal["up", "degraded", "down"]


@dataclass(frozen=True, slots=True)
class LabFault:
    """A part that has ended or is stopped.

    `part` is the service that fails. While an end is not `noted`, the supervisor has yet to record how it came about.
    """

    text: str
    part: str = ""
    stopped: bool = False
    noted: bool = True


@dataclass(frozen=True, slots=True)
class PlaceFaults:
    """ports.LabHealth of what the board at `place` needs, or of any part if the coordinator's lab has no such place."""

    coordinator: str
    place: str

    def faults(self, part: Part | None = None) -> tuple[str, ...]:
        """See ports.LabHealth. Without a part, stopped programs of this process are among them."""
        there = _faults_at(self.coordinator, self.place)
        if part is None:
            return tuple(fault.text for fault in (*there, *_own_children(self.coordinator)))
        return tuple(fault.text for fault in there if fault.part in _SERVICES[part])


def coordinator_faults(coordinator: str, place: str) -> tuple[str, ...]:
    """Faults that keep the coordinator from answering."""
    return tuple(fault.text for fault in _faults_at(coordinator, place) if fault.part == "coordinator")


def faults_of(record: LabRecord, place: str = "") -> tuple[LabFault, ...]:
    """The faults of a lab, or of what its board at a place needs."""
    board = record.board_at(place) if place else None
    boards = record.boards if board is None else (board,)
    found = _noted(record, boards)
    if any(fault.stopped for fault in found):
        time.sleep(_STOPPED_FOR_S)
        again = set(_look(record, boards))
        found = [fault for fault in found if not fault.stopped or fault in again]
    return tuple(found)


def _faults_at(coordinator: str, place: str) -> tuple[LabFault, ...]:
    for name in lab_names():
        paths = LabPaths.of(name)
        record = paths.read()
        found = faults_of(record, place) if record is not None and record.coordinator == coordinator else None
        # It is read last: a lab that ends says why before its programs end, which are no faults then.
        epitaph = paths.read_epitaph()
        if epitaph is not None and epitaph.coordinator == coordinator:
            return (LabFault(f"the lab {name!r} has ended: {epitaph.reason}", _BOARD),)
        if found is not None:
            return found
    return ()


def _noted(record: LabRecord, boards: Sequence[BoardRecord]) -> list[LabFault]:
    """The faults after the supervisor has recorded each dead service's end, if it does so in time."""
    deadline = time.monotonic() + _NOTED_WITHIN_S
    while True:
        found = _look(record, boards)
        if all(fault.noted for fault in found):
            return found
        supervisor = None if record.supervisor is None else _state(record.supervisor)
        if time.monotonic() > deadline or supervisor is None or supervisor.stopped:
            return found
        time.sleep(_POLL_S)
        now = LabPaths.of(record.name).read()
        record = record if now is None or now.identity != record.identity else now


def log_tail(log: Path) -> list[str]:
    """The last lines of a program's log; none without a log."""
    try:
        return log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
    except OSError:
        return []


def last_words(log: Sequence[str]) -> str:
    """An addition to how a program ended: the last line of its log."""
    said = next((line.strip() for line in reversed(log) if line.strip()), "")
    return f": {said[:_LONGEST]}" if said else ""


def _look(record: LabRecord, boards: Sequence[BoardRecord]) -> list[LabFault]:
    faults = [*_heads(record)]
    numbers = {each.number for each in boards}
    for service in record.services:
        if service.boards and numbers.isdisjoint(service.boards):
            continue
        log = f"its log is {service.log}"
        now = _state(service.process)
        if now is None:
            status = None if service.ended is None else service.ended.status
            # One that was not killed has said why.
            said = last_words(log_tail(Path(service.log))) if status is not None and status >= 0 else ""
            text = f"the lab's {service.name} (process {service.process.pid}) {ending(status)}{said}; {log}"
            faults.append(LabFault(text, service.part, noted=service.ended is not None))
        elif now.stopped:
            faults.append(_stopped(f"the lab's {service.name}", now, service.part))
        else:
            faults += _below(record, service, [each for each in boards if each.number in service.boards])
    return faults


def _heads(record: LabRecord) -> Iterator[LabFault]:
    for name, head in (("guardian", record.guardian), ("supervisor", record.supervisor)):
        if head is None:
            continue
        now = _state(head)
        if now is None:
            yield LabFault(f"the lab's {name} (process {head.pid}) died, so the lab ends", _BOARD)
        elif now.stopped:
            yield _stopped(f"the lab's {name}", now)


def _below(record: LabRecord, service: ServiceRecord, boards: Sequence[BoardRecord]) -> list[LabFault]:
    """Faults of the programs that a service has started for these boards, and of its own status."""
    children = family(service.process.pid)
    match service.part:
        case "board":
            return _board(boards[0] if boards else record.boards[0], service, children)
        case "exporter":
            alone = len(service.boards) <= 1
            return _serial_servers(service, children, [record.devices_of(each.number) for each in boards], alone=alone)
        case "coordinator" if _was_ready(record) and not listens(int(record.coordinator.rpartition(":")[2])):
            # One that was asked to end closes its port first: its end is about to be noted.
            what = f"the lab's coordinator (process {service.process.pid}) does not answer; its log is {service.log}"
            return [LabFault(what, service.name, noted=False)]
        case _:
            name = service.name
            return [_stopped(f"{each.name} of the lab's {name}", each, name) for each in children if each.stopped]


def _was_ready(record: LabRecord) -> bool:
    """Whether the coordinator has answered: exporters are started only after that."""
    return any(each.part == _EXPORTER for each in record.services)


def _board(board: BoardRecord, service: ServiceRecord, children: list[Seen]) -> list[LabFault]:
    if stopped := [each for each in children if each.stopped]:
        return [_stopped(f"the board's {'QEMU' if 'qemu' in each.name else each.name}", each) for each in stopped]
    if any("qemu" in each.name and not each.ended for each in children) or not board.status_url:
        return []
    status = board_status(board)
    if status is None:
        what = f"the lab's {service.name} (process {service.process.pid}) does not answer; its log is {service.log}"
        return [LabFault(what, _BOARD)]
    return _ended_board(status)


def _ended_board(status: dict[str, Any]) -> list[LabFault]:
    match status["state"]:
        case "ended":
            return [LabFault(f"the board has stopped: {status['message']}")]
        case "no-boot":
            return [LabFault(f"the board has nothing to boot: {status['message']}")]
        case _:
            return []


def _serial_servers(
    exporter: ServiceRecord, children: list[Seen], folders: Sequence[Path], *, alone: bool
) -> list[LabFault]:
    """The exporter's ser2net: one for the console, one for the meter of each acquired place.

    `folders` have the ttys of the boards in question. With `alone` the exporter has no other ones.
    """
    faults: list[LabFault] = []
    servers = [each for each in children if each.name == _SER2NET]
    living = {_served(each.process): each for each in servers if not each.ended}
    has_consoles, has_meters = (all(folder / tty in living for folder in folders) for tty in (_CONSOLE, _METER))
    for each in servers:
        if each.ended and (alone or not (has_consoles and has_meters)):
            # The arguments of an ended one are gone: it is the missing one.
            what = f"{_SER2NET} of the lab's {exporter.name} (process {each.process.pid}) {ending(each.status)}"
            faults.append(LabFault(what, "" if has_meters else _METER))
    for tty, each in living.items():
        if each.stopped and tty.parent in folders:
            what = f"{_SER2NET} of the lab's {tty.name}"
            faults.append(_stopped(what, each, tty.name))
    return faults


def _served(process: ProcessRef) -> Path:
    """The link to the tty that a ser2net serves."""
    try:
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return Path()
    return Path("/" + arguments.partition("serialdev")[2].partition(",/")[2].partition(",")[0])


def _own_children(coordinator: str) -> list[LabFault]:
    """Stopped programs of this process (ssh, for example), except for the lab that it has brought up."""
    stopped = [each for each in family(os.getpid()) if each.stopped]
    record = lab_at(coordinator) if stopped else None
    if record is not None and record.guardian is not None:
        head = record.guardian.pid
        of_lab = {head, *(each.process.pid for each in family(head))}
        stopped = [each for each in stopped if each.process.pid not in of_lab]
    return [_stopped(f"{each.name} of this run", each) for each in stopped]


def _stopped(what: str, process: Seen, part: str = "") -> LabFault:
    number = process.process.pid
    return LabFault(f"{what} (process {number}) was stopped (SIGSTOP) and does nothing", part, stopped=True)


def _state(process: ProcessRef) -> Seen | None:
    now = seen(process.pid)
    return None if now is None or now.ended or now.process != process else now


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """One program of the lab. `ended` says when and how it died, if known."""

    name: str
    pid: int
    alive: bool
    log: str
    ended: str | None = None


@dataclass(frozen=True, slots=True)
class PlaceStatus:
    """A place of the lab. `holder` is HOST/USER of its owner, None if it is free. `board` is the board's own status."""

    name: str
    holder: str | None
    board: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class LabStatus:
    """The state of a lab. `degraded`: it is up but a service died. `board` and `holder` are those of the first place.

    Holders are None if the coordinator does not answer (`holder_known`). `kind` names the boards' config. `faults` are
    sentences: dead and stopped parts, or why the lab is down.
    """

    name: str
    state: LabState
    directory: str
    services: tuple[ServiceStatus, ...] = ()
    coordinator: str | None = None
    started_utc: str | None = None
    owner_pid: int | None = None
    holder: str | None = None
    holder_known: bool = True
    board: dict[str, Any] | None = None
    faults: tuple[str, ...] = ()
    kind: str = ""
    places: tuple[PlaceStatus, ...] = ()

    @property
    def running(self) -> bool:
        return self.state != "down"

    def text(self) -> str:
        if not self.running:
            return "\n  ".join((f"lab {self.name!r} is down", *self.faults))
        lines = [f"lab {self.name!r} is {self.state} since {self.started_utc}, coordinator {self.coordinator}"]
        lines += [
            f"  {each.name:<{_WIDTH}} {f'process {each.pid}' if each.alive else f'DIED ({each.ended}), see {each.log}'}"
            for each in self.services
        ]
        lines += [f"  FAULT        {fault}" for fault in self.faults]
        for place in self.places:
            held = f"is {f'held by {place.holder}' if place.holder else 'free'}"
            if not self.holder_known:
                held = "may be held: its coordinator does not answer"
            lines.append(f"  place {place.name!r} {held}")
            if place.board is not None:
                card, supply = place.board["card"]["position"], place.board["supply"]["watts"]
                lines.append(
                    f"  {'board':<{_WIDTH}} {place.board['message']}, card at {card}, {supply:.3f} W (simulated)"
                )
        if self.owner_pid is not None:
            lines.append(f"  ends with its owner, process {self.owner_pid}")
        return "\n".join(lines)
