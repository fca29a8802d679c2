"""Extra parts of a board in guest time: a mailbox for input, a supply with a probe, a fresh card per power-on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fsjoule.host import process
from fsjoule.virtual.board import boot_partition, guest_boot
from fsjoule.virtual.board.boot_partition import BootFiles
from fsjoule.virtual.board.config import BoardConfig, Boot, GuestTimeConfig
from fsjoule.virtual.board.guest_supply import GuestSupply, MailboxOnCard
from fsjoule.virtual.board.mailbox import Mailbox
from fsjoule.virtual.board.qemu import GuestTime

_COPY_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class PowerOn:
    files: BootFiles | None
    card: Path
    qemu: GuestTime


class Guest:
    """The extra parts of one board. `seed` is for the next power-on's random numbers.

    With `profile_next` only the next power-on counts the instructions of each window by address.
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
        self._copy = image.with_name(image.name + ".powered")

    def power_on(self, card: Path, into: Path) -> PowerOn:
        """Prepare a power-on with a fresh copy of the flashed card, from which the board starts.

        A boot loader reads the copy itself, so the copy is changed; otherwise the boot files are. `into` is a folder
        for files that are needed until QEMU has started. Raises LabError.
        """
        copy = self._copy
        # Holes stay holes, so it takes a fraction of a second.
        process.run(["cp", "--sparse=always", "--reflink=auto", card, copy], timeout_s=_COPY_TIMEOUT_S)
        mailbox = None
        if self._boot is not Boot.KERNEL:
            mailbox = MailboxOnCard(self._config.mailbox, guest_boot.prepare_card(copy, into, self.seed))
        files = boot_partition.boot_files(self._boot, copy, into)
        if files and mailbox is None:
            files = guest_boot.for_guest_time(files)
        self._profiled, self.profile_next = self.profile_next, False

        def environment(console_fd: int, mark_fd: int) -> Mapping[str, str]:
            return self.supply.environment(copy, console_fd, mark_fd, mailbox)

        counter = self._config.probe if self._profiled else None
        second_card = None if mailbox else self._config.mailbox
        qemu = GuestTime(self._config.shift, second_card, environment, self.seed, counter, self.supply.written)
        return PowerOn(files, copy, qemu)

    def power_off(self) -> None:
        """Drop everything that the board wrote."""
        self._copy.unlink(missing_ok=True)

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
