"""Additions by the emulated boot loader of a board in guest time: the mailbox, and random numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.virtual.board.boot_partition import BootFiles

# The card slot that the emulated board leaves empty: index 0 of QEMU's SD cards, which Linux calls mmcblk0.
MAILBOX_INDEX: Final = 0
MAILBOX_DEVICE: Final = "/dev/mmcblk0"
_ALIAS: Final = "mmc0"
# With these Linux would see an empty slot and wait for its supply.
_REMOVED: Final = ("cd-gpios", "vmmc-supply")
_SEED_DIGITS: Final = 64
_TIMEOUT_S: Final = 30.0


def for_guest_time(files: BootFiles) -> BootFiles:
    """The same files, with a card in the other slot of the device tree and on the command line for the login.

    The tree gets space for the seed of the kernel's random numbers, which QEMU fills from its `-seed`. Raises LabError
    if the device tree does not belong to a board with two slots.
    """
    tree = files.device_tree
    if tree is None:
        raise LabError("the card boots without a device tree, which a board in guest time needs for its mailbox")
    node = _run("fdtget", tree, "/aliases", _ALIAS).strip()
    present = _run("fdtget", "-p", tree, node).split()
    for name in _REMOVED:
        if name in present:
            _run("fdtput", "-d", tree, node, name)
    _run("fdtput", tree, node, "non-removable")
    set_seed(tree, "0" * _SEED_DIGITS)
    return replace(files, command_line=f"{files.command_line} fsjoule.mailbox={MAILBOX_DEVICE}")


def set_seed(tree: Path, digits: str) -> None:
    """Put the seed of the kernel's random numbers into a device tree, as 64 hexadecimal digits. Raises LabError."""
    words = [digits[at : at + 8].lstrip("0") or "0" for at in range(0, _SEED_DIGITS, 8)]
    _run("fdtput", "-t", "x", tree, "/chosen", "rng-seed", *words)


def _run(*argv: str | Path) -> str:
    return process.run(argv, timeout_s=_TIMEOUT_S).stdout.decode()
