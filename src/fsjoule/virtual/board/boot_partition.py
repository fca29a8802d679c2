"""What starts on the virtual board, from the card's first partition.

`load` works like U-Boot's `sysboot` on a real board: it reads /extlinux/extlinux.conf. `load_by_firmware` works like
the firmware of a Raspberry Pi's GPU, which QEMU does not emulate: it reads /config.txt.

A board in guest time gets two additions: a mailbox, and the seed of its random numbers. The emulated boot loader adds
them to the boot files (`for_guest_time`). A boot loader of the board's own reads command line and device tree from the
card, and its machine may have one slot only. So the mailbox is a partition of this card: the last MiB before the first
partition, whose reads the probe answers (`prepare_card`).
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fsjoule.errors import HostError, LabError
from fsjoule.host import process
from fsjoule.virtual.board.config import Boot
from fsjoule.virtual.board.mailbox import SIZE_BYTES

SECTOR_BYTES: Final = 512
EXTLINUX: Final = "/extlinux/extlinux.conf"
CONFIG_TXT: Final = "/config.txt"
# Without these files on the card a Raspberry Pi 3 does nothing.
_GPU_FILES: Final = ("/bootcode.bin", "/start.elf")
_SIGNATURE: Final = b"\x55\xaa"
_SIGNATURE_OFFSET: Final = 510
# The first of four entries: type at 4, first sector at 8, sectors at 12.
_FIRST_ENTRY_OFFSET: Final = 446
_ENTRY: Final = struct.Struct("<4xB3xII")
_TIMEOUT_S: Final = 30.0
# The card slot that the emulated board leaves empty: index 0 of QEMU's SD cards, which Linux calls mmcblk0.
MAILBOX_INDEX: Final = 0
MAILBOX_DEVICE: Final = "/dev/mmcblk0"
_ALIAS: Final = "mmc0"
# With these Linux would see an empty slot and wait for its supply.
_REMOVED: Final = ("cd-gpios", "vmmc-supply")
_SEED_DIGITS: Final = 64
_PARTITION_NUMBER: Final = 4
_MAILBOX_ENTRY_OFFSET: Final = _FIRST_ENTRY_OFFSET + _ENTRY.size * (_PARTITION_NUMBER - 1)
# Data without a filesystem.
_DATA_TYPE: Final = 0xDA
_APPEND: Final = re.compile(r"^(\s*append\s.*?\broot=(\S*?)\d+(?:\s.*)?)$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class BootEntry:
    """An entry of extlinux.conf: paths on the boot partition, and the kernel's command line."""

    kernel: str
    initrd: str
    device_tree: str | None
    command_line: str


@dataclass(frozen=True, slots=True)
class BootFiles:
    """Files for QEMU. A boot loader in the kernel's place has no initrd, and reads its command line itself."""

    kernel: Path
    initrd: Path | None
    device_tree: Path | None
    command_line: str


def boot_files(boot: Boot, image: Path, into: Path) -> BootFiles | None:
    """Files for QEMU, copied into the folder `into`; None if the boot loader on the card starts. Raises LabError."""
    match boot:
        case Boot.KERNEL:
            return load(image, into)
        case Boot.FIRMWARE:
            return load_by_firmware(image, into)
        case Boot.LOADER:
            return None


def load(image: Path, into: Path) -> BootFiles:
    """Copy the card's boot files into the folder `into`. Raises LabError if the card is not bootable."""
    partition = first_partition(image)
    configuration = into / "extlinux.conf"
    copy_out(partition, EXTLINUX, configuration)
    entry = parse_extlinux(configuration.read_text(errors="replace"))
    tree = None if entry.device_tree is None else into / "board.dtb"
    kernel, initrd = into / "kernel", into / "initrd"
    files = BootFiles(kernel, initrd, tree, entry.command_line)
    copy_out(partition, entry.kernel, kernel)
    copy_out(partition, entry.initrd, initrd)
    if entry.device_tree is not None and tree is not None:
        copy_out(partition, entry.device_tree, tree)
    return files


def load_by_firmware(image: Path, into: Path) -> BootFiles:
    """Copy what config.txt names into the folder `into`. Raises LabError if the firmware would start nothing."""
    partition = first_partition(image)
    for name in _GPU_FILES:
        copy_out(partition, name, into / "gpu")
    configuration = into / "config.txt"
    copy_out(partition, CONFIG_TXT, configuration)
    kernel, tree = parse_config_txt(configuration.read_text(errors="replace"))
    files = BootFiles(into / "kernel", None, into / "board.dtb", "")
    copy_out(partition, f"/{kernel}", files.kernel)
    copy_out(partition, f"/{tree}", into / "board.dtb")
    return files


def first_partition(image: Path) -> str:
    """The first partition of a card's image, in the words of mtools. Raises LabError if there is none."""
    with image.open("rb") as file:
        return f"{image}@@{first_partition_offset(file.read(SECTOR_BYTES))}"


def first_partition_offset(first_sector: bytes) -> int:
    """Offset of an MBR's first partition, in bytes. Raises LabError if there is none."""
    if first_sector[_SIGNATURE_OFFSET:] != _SIGNATURE:
        raise LabError("the card has no partition table", hint="flash a card image onto it")
    kind, start, sectors = _ENTRY.unpack_from(first_sector, _FIRST_ENTRY_OFFSET)
    if kind == 0 or start == 0 or sectors == 0:
        raise LabError("the card has no first partition", hint="flash a card image onto it")
    return start * SECTOR_BYTES


def parse_extlinux(text: str) -> BootEntry:
    """The first entry of an extlinux.conf. Raises LabError if it lacks LINUX or INITRD."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.strip().partition(" ")
        found.setdefault(key.upper(), value.strip())
    missing = [key for key in ("LINUX", "INITRD") if not found.get(key)]
    if missing:
        raise LabError(f"extlinux.conf on the card has no {' and no '.join(missing)}")
    return BootEntry(found["LINUX"], found["INITRD"], found.get("FDT") or None, found.get("APPEND", ""))


def parse_config_txt(text: str) -> tuple[str, str]:
    """`kernel` and `device_tree` of a Raspberry Pi's config.txt; the last line wins.

    Raises LabError if one is missing, and for lines that are for some boards only, such as `[pi4]`.
    """
    found: dict[str, str] = {}
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line != "[all]":
            raise LabError(f"config.txt on the card has {line}: the emulated firmware knows lines for all boards only")
        key, _, value = line.partition("=")
        found[key] = value
    missing = [key for key in ("kernel", "device_tree") if not found.get(key)]
    if missing:
        raise LabError(f"config.txt on the card has no {' and no '.join(missing)}")
    return found["kernel"], found["device_tree"]


def copy_out(partition: str, name: str, target: Path) -> None:
    """Copy a file of a boot partition (`first_partition`). Raises LabError."""
    _copy(f"read {name} from", partition, f"::{name}", target)


def copy_in(partition: str, source: Path, name: str) -> None:
    """Replace a file of a boot partition, whose folders keep no trace of the present time. Raises LabError."""
    _copy(f"write {name} to", partition, source, f"::{name}")


def _copy(task: str, partition: str, source: str | Path, target: str | Path) -> None:
    argv = ["mcopy", "-n", "-o", "-i", partition, source, target]
    try:
        process.run(argv, timeout_s=_TIMEOUT_S, env={"SOURCE_DATE_EPOCH": "0", "TZ": "UTC"})
    except HostError as error:
        raise LabError(f"cannot {task} the card's boot partition: {error.what}") from error


def for_guest_time(files: BootFiles) -> BootFiles:
    """The same files, with a card in the other slot of the device tree and on the command line for the login.

    The tree gets space for the seed of the kernel's random numbers, which QEMU fills from its `-seed`. Raises LabError
    if the device tree does not belong to a board with two slots.
    """
    tree = files.device_tree
    if tree is None:
        raise LabError("the card boots without a device tree, which a board in guest time needs for its mailbox")
    node = _device_tree_tool("fdtget", tree, "/aliases", _ALIAS).strip()
    present = _device_tree_tool("fdtget", "-p", tree, node).split()
    for name in _REMOVED:
        if name in present:
            _device_tree_tool("fdtput", "-d", tree, node, name)
    _device_tree_tool("fdtput", tree, node, "non-removable")
    set_seed(tree, "0" * _SEED_DIGITS)
    return replace(files, command_line=f"{files.command_line} fsjoule.mailbox={MAILBOX_DEVICE}")


def set_seed(tree: Path, digits: str) -> None:
    """Put the seed of the kernel's random numbers into a device tree, as 64 hexadecimal digits. Raises LabError."""
    words = [digits[at : at + 8].lstrip("0") or "0" for at in range(0, _SEED_DIGITS, 8)]
    _device_tree_tool("fdtput", "-t", "x", tree, "/chosen", "rng-seed", *words)


def _device_tree_tool(*argv: str | Path) -> str:
    return process.run(argv, timeout_s=_TIMEOUT_S).stdout.decode()


def prepare_card(card: Path, into: Path, seed: int) -> int:
    """Add mailbox and seed to the card of this power-on, by files in the folder `into`.

    Returns the mailbox's place on the card in bytes. Raises LabError if the card has no room for it, or does not boot
    by extlinux.conf with a device tree.
    """
    place = _add_partition(card)
    partition = first_partition(card)
    configuration = into / "extlinux.conf"
    copy_out(partition, EXTLINUX, configuration)
    text = configuration.read_text(errors="replace")
    tree = parse_extlinux(text).device_tree
    changed, entries = _APPEND.subn(rf"\1 fsjoule.mailbox=\g<2>{_PARTITION_NUMBER}", text)
    if tree is None or not entries:
        raise LabError("the card's extlinux.conf has no device tree or no root=, which a board in guest time needs")
    configuration.write_text(changed)
    copy_in(partition, configuration, EXTLINUX)
    copy = into / "board.dtb"
    copy_out(partition, tree, copy)
    set_seed(copy, hashlib.sha256(f"{seed}".encode()).hexdigest())
    copy_in(partition, copy, tree)
    return place


def _add_partition(card: Path) -> int:
    with card.open("r+b") as file:
        place = first_partition_offset(file.read(SECTOR_BYTES)) - SIZE_BYTES
        file.seek(_MAILBOX_ENTRY_OFFSET)
        taken = any(file.read(_ENTRY.size))
        file.seek(max(place, 0))
        if taken or place < SECTOR_BYTES or any(file.read(SIZE_BYTES)):
            hint = "leave the MiB before the card's first partition and the table's fourth entry free"
            raise LabError("the card has no room for the mailbox of a board in guest time", hint=hint)
        file.seek(_MAILBOX_ENTRY_OFFSET)
        file.write(_ENTRY.pack(_DATA_TYPE, place // SECTOR_BYTES, SIZE_BYTES // SECTOR_BYTES))
    return place
