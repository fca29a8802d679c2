"""Extra parts of a board in guest time: a mailbox for input, a supply with a probe, a fresh card per power-on."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import stat
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.virtual.board import boot_partition
from fsjoule.virtual.board.boot_partition import BootFiles
from fsjoule.virtual.board.config import BoardConfig, Boot, GuestTimeConfig
from fsjoule.virtual.board.mailbox import Mailbox
from fsjoule.virtual.board.power import ActivityReader, PowerCoefficients
from fsjoule.virtual.board.qemu import GuestTime

# As in probe/guest_probe.c: magic, time, busy time, bytes read and written, watts, events sent and dropped.
_PROBE_STATE: Final = struct.Struct("<8sqqQQdQQ")
_PROBE_MAGIC: Final = b"FSJPROB\0"
_WINDOW: Final = re.compile(r"[A-Za-z0-9]+")
_COPY_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class GuestState:
    """The probe's counts since power-on, in the guest's time."""

    time_ns: int
    busy_ns: int
    read_bytes: int
    written_bytes: int
    watts: float
    events: int
    dropped: int


NOTHING_YET: Final = GuestState(0, 0, 0, 0, 0.0, 0, 0)


@dataclass(frozen=True, slots=True)
class MailboxOnCard:
    """The mailbox behind `socket`, as a part of the card that begins at the byte `place`."""

    socket: Path
    place: int


class GuestSupply:
    """The supply: the probe inside QEMU sends the board's power to the meter through a FIFO.

    Without QEMU nothing is sent: without power the board's time stops, and the meter's time with it. The board starts
    switched off.
    """

    def __init__(self, fifo: Path, coefficients: PowerCoefficients, config: GuestTimeConfig) -> None:
        """Make the FIFO unless it exists. Raises LabError."""
        self._fifo = fifo
        self._coefficients = coefficients
        self._config = config
        self._state = fifo.with_name(fifo.name + ".state")
        self._profiles = fifo.with_name(fifo.name + ".profiles")
        self.volts = 0.0
        try:
            _make_fifo(fifo)
        except OSError as error:
            raise LabError(f"the FIFO {fifo} cannot be made: {error}") from error

    @property
    def written(self) -> tuple[Path, ...]:
        """What QEMU's probe writes. It is there, for the probe may make nothing."""
        self._state.touch(0o600)
        return (self._fifo, self._state, *([self._profiles] if self._profiles.exists() else []))

    @property
    def watts(self) -> float:
        """The power of the running board at its present time."""
        return self.state().watts if self.volts else 0.0

    @property
    def records(self) -> int:
        return self.state().events

    def state(self) -> GuestState:
        """The probe's counts for the last started QEMU."""
        with suppress(OSError, ValueError), self._state.open("rb") as file:
            with mmap.mmap(file.fileno(), _PROBE_STATE.size, access=mmap.ACCESS_READ) as content:
                magic, *values = _PROBE_STATE.unpack_from(content)
            if magic == _PROBE_MAGIC:
                return GuestState(*values)
        return NOTHING_YET

    def environment(
        self, card: Path, console_fd: int, mark_fd: int, mailbox: MailboxOnCard | None = None
    ) -> dict[str, str]:
        k = self._coefficients
        model = (
            *(k.volts, k.idle_w, k.cpu_w, k.card_read_mj_per_mib, k.card_write_mj_per_mib),
            self._config.card_peak_w,
        )
        on_card: dict[str, str] = {}
        if mailbox is not None:
            on_card = {"FSJOULE_PROBE_MAILBOX": str(mailbox.socket), "FSJOULE_PROBE_MAILBOX_AT": str(mailbox.place)}
        return {
            "LD_PRELOAD": str(self._config.probe),
            "FSJOULE_PROBE_SUPPLY": str(self._fifo),
            "FSJOULE_PROBE_CONSOLE_FD": str(console_fd),
            "FSJOULE_PROBE_MARK_FD": str(mark_fd),
            "FSJOULE_PROBE_CARD": str(card),
            "FSJOULE_PROBE_MODEL": " ".join(map(repr, model)),
            "FSJOULE_PROBE_STATE": str(self._state),
            "FSJOULE_PROBE_PROFILES": str(self._profiles),
            **on_card,
        }

    def take_profile(self, window: str) -> bytes | None:
        """The probe's file for a window, which can be taken once; None before the window's end."""
        if not _WINDOW.fullmatch(window):
            return None
        file = self._profiles / window
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            return None
        file.unlink()
        return content

    def switch_off(self) -> None:
        """Cut the supply."""
        self.volts = 0.0
        self._state.unlink(missing_ok=True)
        shutil.rmtree(self._profiles, ignore_errors=True)

    def halted(self) -> None:
        """Supply without current: the board has switched itself off."""
        self.volts = self._coefficients.volts

    def idle(self) -> None:
        self._profiles.mkdir(exist_ok=True)
        self.volts = self._coefficients.volts

    def follow(self, reader: ActivityReader | None) -> None:
        """Do nothing: the probe in QEMU works alone."""

    def close(self) -> None:
        """Switch off. The FIFO stays for the meter, which has it open."""
        self.switch_off()


def _make_fifo(path: Path) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISFIFO(path.stat().st_mode):
            return
        path.unlink()
    os.mkfifo(path, 0o600)


@dataclass(frozen=True, slots=True)
class PowerOn:
    files: BootFiles | None
    card: Path
    qemu: GuestTime


class Guest:
    """The extra parts of one board. `seed` is for the next power-on's random numbers.

    `card` is the copy of the flashed card that the board has while it is on. With `profile_next` only the next power-on
    counts the instructions of each window by address.
    """

    def __init__(self, config: BoardConfig, guest: GuestTimeConfig) -> None:
        self._config = guest
        self._boot = config.qemu.boot
        self.seed = 1
        self.profile_next = False
        self._profiled = False
        self.mailbox = Mailbox(guest.mailbox)
        self.supply = GuestSupply(config.feed, config.power, guest)
        image = config.card.image
        self.card = image.with_name(image.name + ".powered")

    def power_on(self, card: Path, into: Path) -> PowerOn:
        """Prepare a power-on with a fresh copy of the flashed card, from which the board starts.

        A boot loader reads the copy itself, so the copy is changed; otherwise the boot files are. `into` is a folder
        for files that are needed until QEMU has started. Raises LabError.
        """
        copy = self.card
        # Holes stay holes, so it takes a fraction of a second.
        process.run(["cp", "--sparse=always", "--reflink=auto", card, copy], timeout_s=_COPY_TIMEOUT_S)
        mailbox = None
        if self._boot is not Boot.KERNEL:
            mailbox = MailboxOnCard(self._config.mailbox, boot_partition.prepare_card(copy, into, self.seed))
        files = boot_partition.boot_files(self._boot, copy, into)
        if files and mailbox is None:
            files = boot_partition.for_guest_time(files)
        self._profiled, self.profile_next = self.profile_next, False

        def environment(console_fd: int, mark_fd: int) -> Mapping[str, str]:
            return self.supply.environment(copy, console_fd, mark_fd, mailbox)

        second_card = None if mailbox else self._config.mailbox
        qemu = GuestTime(
            shift=self._config.shift,
            mailbox=second_card,
            environment=environment,
            seed=self.seed,
            counter=Path(str(self._config.probe).rpartition(":")[2]),  # as LD_PRELOAD it may stand behind others
            by_address=self._profiled,
            written=self.supply.written,
        )
        return PowerOn(files, copy, qemu)

    def power_off(self) -> None:
        """Drop everything that the board wrote."""
        self.card.unlink(missing_ok=True)

    def status(self) -> dict[str, Any]:
        state = self.supply.state()
        return {
            "seconds": state.time_ns / 1e9,
            "busy_seconds": state.busy_ns / 1e9,
            "card_read_bytes": state.read_bytes,
            "card_written_bytes": state.written_bytes,
            "stands_still": self.mailbox.waiting,
            "seed": self.seed,
            "profiled": self._profiled,
        }

    def close(self) -> None:
        self.mailbox.close()
        self.power_off()
