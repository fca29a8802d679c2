"""The files of one virtual lab, among them `lab.json` with its running programs."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from fsjoule.errors import ConfigError, LabError
from fsjoule.host.interrupts import interruptible
from fsjoule.host.json_text import json_text
from fsjoule.host.locks import command, locked, locker
from fsjoule.host.paths import state_dir
from fsjoule.host.process_ref import ProcessRef, ending

_log: Final = logging.getLogger(__name__)

PLACE: Final = "virtual"
LAB_SCHEMA: Final = "fsjoule.virtual-lab/1"
# labgrid's exporter accepts serial ports only below /dev, and a unix socket's path has at most 107 bytes.
_DEVICES_ROOT: Final = Path("/dev/shm")  # noqa: S108 - the directory made there is private (mode 0700)
_EPITAPH_TIMEOUT_S: Final = 2.0
_POLL_S: Final = 0.05
# A lab goes down within a few seconds. Who waits for one to come up finds it used then.
_LOCK_TIMEOUT_S: Final = 30.0
_SAY_EVERY_S: Final = 10.0
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,23}")


@dataclass(frozen=True, slots=True)
class Ended:
    """Time and status of a program's unexpected end. A negative status is the signal that killed it."""

    utc: str
    status: int


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """A started program of the lab. The supervisor records `ended`. `boards` are those it works for; none means all.

    `part` is what it is: two boards have the services `board` and `board-2`.
    """

    name: str
    process: ProcessRef
    log: str
    ended: Ended | None = None
    boards: tuple[int, ...] = ()

    @property
    def part(self) -> str:
        return self.name.partition("-")[0]

    @property
    def end_text(self) -> str | None:
        return None if self.ended is None else f"{ending(self.ended.status)} at {self.ended.utc}"


@dataclass(frozen=True, slots=True)
class Epitaph:
    """`ended.json`: why the last lab at a coordinator ended."""

    coordinator: str
    utc: str
    reason: str

    @property
    def text(self) -> str:
        return f"it ended at {self.utc}: {self.reason}"


@dataclass(frozen=True, slots=True)
class BoardRecord:
    """A board of the lab: its number, from 1, and the address of its status once it has started."""

    number: int = 1
    status_url: str = ""

    @property
    def place(self) -> str:
        return numbered(PLACE, self.number)


@dataclass(frozen=True, slots=True)
class LabRecord:
    """`lab.json`: the parts of a lab. `devices` is the folder of tty links, sockets and the power feed.

    `board` names the config in labgrid/virtual of all its boards. `identity` tells this lab from others with its name.
    """

    name: str
    started_utc: str
    devices: str
    coordinator: str
    ssh_port: int
    meter_program: str
    emulator: str
    board: str = "board"
    identity: str = ""
    guardian: ProcessRef | None = None
    supervisor: ProcessRef | None = None
    owner: ProcessRef | None = None
    services: tuple[ServiceRecord, ...] = ()
    ready: bool = False
    boards: tuple[BoardRecord, ...] = (BoardRecord(),)
    exporters: int = 1
    schema: Literal["fsjoule.virtual-lab/1"] = LAB_SCHEMA

    def board_at(self, place: str) -> BoardRecord | None:
        """The board of a place; without a name the first. None for a place that the lab does not have."""
        return next((each for each in self.boards if each.place == place), None) if place else self.boards[0]

    def devices_of(self, number: int) -> Path:
        """The folder of a board's tty links and sockets."""
        return Path(self.devices) if number == 1 else Path(self.devices) / str(number)

    def exporter_of(self, number: int) -> int:
        """The number, from 1, of the exporter of a board: neighbouring boards have one."""
        return (number - 1) * self.exporters // len(self.boards) + 1

    def exporter_name(self, number: int) -> str:
        """The name of an exporter of this lab, for labgrid."""
        return f"fsjoule-{numbered(self.name, number)}"


_RECORD: Final[TypeAdapter[LabRecord]] = TypeAdapter(LabRecord)
_EPITAPH: Final[TypeAdapter[Epitaph]] = TypeAdapter(Epitaph)


class BoardPaths:
    """The files of one board of a lab."""

    def __init__(self, name: str, root: Path, logs: Path) -> None:
        self.name: Final = name
        self.root: Final = root
        self.logs: Final = logs  # those that the board itself writes
        self.card: Final = root / "card.img"
        self.tftp: Final = root / "tftp"
        self.flash_memory: Final = root / "flash.bin"
        self.meter_storage: Final = root / "meter.flash"
        self.board_config: Final = root / "board.toml"
        self.board_ready: Final = root / "board.ready.json"


class LabPaths(BoardPaths):
    """The files of a lab, which are those of its first board, too."""

    def __init__(self, root: Path) -> None:
        super().__init__(root.name, root, root / "logs")
        self.record: Final = root / "lab.json"
        self._lock: Final = root / "lock"
        self.epitaph: Final = root / "ended.json"
        self.bin: Final = root / "bin"
        self.ssh: Final = root / "ssh"
        self.coordinator: Final = root / "coordinator"

    @classmethod
    def of(cls, name: str) -> LabPaths:
        """The files of the lab called `name`. Raises ConfigError for an invalid name."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is not a valid name of a lab", hint="use up to 24 of a-z, 0-9 and '-'")
        return cls(state_dir() / "labs" / name)

    def log(self, service: str) -> Path:
        return self.logs / f"{service}.log"

    def of_board(self, number: int) -> BoardPaths:
        """The files of the board with this number, from 1."""
        own = numbered("board", number)
        return self if number == 1 else BoardPaths(numbered(self.name, number), self.root / own, self.logs / own)

    def make(self, boards: int = 1) -> None:
        """Make the lab's directories, private to the user, and remove old logs."""
        of_boards = [
            folder for n in range(1, boards + 1) for each in [self.of_board(n)] for folder in (each.root, each.tftp)
        ]
        for directory in (*of_boards, self.bin, self.ssh, self.coordinator, self.logs):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for log in self.logs.rglob("*.log"):
            log.unlink()
        self.epitaph.unlink(missing_ok=True)

    def read(self) -> LabRecord | None:
        """The content of `lab.json`; None if it is missing, damaged or unreadable."""
        try:
            return _RECORD.validate_json(self.record.read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, record: LabRecord) -> None:
        """Replace `lab.json` atomically."""
        _replace(self.record, json_text(_RECORD, record, indent=2))

    def read_epitaph(self) -> Epitaph | None:
        """Why the last lab of this name ended, if known."""
        try:
            return _EPITAPH.validate_json(self.epitaph.read_bytes())
        except (OSError, ValidationError):
            return None

    def await_epitaph(self) -> Epitaph | None:
        """Why a lab is just ending: its surviving head soon writes it down. None if none does."""
        deadline = time.monotonic() + _EPITAPH_TIMEOUT_S
        while (epitaph := self.read_epitaph()) is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return epitaph

    def bury(self, record: LabRecord, reason: str) -> None:
        """Record why a lab ends, for its users. The first reason stays. A full disk is ignored."""
        if self.epitaph.exists():
            return
        epitaph = Epitaph(record.coordinator, datetime.now(UTC).isoformat(timespec="seconds"), reason)
        with contextlib.suppress(OSError):
            _replace(self.epitaph, json_text(_EPITAPH, epitaph, indent=2))

    @contextmanager
    def lock(self, wait_s: float = _LOCK_TIMEOUT_S) -> Generator[None]:
        """Let only one process change a lab. Raises LabError (transient) if another one does so for too long."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        deadline, said_s = time.monotonic() + wait_s, 0.0
        while (descriptor := locked(self._lock)) is None:
            who, now_s = self.being_changed or f"another process changes the lab {self.name!r}", time.monotonic()
            if now_s >= deadline:
                raise LabError(who, transient=True, hint="wait for its end, or end that process, and try again")
            if now_s - said_s >= _SAY_EVERY_S:
                said_s = now_s
                _log.info("%s: waiting, for at most %.0f s", who, deadline - now_s)
            with interruptible():
                time.sleep(_POLL_S)
        try:
            os.utime(descriptor)
            yield
        finally:
            os.close(descriptor)

    @property
    def being_changed(self) -> str:
        """Which process brings the lab up or takes it down now, and since when; empty if none is known to."""
        try:
            found = self._lock.stat()
        except OSError:
            return ""
        pid = locker(found.st_ino)
        since = datetime.fromtimestamp(found.st_mtime, UTC).isoformat(timespec="seconds")
        who = f"process {pid} ({command(pid)}) since {since}"
        return f"the lab {self.name!r} is being brought up or down by {who}" if pid else ""


def numbered(name: str, number: int) -> str:
    """The name of the part of a board: the first has the plain one, then come NAME-2, NAME-3 and so on."""
    return name if number == 1 else f"{name}-{number}"


def _replace(file: Path, content: bytes) -> None:
    beside = file.with_suffix(".new")
    beside.write_bytes(content)
    beside.replace(file)


def lab_at(coordinator: str) -> LabRecord | None:
    """The lab of this computer at a coordinator, if it has one."""
    records = (LabPaths.of(name).read() for name in lab_names())
    return next((each for each in records if each is not None and each.coordinator == coordinator), None)


def lab_names() -> tuple[str, ...]:
    """Labs that have been brought up under this state directory, running or not. Foreign names are ignored."""
    labs = state_dir() / "labs"
    found = labs.iterdir() if labs.is_dir() else ()
    return tuple(sorted(path.name for path in found if _NAME.fullmatch(path.name) and path.is_dir()))


def make_devices_directory(name: str) -> Path:
    """A new private directory for tty links and sockets, with a short path below /dev."""
    if not _DEVICES_ROOT.is_dir():
        raise LabError(f"{_DEVICES_ROOT} does not exist", hint=f"mount -t tmpfs tmpfs {_DEVICES_ROOT}")
    return Path(tempfile.mkdtemp(prefix=f"fsjoule-{name}-", dir=_DEVICES_ROOT))


def forget(paths: LabPaths, record: LabRecord) -> None:
    """Remove the leftovers of an ended lab. The card, the meter's settings, keys and logs stay."""
    devices = Path(record.devices)
    if devices.parent == _DEVICES_ROOT and devices.name.startswith("fsjoule-"):
        shutil.rmtree(devices, ignore_errors=True)
    now = paths.read()
    if now is None or now.identity == record.identity:
        for board in record.boards:
            paths.of_board(board.number).board_ready.unlink(missing_ok=True)
        paths.record.unlink(missing_ok=True)
