"""Card images, and drivers that bring one onto the board's card or find it there (`KeptCard`).

The strategy knows only their common protocol.
"""

from __future__ import annotations

import abc
import hashlib
import json
import string
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import attr
from labgrid import Target
from labgrid.driver import Driver
from labgrid.exceptions import InvalidConfigError
from labgrid.factory import target_factory
from labgrid.step import step
from labgrid.util.helper import processwrapper

from fsjoule.errors import BoardError, ConfigError, LabError, also
from fsjoule.host import process
from fsjoule.host.cache.stages import file_sha256
from fsjoule.lab import arguments, disk_program, disks
from fsjoule.lab.cardwriter import StillWritingError, write_card
from fsjoule.lab.console import ConsoleRecorder
from fsjoule.lab.disks import BoardsDisk
from fsjoule.lab.shell import BoardShell
from fsjoule.lab.translate import lab_errors, time_limit
from fsjoule.model import MIB, ImageFacts, Reach
from fsjoule.ports import LabHealth, Shell

_MUX_TIMEOUT_S: Final = 30.0
_SETTLE_TIMEOUT_S: Final = 60.0
_MEDIUM_TIMEOUT_S: Final = 15.0
_LOOK_S: Final = 0.5
_NOT_FOUND: Final = 127  # a shell's exit code
_TIMEOUT_S: Final = 30.0
_READ_TIMEOUT_S: Final = 300.0
_BOOTABLE: Final = "LegacyBIOSBootable"


class FlashedBoard(Protocol):
    """The board, for its flasher: the strategy."""

    simulated: bool
    recorder: ConsoleRecorder
    card_device: str
    health: LabHealth

    def start(self) -> None:
        """Switch the board on, with its console open and empty. Raises LabError, PlaceLostError."""
        ...

    def boot(self, *, unless: str = "") -> BoardShell | None:
        """Switch the board on and log in; None if its console says `unless` first. Raises BoardError, LabError."""
        ...

    def off(self) -> None:
        """Switch the board off, and close its console. Raises LabError, PlaceLostError."""
        ...

    def has_power(self) -> bool:
        """Whether the outlet is on. Raises LabError if it does not tell."""
        ...

    def look(self) -> tuple[str, ...]:
        """Dead programs of the lab that the board needs. Raises PlaceLostError."""
        ...

    def error(self, what: str) -> BoardError:
        """An error about this board, with the last lines of its console."""
        ...


class FlasherProtocol(abc.ABC):
    """Writes a card image while the board does not run its own system."""

    # How much of the card it can change. A plan that asks for more is refused before the board is touched.
    reach = Reach.CARD
    # What becomes of the card on a board without an SD mux; empty with one.
    without_mux = ""
    # Whether it leaves the board running.
    starts_board = False
    target: Target | None  # labgrid's drivers have it

    @property
    def labgrid(self) -> Target:
        assert self.target is not None
        return self.target

    @abc.abstractmethod
    def flash(self, image: Path, board: FlashedBoard) -> None:
        """Bring `image` onto the card and leave the card to the board.

        The board is off before. A flasher with `starts_board` leaves it running, and the strategy switches it off.
        """

    def find_card(self, board: FlashedBoard) -> str:  # noqa: ARG002
        """Reach the card as `flash` does, write nothing, and leave the card to the board, which is off before.

        Returns what was found; empty if there is nothing to reach. A flasher with `starts_board` leaves it running.
        Raises LabError.
        """
        return ""

    def check_booted(self, image: Path, board: FlashedBoard, shell: Shell) -> None:  # noqa: B027
        """Look at the board after each boot. Raises LabError if it did not boot what `flash` left."""


class KernelKeeper(FlasherProtocol):
    """A flasher that leaves a kernel on the card, which runs again when another one has failed to boot."""

    @abc.abstractmethod
    def return_to_kept(self, board: FlashedBoard) -> str:
        """After a failed boot, with the board off: boot the kept kernel. Returns what to tell. Raises LabError."""


@attr.s(eq=False)
class DiskFlasher(Driver, FlasherProtocol):
    """A flasher for which the card is a disk of the exporter.

    Args:
        write_timeout (int): seconds that writing an image and reading it back may take
        disk_serial (str): the disk's serial number, checked before each write
        disk_link (str): the same for its name below /dev/disk, for example by-path
        disk_max_mib (int): a larger disk is no card
        verify (bool): read back what was written, and compare it
    """

    write_timeout: int = attr.ib(default=900, validator=attr.validators.instance_of(int))
    disk_serial: str = disks.serial_argument()
    disk_link: str = disks.link_argument()
    disk_max_mib: int = disks.largest_argument()
    verify: bool = arguments.flag(True)
    storage: Any = None  # labgrid binds it

    def _write(self, image: Path, wanted: BoardsDisk, diagnose: Callable[[], tuple[str, ...]]) -> None:
        write_card(self.storage, image, self.write_timeout, wanted, diagnose, verify=self.verify)
        self._settle(diagnose)

    def _examined(self, wanted: BoardsDisk) -> str:
        """The card as a disk of the exporter, in words. Raises LabError if there is none, or another disk."""
        resource, deadline = self.storage.storage, time.monotonic() + _MEDIUM_TIMEOUT_S
        while not disks.look(resource).size_bytes and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        disk = wanted.check(resource, 0)
        unnamed = wanted.unnamed(disk)
        return f"{disk.path} has {disk.size_bytes // MIB} MiB{unnamed and f'; {unnamed}'}"

    def _boards_disk(self, board: FlashedBoard, offered_bytes: int | None = None) -> BoardsDisk:
        """What the board offers itself may be anybody's disk of that size: it must be named."""
        named, largest = offered_bytes is not None, self.disk_max_mib * MIB
        return BoardsDisk(board.simulated, self.disk_serial, self.disk_link, largest, offered_bytes, named=named)

    def _settle(self, diagnose: Callable[[], tuple[str, ...]]) -> None:
        """The exporter's kernel reads the partition table after the write: to remove the card now gives I/O errors."""
        doing = "waiting until nobody reads the card"
        with time_limit(_SETTLE_TIMEOUT_S, doing, diagnose), lab_errors(doing):
            try:
                processwrapper.check_output(self.storage.storage.wrap_command(["udevadm", "settle", "--timeout=30"]))
            except subprocess.CalledProcessError as error:
                if error.returncode != _NOT_FOUND:  # without udev nothing else reads the card
                    raise


def check_unpacked(image: Path) -> None:
    """Raise LabError for a packed image: this flasher would bring the packed bytes onto the card."""
    with image.open("rb") as file:
        begin = file.read(8)
    if begin.startswith(disk_program.PACKED):
        hint = "unpack it; SdMuxFlasher and UmsFlasher unpack gzip, xz and zstd themselves"
        raise LabError(f"{image.name} is packed, or no plain image of a card", hint=hint)


def check_file_name(image: Path) -> None:
    """Raise LabError for a name that labgrid would split."""
    if any(c.isspace() or c in "'\"\\$`;&|<>()*?" for c in str(image)):
        raise LabError(f"labgrid cannot write {str(image)!r}: it passes file names to a shell unquoted")


@target_factory.reg_driver
@attr.s(eq=False)
class SdMuxFlasher(DiskFlasher):
    """Writes the card through an SD mux (USB-SD-Mux, SDWire, SDWire3), on the exporter's side of it.

    Args:
        write_timeout, disk_serial, disk_link, disk_max_mib, verify: see DiskFlasher; the disk is the mux's card reader
    """

    bindings = {  # noqa: RUF012 - labgrid's way
        "mux": {"USBSDMuxDriver", "USBSDWireDriver", "USBSDWire3Driver"},
        "storage": "USBStorageDriver",
    }

    @step(args=["image"])
    def flash(self, image: Path, board: FlashedBoard) -> None:
        """See FlasherProtocol. The board must be off: switching the mux under power pulls the card out."""
        check_file_name(image)
        with self._card_here(board):
            self._write(image, self._boards_disk(board), board.health.faults)

    @step(result=True)
    def find_card(self, board: FlashedBoard) -> str:
        """See FlasherProtocol."""
        with self._card_here(board):
            found = self._examined(self._boards_disk(board))
        return f"the mux went to the exporter and back; there {found}"

    @contextmanager
    def _card_here(self, board: FlashedBoard) -> Generator[None]:
        """The card is the exporter's in the body, and the board's again after it."""
        with lab_errors("finding the SD mux"):
            self.labgrid.activate(self)
        self._switch("host", board)
        try:
            yield
        except StillWritingError:
            # The board must not get a card that is still being written.
            raise
        except BaseException as error:
            with also(error, "giving the card back to the board"):
                self._switch("dut", board)
            raise
        self._switch("dut", board)

    def _switch(self, mode: str, board: FlashedBoard) -> None:
        doing = f"switching the SD mux to {mode}"
        with time_limit(_MUX_TIMEOUT_S, doing, board.health.faults), lab_errors(doing):
            disks.check_words(self.mux.mux)
            self.mux.set_mode(mode)


class DiskImage(Protocol):
    """An image for the card (fsjoule.images makes it)."""

    @property
    def path(self) -> Path: ...

    @property
    def facts(self) -> ImageFacts: ...


@dataclass(frozen=True)
class NamedCard:
    """An image of the environment file; only its digest is known."""

    path: Path
    facts: ImageFacts


def check_boots(card: DiskImage, board: str) -> None:
    """Raise ConfigError if `card`, made by fsjoule, has no boot loader; `board` starts the one on its card."""
    facts = card.facts
    if facts.recipe and not facts.has_boot_loader:
        raise ConfigError(
            f"the card image of the recipe {facts.recipe!r} has no boot loader, and {board} starts the one on its card",
            hint=f"add [boot_loader] to the recipe {facts.recipe} (docs/images.md), or set boot_loader: false",
        )


def named_card(name: str, environment: Any) -> NamedCard:  # noqa: ANN401 - a labgrid Environment, which has no types
    """The named image from the section `images` of a labgrid environment. Raises InvalidConfigError."""
    wrong: Any = InvalidConfigError  # attrs without types
    try:
        path = Path(environment.config.get_image_path(name))
    except KeyError as error:
        raise wrong(f"the environment file has no image {name!r}; add it: images: {{{name}: PATH}}") from error
    try:
        return _card(path, name)
    except OSError as error:
        raise wrong(f"the image {name!r}, {path}, cannot be read: {error.strerror}") from error


def named_file(path: Path) -> NamedCard:
    """An image file. Raises ConfigError if it cannot be read."""
    try:
        return _card(path, path.name)
    except OSError as error:
        raise ConfigError(f"the image cannot be read: {error.strerror}", file=path) from error


def _card(path: Path, name: str) -> NamedCard:
    return NamedCard(path, ImageFacts("", name, "", file_sha256(path), {}, {}))


@target_factory.reg_driver
@attr.s(eq=False)
class KeptCard(Driver, FlasherProtocol):
    """Leaves the card as it is, and looks whether it is the run's: one kernel, one root filesystem.

    Filesystems on the scratch partition are made by the board itself, as always.
    """

    reach = Reach.SCRATCH
    without_mux = "the card stays in the board as it is"
    _unseen = False

    def flash(self, image: Path, board: FlashedBoard) -> None:  # noqa: ARG002
        """See FlasherProtocol. There is nothing to do before the board has booted."""
        self._unseen = True

    def check_booted(self, image: Path, board: FlashedBoard, shell: Shell) -> None:
        """Compare the boot partition: kernel, device tree, command line. The root changes with every boot."""
        if not self._unseen:
            return
        boot = boot_partition(image)
        device = partition_device(board.card_device, boot.number)
        wanted = hashlib.sha256()
        with image.open("rb") as file:
            file.seek(boot.start * boot.sector_bytes)
            wanted.update(file.read(boot.size * boot.sector_bytes))
        said = shell.run(["busybox", "sha256sum", device], timeout_s=_READ_TIMEOUT_S).stdout
        if said.split()[:1] != [wanted.hexdigest()]:
            block_map = image.with_name(f"{image.name}.bmap")
            raise LabError(
                f"the card in the board is not the run's: {device} differs from the boot partition of {image}",
                hint=f"write the card by hand: bmaptool copy --bmap {block_map} {image} /dev/CARD",
            )
        self._unseen = False


def partition_device(card_device: str, number: int) -> str:
    """The board's path of a partition of its card."""
    return f"/dev/{card_device}{'p' if card_device[-1].isdigit() else ''}{number}"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a card image: its number, from 1, and its place in sectors."""

    number: int
    start: int
    size: int
    bootable: bool
    sector_bytes: int = 512


def partitions(image: Path) -> tuple[Partition, ...]:
    """The partitions of a card image. Raises LabError without a partition table."""
    table = json.loads(process.run(["sfdisk", "--json", image], timeout_s=_TIMEOUT_S).stdout)["partitiontable"]
    return tuple(
        Partition(
            int(each["node"][len(each["node"].rstrip(string.digits)) :]),
            each["start"],
            each["size"],
            each.get("bootable") or _BOOTABLE in each.get("attrs", ""),
        )
        for each in table["partitions"]
    )


def boot_partition(image: Path) -> Partition:
    """An image's boot partition. Raises LabError without one."""
    for each in partitions(image):
        if each.bootable:
            return each
    raise LabError(f"the card image {image} has no boot partition")
