"""Programs of a virtual lab that have died or are stopped, in words: the first cause of a failure in it.

Waits for the board ask repeatedly (`console_faults`); an error asks once (`lab_faults`). A lab on another computer and
a real lab have no faults to tell.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fsjoule.host.process_ref import ProcessRef, Seen, ending, family, seen
from fsjoule.virtual.lab.board import board_status
from fsjoule.virtual.lab.files import LabPaths, LabRecord, ServiceRecord, lab_at, lab_names
from fsjoule.virtual.lab.services import listens

_BOARD: Final = "board"
_EXPORTER: Final = "exporter"
_SSHD: Final = "sshd"
_METER: Final = "meter"
_SER2NET: Final = "ser2net"
_CONSOLE: Final = "console"
# A process may be stopped only for a moment: it is checked twice.
_STOPPED_FOR_S: Final = 0.5
# Time within which the supervisor records the end of a service.
_NOTED_WITHIN_S: Final = 1.5
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class LabFault:
    """A part that has ended or is stopped. Only a fault that `silences` keeps the board's console silent.

    `part` is the service that fails. While an end is not `noted`, the supervisor has yet to record how it came about.
    """

    text: str
    part: str = ""
    silences: bool = True
    stopped: bool = False
    noted: bool = True


def lab_faults(coordinator: str) -> tuple[str, ...]:
    """Faults of the lab at this coordinator and of this process's own children, a sentence each."""
    return tuple(fault.text for fault in (*_faults_at(coordinator), *_own_children(coordinator)))


def console_faults(coordinator: str) -> tuple[str, ...]:
    """Faults that keep the board's console silent."""
    return tuple(fault.text for fault in _faults_at(coordinator) if fault.silences)


def power_faults(coordinator: str) -> tuple[str, ...]:
    """Faults that keep the board from being switched."""
    return tuple(fault.text for fault in _faults_at(coordinator) if fault.part == _BOARD)


def meter_faults(coordinator: str) -> tuple[str, ...]:
    """Faults that keep the meter silent."""
    return tuple(fault.text for fault in _faults_at(coordinator) if fault.part in (_METER, _EXPORTER))


def card_faults(coordinator: str) -> tuple[str, ...]:
    """Faults, also of this process's children, that keep the card from being written."""
    found = [fault for fault in _faults_at(coordinator) if fault.part in (_BOARD, _SSHD)]
    return tuple(fault.text for fault in (*found, *_own_children(coordinator)))


def faults_of(record: LabRecord) -> tuple[LabFault, ...]:
    found = _noted(record)
    if any(fault.stopped for fault in found):
        time.sleep(_STOPPED_FOR_S)
        again = set(_look(record))
        found = [fault for fault in found if not fault.stopped or fault in again]
    return tuple(found)


def _faults_at(coordinator: str) -> tuple[LabFault, ...]:
    for name in lab_names():
        paths = LabPaths.of(name)
        record = paths.read()
        if record is not None and record.coordinator == coordinator:
            return faults_of(record)
        epitaph = paths.read_epitaph()
        if record is None and epitaph is not None and epitaph.coordinator == coordinator:
            return (LabFault(f"the lab {name!r} has ended: {epitaph.reason}", _BOARD),)
    return ()


def _noted(record: LabRecord) -> list[LabFault]:
    """The faults after the supervisor has recorded each dead service's end, if it does so in time."""
    deadline = time.monotonic() + _NOTED_WITHIN_S
    while True:
        found = _look(record)
        if all(fault.noted for fault in found):
            return found
        supervisor = None if record.supervisor is None else _state(record.supervisor)
        if time.monotonic() > deadline or supervisor is None or supervisor.stopped:
            return found
        time.sleep(_POLL_S)
        now = LabPaths.of(record.name).read()
        record = record if now is None or now.identity != record.identity else now


def _look(record: LabRecord) -> list[LabFault]:
    faults = [*_heads(record)]
    for service in record.services:
        silences = service.name in (_BOARD, _EXPORTER)
        log = f"its log is {service.log}"
        now = _state(service.process)
        if now is None:
            how = ending(None if service.ended is None else service.ended.status)
            text = f"the lab's {service.name} (process {service.process.pid}) {how}; {log}"
            faults.append(LabFault(text, service.name, silences, noted=service.ended is not None))
        elif now.stopped:
            faults.append(_stopped(f"the lab's {service.name}", now, service.name, silences=silences))
        else:
            faults += _below(record, service)
    return faults


def _heads(record: LabRecord) -> Iterator[LabFault]:
    for name, head in (("guardian", record.guardian), ("supervisor", record.supervisor)):
        if head is None:
            continue
        now = _state(head)
        if now is None:
            yield LabFault(f"the lab's {name} (process {head.pid}) died, so the lab ends", _BOARD)
        elif now.stopped:
            yield _stopped(f"the lab's {name}", now, silences=False)


def _below(record: LabRecord, service: ServiceRecord) -> list[LabFault]:
    """Faults of the programs that a service has started, and of its own status."""
    children = family(service.process.pid)
    match service.name:
        case "board":
            return _board(record, service, children)
        case "exporter":
            return _serial_servers(children)
        case "coordinator" if record.ready and not listens(int(record.coordinator.rpartition(":")[2])):
            # One that was asked to end closes its port first: its end is about to be noted.
            what = f"the lab's coordinator (process {service.process.pid}) does not answer; its log is {service.log}"
            return [LabFault(what, service.name, silences=False, noted=False)]
        case _:
            name = service.name
            return [
                _stopped(f"{each.name} of the lab's {name}", each, name, silences=False)
                for each in children
                if each.stopped
            ]


def _board(record: LabRecord, service: ServiceRecord, children: list[Seen]) -> list[LabFault]:
    if stopped := [each for each in children if each.stopped]:
        return [_stopped(f"the board's {'QEMU' if 'qemu' in each.name else each.name}", each) for each in stopped]
    if any("qemu" in each.name and not each.ended for each in children) or not record.board_status_url:
        return []
    status = board_status(record)
    if status is None:
        return [
            LabFault(
                f"the lab's board (process {service.process.pid}) does not answer; its log is {service.log}", _BOARD
            )
        ]
    return _ended_board(status)


def _ended_board(status: dict[str, Any]) -> list[LabFault]:
    match status["state"]:
        case "ended":
            return [LabFault(f"the board has stopped: {status['message']}")]
        case "no-boot":
            return [LabFault(f"the board has nothing to boot: {status['message']}")]
        case _:
            return []


def _serial_servers(children: list[Seen]) -> list[LabFault]:
    """The exporter's ser2net: one for the console, one for the meter, while the place is acquired."""
    faults: list[LabFault] = []
    servers = [each for each in children if each.name == _SER2NET]
    living = {_served(each.process): each for each in servers if not each.ended}
    for each in servers:
        if each.ended:
            # The arguments of an ended one are gone: it is the missing one.
            what = f"{_SER2NET} of the lab's {_EXPORTER} (process {each.process.pid}) {ending(each.status)}"
            faults.append(LabFault(what, "" if _METER in living else _METER, _CONSOLE not in living))
    for what, each in living.items():
        if each.stopped:
            faults.append(_stopped(f"{_SER2NET} of the lab's {what}", each, what, silences=what == _CONSOLE))
    return faults


def _served(process: ProcessRef) -> str:
    try:
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
    return arguments.partition("serialdev")[2].partition(",/")[2].partition(",")[0].rpartition("/")[2]


def _own_children(coordinator: str) -> list[LabFault]:
    """Stopped programs of this process (ssh, for example), except for the lab that it has brought up."""
    stopped = [each for each in family(os.getpid()) if each.stopped]
    record = lab_at(coordinator) if stopped else None
    if record is not None and record.guardian is not None:
        head = record.guardian.pid
        of_lab = {head, *(each.process.pid for each in family(head))}
        stopped = [each for each in stopped if each.process.pid not in of_lab]
    return [_stopped(f"{each.name} of this run", each) for each in stopped]


def _stopped(what: str, process: Seen, part: str = "", *, silences: bool = True) -> LabFault:
    number = process.process.pid
    return LabFault(f"{what} (process {number}) was stopped (SIGSTOP) and does nothing", part, silences, stopped=True)


def _state(process: ProcessRef) -> Seen | None:
    now = seen(process.pid)
    return None if now is None or now.ended or now.process != process else now
