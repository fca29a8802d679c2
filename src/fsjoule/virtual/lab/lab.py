"""The virtual lab: a real labgrid lab on this machine, around an emulated board.

Coordinator, exporter with ser2net, an ssh server, the virtual board and the meter run under a supervisor. A lab may
have several boards, each with a meter and a place of its own. Everything listens on 127.0.0.1, on free ports, so
several labs run at once, by name. Nothing outlives the lab (`guardian.py`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import select
import signal
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, HostError, LabError
from fsjoule.host import process
from fsjoule.host.interrupts import interruptible
from fsjoule.host.locks import command, locked, locker
from fsjoule.host.paths import place_file
from fsjoule.host.process_ref import ProcessRef, wait_gone
from fsjoule.model.labels import counted
from fsjoule.virtual.board.config import BoardConfig, NetworkConfig
from fsjoule.virtual.lab.board import board_status
from fsjoule.virtual.lab.capacity import check_fits, warn_of_shared_cpus
from fsjoule.virtual.lab.files import (
    PLACE,
    BoardRecord,
    LabPaths,
    LabRecord,
    forget,
    lab_names,
    make_devices_directory,
)
from fsjoule.virtual.lab.health import (
    LabState,
    LabStatus,
    PlaceStatus,
    ServiceStatus,
    faults_of,
    last_words,
    log_tail,
)
from fsjoule.virtual.lab.instruments import variables
from fsjoule.virtual.lab.services import (
    beside_python,
    board_config,
    board_template,
    flash_memory,
    free_ports,
    lab_path,
    prepare_ssh,
    probe,
    simulator,
    write_places,
)

_log: Final = logging.getLogger(__name__)

REAL_TIME: Final = "board"
# Compilers: the simulator, and the library for QEMU, are built at first use.
_TOOLS: Final = ("mcopy", "ser2net", "sshd", "ssh", "ssh-keygen", "rsync", "taskset", "cc", "cmake", "ninja")
_UP_TIMEOUT_S: Final = 180.0
_DOWN_TIMEOUT_S: Final = 40.0
_COORDINATOR: Final = "coordinator"
# On a busy machine the client alone takes some of them to start.
_CLIENT_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class LabHandle:
    """A running lab. `environment` is what labgrid needs to reach it; `started` is false if it was already up.

    `identity` tells this lab from earlier and later ones with its name.
    """

    name: str
    identity: str
    directory: Path
    place: str
    environment: dict[str, str]
    started: bool


def emulator_for(board: str) -> str | None:
    """The QEMU for every kernel on a board in guest time; None if it depends on the kernel (`recipe_of` tells).

    In guest time nothing is typed on the serial line, where older QEMUs fail with newer kernels; and only figures from
    one QEMU are comparable. Raises ConfigError for an unknown board.
    """
    template = board_template(board)
    return template.qemu.program if template.guest_time is not None else None


def recipe_of(board: str) -> str:
    """The card recipe of a board's config in labgrid/virtual. Raises ConfigError for an unknown board."""
    return board_template(board).recipe


def check_tools(board: str) -> None:
    """Raise MissingToolError for a program that a lab of such boards needs."""
    for tool in filter(None, (emulator_for(board), *_TOOLS)):
        process.find_tool(tool)


def up(
    name: str = PLACE,
    *,
    owner_pid: int | None = None,
    emulator: str | None = None,
    meter_program: Path | None = None,
    board: str = REAL_TIME,
    boards: int = 1,
    exporters: int = 1,
) -> LabHandle:
    """Bring a lab up, and return when it is ready. A lab that is already up is returned unchanged.

    It ends with `down`, or with the process `owner_pid` in whatever way. `emulator` is the board's QEMU instead of its
    config's, `meter_program` a meter with the simulator's command line instead of the simulator, `board` the name of
    the boards' config in labgrid/virtual. `boards` is their number, at least; `exporters` share them. A lab with a dead
    part is brought up again, unless another process uses it.

    Raises MissingToolError and ConfigError before anything starts, also for boards that do not fit this computer.
    Raises LabError with a service's last log lines if it does not start; if a lab with other equipment is up; or if a
    lab in use has lost a part.
    """
    paths = LabPaths.of(name)
    template = board_template(board)
    emulator = process.find_tool(emulator or template.qemu.program)
    meter = None if meter_program is None else _meter_program(meter_program)
    in_guest_time = template.guest_time is not None
    if meter is not None and in_guest_time:
        raise ConfigError(
            f"the board {board!r} has its own time, which only the simulator follows: omit --meter-program"
        )
    if template.instruments and in_guest_time:
        raise ConfigError(
            f"the board {board!r} has its own time, which only the meter follows", hint="leave instruments out"
        )
    check_tools(board)
    if not 1 <= exporters <= boards:
        raise ConfigError(
            f"{boards} boards cannot have {exporters} exporters", hint="at least one, and at most one for each board"
        )
    with paths.lock():
        record = paths.read()
        if record is not None and _state(record) == "up":
            _refuse_another(record, emulator=emulator, meter=meter, board=board, boards=boards)
            _log.info("lab %r is up already", name)
            return _handle(paths, record, started=False)
        if record is not None:
            # A lab with a dead part may still be in use, or its owner may be about to report that.
            if _state(record) == "degraded":
                refuse_to_touch(record, "brought up again", tuple(fault.text for fault in faults_of(record)))
            _log.info("removing the leftovers of an earlier lab %r", name)
            _end(paths, record)
        check_fits(boards, template, paths.root)
        warn_of_shared_cpus(boards, template)
        with interruptible():
            equipment = _Equipment(
                board,
                emulator,
                meter or str(simulator()),
                probe() if in_guest_time else None,
                _flash_memory(template),
                boards,
                exporters,
            )
        return _start(paths, owner_pid, equipment)


def status(name: str = PLACE) -> LabStatus:
    """Look at a lab without changing it."""
    paths = LabPaths.of(name)
    record = paths.read()
    state = "down" if record is None else _state(record)
    if record is None or state == "down":
        epitaph = paths.read_epitaph()
        return LabStatus(name, "down", str(paths.root), faults=() if epitaph is None else (epitaph.text,))
    faults = faults_of(record)
    holders = None if any(each.part == _COORDINATOR for each in faults) else _holders(paths, record)
    places = tuple(
        PlaceStatus(each.place, (holders or {}).get(each.place), board_status(each)) for each in record.boards
    )
    return LabStatus(
        name=name,
        state=state,
        directory=str(paths.root),
        services=tuple(
            ServiceStatus(service.name, service.process.pid, service.process.alive(), service.log, service.end_text)
            for service in record.services
        ),
        coordinator=record.coordinator,
        started_utc=record.started_utc,
        owner_pid=None if record.owner is None else record.owner.pid,
        holder=places[0].holder,
        holder_known=holders is not None,
        board=places[0].board,
        faults=tuple(fault.text for fault in faults),
        kind=record.board,
        places=places,
    )


def running() -> tuple[tuple[LabRecord, LabState], ...]:
    """The labs under this state directory that are up, by name."""
    records = (LabPaths.of(name).read() for name in lab_names())
    return tuple((each, _state(each)) for each in records if each is not None and _state(each) != "down")


def down(name: str = PLACE, *, identity: str | None = None, force: bool = False) -> bool:
    """End a lab and everything in it, even leftovers of a killed lab. Returns False if there was none.

    With an `identity` only that lab is ended, not a later one with its name. Raises LabError if another process uses
    the lab (its owner, or a run on its place), unless `force` is set.
    """
    paths = LabPaths.of(name)
    with paths.lock():
        record = paths.read()
        if record is None or identity not in (None, record.identity):
            return False
        was_up = _state(record) != "down"
        if was_up and not force and identity is None:
            refuse_to_touch(record, "taken down", ())
        _end(paths, record)
        return was_up


def being_changed(name: str) -> str:
    """Which process brings the lab up or takes it down now, and since when; empty if none is known to."""
    return LabPaths.of(name).being_changed


def environment(name: str = PLACE) -> dict[str, str]:
    """Environment variables with which labgrid's own tools reach a lab. Raises LabError if it is down."""
    paths = LabPaths.of(name)
    record = paths.read()
    if record is None or _state(record) == "down":
        raise LabError(f"the lab {name!r} is down", hint=f"fsjoule lab up --name {name}")
    return _environment(paths, record)


def _state(record: LabRecord) -> LabState:
    if record.supervisor is None or not record.supervisor.alive() or not record.ready:
        return "down"
    return "up" if all(service.process.alive() for service in record.services) else "degraded"


def _handle(paths: LabPaths, record: LabRecord, *, started: bool) -> LabHandle:
    return LabHandle(paths.name, record.identity, paths.root, PLACE, _environment(paths, record), started)


def _environment(paths: LabPaths, record: LabRecord) -> dict[str, str]:
    labgrids = {"LG_COORDINATOR": record.coordinator, "LG_PLACE": PLACE, "PATH": lab_path(paths)}
    return labgrids | variables(board_template(record.board))


@dataclass(frozen=True, slots=True)
class _Equipment:
    """A lab's parts: name of the boards' config, programs, the probe of boards in guest time, their flash memory."""

    board: str
    emulator: str
    meter: str
    probe: Path | None
    flash_memory: bytes | None
    boards: int
    exporters: int


def _refuse_another(record: LabRecord, *, emulator: str, meter: str | None, board: str, boards: int) -> None:
    name, again = record.name, "fsjoule lab down, then try again"
    if record.emulator != emulator:
        raise LabError(
            f"the lab {name!r} is up with {record.emulator}, but {emulator} is needed",
            hint=f"some kernels need another QEMU: {again}",
        )
    if meter is not None and record.meter_program != meter:
        raise LabError(
            f"the lab {name!r} is up with the meter {record.meter_program}, but {meter} is needed", hint=again
        )
    if record.board != board:
        raise LabError(f"the lab {name!r} is up with the board {record.board!r}, but {board!r} is needed", hint=again)
    if len(record.boards) < boards:
        has = counted(len(record.boards), "board")
        raise LabError(f"the lab {name!r} is up with {has}, but {boards} are needed", hint=again)


def _flash_memory(template: BoardConfig) -> bytes | None:
    wanted = template.flash_memory
    return None if wanted is None else flash_memory(wanted).read_bytes()[wanted.skip :]


def _meter_program(path: Path) -> str:
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise ConfigError(f"{path} is not a program", hint="build the meter's firmware for the host: make firmware")
    return str(path.resolve())


def _start(paths: LabPaths, owner_pid: int | None, equipment: _Equipment) -> LabHandle:
    owner = None if owner_pid is None else ProcessRef.of(owner_pid)
    if owner_pid is not None and owner is None:
        raise LabError(f"the process {owner_pid} cannot own the lab: it does not run")
    paths.make(equipment.boards)
    coordinator_port, ssh_port, *board_ports = free_ports(2 + 2 * equipment.boards)
    prepare_ssh(paths, ssh_port)
    devices = make_devices_directory(paths.name)
    record = LabRecord(
        name=paths.name,
        identity=secrets.token_hex(8),
        started_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        devices=str(devices),
        coordinator=f"127.0.0.1:{coordinator_port}",
        ssh_port=ssh_port,
        meter_program=equipment.meter,
        emulator=equipment.emulator,
        board=equipment.board,
        owner=owner,
        boards=tuple(BoardRecord(number) for number in range(1, equipment.boards + 1)),
        exporters=equipment.exporters,
    )
    paths.write(record)
    try:
        write_places(paths, record, board_template(record.board))
        for board, *ports in zip(record.boards, board_ports[::2], board_ports[1::2], strict=True):
            _write_board(paths, record, board.number, equipment, (ports[0], ports[1]))
        _launch(paths)
    except BaseException:
        _end(paths, paths.read() or record)
        raise
    return _handle(paths, record, started=True)


def _write_board(
    paths: LabPaths, record: LabRecord, number: int, equipment: _Equipment, ports: tuple[int, int]
) -> None:
    """Write the files with which a board starts."""
    files, devices = paths.of_board(number), record.devices_of(number)
    devices.mkdir(mode=0o700, exist_ok=True)
    network = NetworkConfig(files.tftp, *ports)
    config = board_config(files, devices, equipment.emulator, equipment.board, equipment.probe, network=network)
    files.board_config.write_text(config.to_toml())
    if equipment.flash_memory is not None:
        files.flash_memory.write_bytes(equipment.flash_memory)


def _launch(paths: LabPaths) -> None:
    """Start the guardian, and follow the supervisor's messages until the lab is ready."""
    reader, writer = os.pipe()
    try:
        guardian = process.start(
            [sys.executable, "-m", "fsjoule.virtual.lab.guardian", paths.root, str(writer)],
            log=paths.log("guardian"),
            pass_fds=(writer,),
            die_with_parent=False,
        )
        os.close(writer)
        try:
            with interruptible():
                _follow(reader, paths)
        except BaseException:
            process.stop(guardian, timeout_s=_DOWN_TIMEOUT_S)
            raise
        # The guardian outlives this object; `_end` waits for it by its number.
        guardian.returncode = 0
    finally:
        os.close(reader)


def _follow(reader: int, paths: LabPaths) -> None:
    deadline = time.monotonic() + _UP_TIMEOUT_S
    buffered = b""
    while (left_s := deadline - time.monotonic()) > 0 and select.select([reader], [], [], left_s)[0]:
        chunk = os.read(reader, 4096)
        if not chunk:
            epitaph = paths.await_epitaph()
            said = last_words(log_tail(paths.log("guardian")))
            why = f"its guardian died{said}" if epitaph is None else epitaph.reason
            what = f"the lab {paths.name!r} ended while it started: {why}"
            raise LabError(what, hint=f"see the logs in {paths.logs}")
        *lines, buffered = (buffered + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "error" in message:
                raise LabError(message["error"], hint=message["hint"])
            if "ready" in message:
                return
            _log.info("%s", message["progress"])
    raise LabError(f"the lab is not up after {_UP_TIMEOUT_S:.0f} s", hint=f"see the logs in {paths.logs}")


def _end(paths: LabPaths, record: LabRecord) -> None:
    """End a lab's processes and remove its files. Either head of the lab does that; this is the last resort."""
    heads = [head for head in (record.guardian, record.supervisor) if head is not None]
    for head in heads:
        head.end()
    left = wait_gone(heads, _DOWN_TIMEOUT_S)
    # If both heads were killed, the kernel has sent SIGTERM to the services.
    left += wait_gone([service.process for service in record.services], timeout_s=5.0)
    for each in left:
        each.send(signal.SIGKILL)
    if stubborn := wait_gone(left, timeout_s=5.0):
        raise LabError(f"these processes of the lab {paths.name!r} cannot be ended: {[each.pid for each in stubborn]}")
    if record.guardian is not None:
        with contextlib.suppress(ChildProcessError):  # the guardian is a child only of the process that started it
            os.waitpid(record.guardian.pid, os.WNOHANG)
    forget(paths, record)


def _holders(paths: LabPaths, record: LabRecord) -> dict[str, str] | None:
    """HOST/USER of who has acquired a place, by place; None if the coordinator does not answer."""
    command = [beside_python("labgrid-client"), "who"]
    try:
        shown = process.run(command, timeout_s=_CLIENT_TIMEOUT_S, env=_environment(paths, record), check=False)
    except HostError:
        return None
    if shown.returncode:
        return None
    rows = [line.split() for line in shown.stdout.decode(errors="replace").splitlines()[1:]]
    return {place: f"{host}/{who}" for who, host, place, *_ in rows}


def others_with(record: LabRecord) -> str | None:
    """Another user of the lab, in words: its living owner, or a run on one of its places. None if there is none.

    The owner is the process that the lab ends with. Nobody else than a lab's users may remove it.
    """
    owner = record.owner
    if owner is not None and owner.pid != os.getpid() and owner.alive():
        return f"belongs to process {owner.pid} ({command(owner.pid)}), which still runs"
    for board in record.boards:
        user = _user_of_place(record.coordinator, board.place)
        if user is not None and user != os.getpid():
            return f"is used by a run, process {user} ({command(user)})" if user else "is used by a run"
    return None


def refuse_to_touch(record: LabRecord, doing: str, faults: tuple[str, ...]) -> None:
    """Raise LabError if another process uses the lab; the message includes the lab's `faults`."""
    if who := others_with(record):
        wrong = f"; {'; '.join(faults)}" if faults else ""
        raise LabError(
            f"the lab {record.name!r} cannot be {doing}: it {who}{wrong}",
            hint=f"wait for its end, or force it: fsjoule lab down --force --name {record.name}",
        )


def _user_of_place(coordinator: str, place: str) -> int | None:
    """The process that holds the place's lock of runs (fsjoule.lab.notes), 0 if its number is unknown."""
    path = place_file("places", coordinator, place)
    try:
        inode = path.stat().st_ino
        descriptor = locked(path, flags=0)
    except OSError:
        return None
    if descriptor is None:
        return locker(inode)
    os.close(descriptor)
    return None
