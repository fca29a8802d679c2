"""The files of one virtual lab: where they are, and `lab.json`, which says what runs."""

from __future__ import annotations

import contextlib
import fcntl
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
from fsjoule.host.paths import state_dir
from fsjoule.host.process_ref import ProcessRef, ending
from fsjoule.virtual.disks.loop_device import remove_abandoned

LAB_SCHEMA: Final = "fsjoule.lab/1"
# labgrid's exporter takes serial ports below /dev only, and a path of a unix socket holds 107 bytes.
_DEVICES_ROOT: Final = Path("/dev/shm")  # noqa: S108 - the directory made there is private (mode 0700)
_EPITAPH_TIMEOUT_S: Final = 2.0
_POLL_S: Final = 0.05
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,23}")


@dataclass(frozen=True, slots=True)
class Ended:
    """When a program ended that should not have, and its status: negative for the signal that killed it."""

    utc: str
    status: int


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """One program of the lab that was started. `ended` is noted by the supervisor."""

    name: str
    process: ProcessRef
    log: str
    ended: Ended | None = None

    @property
    def end_text(self) -> str | None:
        """How and when it ended, in words."""
        return None if self.ended is None else f"{ending(self.ended.status)} at {self.ended.utc}"


@dataclass(frozen=True, slots=True)
class Epitaph:
    """`ended.json`: why the lab that was last at a coordinator is no more."""

    coordinator: str
    utc: str
    reason: str

    @property
    def text(self) -> str:
        return f"it ended at {self.utc}: {self.reason}"


@dataclass(frozen=True, slots=True)
class LabRecord:
    """`lab.json`: what a lab that was brought up consists of. `devices` holds tty links, sockets and the power feed.

    `board` is the name of the board's config in labgrid/virtual, `identity` this lab's, of all that had its name.
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
    board_status_url: str = ""
    services: tuple[ServiceRecord, ...] = ()
    ready: bool = False
    schema: Literal["fsjoule.lab/1"] = LAB_SCHEMA


_RECORD: Final[TypeAdapter[LabRecord]] = TypeAdapter(LabRecord)
_EPITAPH: Final[TypeAdapter[Epitaph]] = TypeAdapter(Epitaph)


@dataclass(frozen=True, slots=True)
class LabPaths:
    """Names of a lab's files below its own directory."""

    root: Path

    @classmethod
    def of(cls, name: str) -> LabPaths:
        """The files of the lab called `name`. Raises ConfigError for a name that is no plain word."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no name for a lab", hint="use up to 24 of a-z, 0-9 and '-'")
        return cls(state_dir() / "labs" / name)

    @property
    def name(self) -> str:
        return self.root.name

    @property
    def record(self) -> Path:
        return self.root / "lab.json"

    @property
    def epitaph(self) -> Path:
        return self.root / "ended.json"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def ssh(self) -> Path:
        return self.root / "ssh"

    @property
    def coordinator(self) -> Path:
        return self.root / "coordinator"

    @property
    def card(self) -> Path:
        return self.root / "card.img"

    @property
    def meter_storage(self) -> Path:
        return self.root / "meter.flash"

    @property
    def board_config(self) -> Path:
        return self.root / "board.toml"

    @property
    def board_ready(self) -> Path:
        return self.root / "board.ready.json"

    def log(self, service: str) -> Path:
        return self.logs / f"{service}.log"

    def make(self) -> None:
        """Make the lab's directories, private to the user. Old logs go."""
        for directory in (self.root, self.bin, self.ssh, self.coordinator, self.logs):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for log in self.logs.glob("*.log"):
            log.unlink()
        self.epitaph.unlink(missing_ok=True)

    def read(self) -> LabRecord | None:
        """What `lab.json` says; None if there is none, or one that is damaged or cannot be read."""
        try:
            return _RECORD.validate_json(self.record.read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, record: LabRecord) -> None:
        """Replace `lab.json`, whole or not at all."""
        beside = self.record.with_suffix(".new")
        beside.write_bytes(_RECORD.dump_json(record, indent=2))
        beside.replace(self.record)

    def read_epitaph(self) -> Epitaph | None:
        """Why the last lab of this name ended, if it has ended and said why."""
        try:
            return _EPITAPH.validate_json(self.epitaph.read_bytes())
        except (OSError, ValidationError):
            return None

    def await_epitaph(self) -> str:
        """Why a lab that is just ending does so: whichever head of it is left soon writes it down."""
        deadline = time.monotonic() + _EPITAPH_TIMEOUT_S
        while (epitaph := self.read_epitaph()) is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return "nobody has said why" if epitaph is None else epitaph.reason

    def bury(self, record: LabRecord, reason: str) -> None:
        """Say why a lab ends, for whoever still uses it; the first reason stays. A full disk hinders nobody."""
        if self.epitaph.exists():
            return
        epitaph = Epitaph(record.coordinator, datetime.now(UTC).isoformat(timespec="seconds"), reason)
        beside = self.epitaph.with_suffix(".new")
        with contextlib.suppress(OSError):
            beside.write_bytes(_EPITAPH.dump_json(epitaph, indent=2))
            beside.replace(self.epitaph)

    @contextmanager
    def lock(self, timeout_message: str) -> Generator[None]:
        """Only one process at a time changes a lab. Raises LabError (transient) with the message if another does."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LabError(timeout_message, transient=True) from None
            yield
        finally:
            os.close(descriptor)


def lab_names() -> tuple[str, ...]:
    """Labs that have been brought up under this state directory, running or not.

    Whoever tells why something failed asks as well: what others have put there, a copy of a lab for one, is no lab.
    """
    labs = state_dir() / "labs"
    found = labs.iterdir() if labs.is_dir() else ()
    return tuple(sorted(path.name for path in found if _NAME.fullmatch(path.name) and path.is_dir()))


def make_devices_directory(name: str) -> Path:
    """A new private directory for tty links and sockets, with a short path below /dev."""
    if not _DEVICES_ROOT.is_dir():
        raise LabError(f"{_DEVICES_ROOT} is not there", hint=f"mount -t tmpfs tmpfs {_DEVICES_ROOT}")
    return Path(tempfile.mkdtemp(prefix=f"fsjoule-{name}-", dir=_DEVICES_ROOT))


def forget(paths: LabPaths, record: LabRecord) -> None:
    """Remove what a lab that no longer runs has left; the card, the meter's settings, keys and logs stay."""
    devices = Path(record.devices)
    if devices.parent == _DEVICES_ROOT and devices.name.startswith("fsjoule-"):
        shutil.rmtree(devices, ignore_errors=True)
    with contextlib.suppress(OSError):  # without the right to, there was none to make either
        remove_abandoned()
    now = paths.read()
    if now is None or now.identity == record.identity:
        paths.board_ready.unlink(missing_ok=True)
        paths.record.unlink(missing_ok=True)
