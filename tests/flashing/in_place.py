"""Kernels and roots that are brought in place and fail: each time the board is back on the kept ones without hands."""

from __future__ import annotations

import re
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from in_place_board import (
    InPlaceBoard,
    card,
    card_with_two_roots,
    changed,
    in_place_board,
    with_damaged_root,
    with_initramfs,
)

from fsjoule.errors import LabError

_BACK: Final = r"^the kernel 6\.1\.\S+ in the second slot failed, and the kept 6\.1\.\S+ runs again: virtual-orangepi "


def _panicking(tree: Path) -> None:
    init = tree / "init"
    first, _, rest = init.read_text().partition("mount -t sysfs sys /sys\n")
    init.write_text(f"{first}mount -t sysfs sys /sys\necho c >/proc/sysrq-trigger\n{rest}")


def _without_driver(tree: Path) -> None:
    for module in tree.glob("modules/*ext4.ko"):
        module.unlink()


def _hanging(_kernel: bytes) -> bytes:
    """A zImage for U-Boot that stays in its first instruction: at 36 the magic number, the start and the end."""
    return struct.pack("<9I3I", *[0xEAFFFFFE] * 9, 0x016F2818, 0, 4096).ljust(4096, b"\0")


@dataclass(frozen=True, slots=True)
class _Failing:
    """A kernel that fails: the file of the boot partition that makes it so, and what the error says."""

    name: str
    file: str
    change: Callable[[bytes], bytes]
    says: str


_FAILING: Final = (
    _Failing(
        "panics",
        "initrd.img",
        lambda archive: with_initramfs(archive, _panicking),
        "did not boot: Kernel panic - not syncing: sysrq triggered crash",
    ),
    _Failing(
        "has no driver for its root",
        "initrd.img",
        lambda archive: with_initramfs(archive, _without_driver),
        r"did not boot: (.*\()?cannot mount /dev/mmcblk0p2 as ext4",
    ),
    _Failing(
        "hangs", "zImage", _hanging, r"did not boot: no login within \d+ s of power-on: the kernel has not said a word"
    ),
)


# Of a root whose flash was cut off. A whole one takes half an hour on a busy computer.
_LACKING_MIB: Final = 8

_DAMAGED_ROOT: Final = _Failing(
    "has a root that cannot be mounted",
    "",
    bytes,
    r"did not boot: (.*\()?cannot mount /dev/mmcblk0p4 as btrfs",
)


def try_kernels() -> list[str]:
    """Try kernels that fail one after the other, and one that boots. Returns what went wrong."""
    kept, other = card("6.1"), card("6.12")
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder, in_place_board(kept, Path(folder)) as board:
        for failing in _FAILING:
            image = changed(kept, Path(folder) / "card.img", failing.file, failing.change)
            wrong += _fails(board, image, failing)
        wrong += _boots(board, other, "another kernel")
        wrong += _boots(board, other, "the same once more")
    return wrong + _try_roots()


def _try_roots() -> list[str]:
    """Try roots on the second root partition: a whole one, again, one that cannot be mounted, other filesystems."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ext4, btrfs = (card_with_two_roots(folder, "6.1", root) for root in ("ext4", "btrfs"))
        with in_place_board(ext4, folder) as board:
            wrong = _boots_root(board, btrfs, "btrfs", "a btrfs root")
            wrong += _boots_root(board, btrfs, "btrfs", "the same once more")
            wrong += _fails(board, with_damaged_root(btrfs, folder / "damaged.img"), _DAMAGED_ROOT)
            for kind in ("ext4", "f2fs", "xfs"):
                image = card_with_two_roots(folder, "6.1", kind)
                board.fill_second_root(image, _LACKING_MIB)
                wrong += _boots_root(board, image, kind, f"{kind}, of which {_LACKING_MIB} MiB were lacking")
    return wrong


def _boots_root(board: InPlaceBoard, image: Path, kind: str, name: str) -> list[str]:
    begin = time.monotonic()
    try:
        board.boot(image)
        root = board.run("grep ' / ' /proc/mounts | cut -d ' ' -f 1,3")
        modules = board.run("modprobe f2fs && echo loaded")
        board.off()
    except LabError as error:
        return [f"{name}: {error}"]
    sys.stdout.write(f"{name}: {time.monotonic() - begin:.0f} s, / is {root}\n")
    sys.stdout.flush()
    right = root == f"/dev/mmcblk0p4 {kind}" and modules == "loaded"
    return [] if right else [f"{name}: / is {root}, modules {modules!r}"]


def _boots(board: InPlaceBoard, image: Path, name: str) -> list[str]:
    begin = time.monotonic()
    try:
        release = board.boot(image)
        modules = board.run("modprobe btrfs && echo loaded")
        board.off()
    except LabError as error:
        return [f"{name}: {error}"]
    sys.stdout.write(f"{name}: {time.monotonic() - begin:.0f} s, {release}\n")
    sys.stdout.flush()
    right = release.startswith("6.12.") and modules == "loaded"
    return [] if right else [f"{name}: {release} runs, modules {modules!r}"]


def _fails(board: InPlaceBoard, image: Path, failing: _Failing) -> list[str]:
    begin = time.monotonic()
    try:
        said = f"it booted {board.boot(image)}"
    except LabError as error:
        said = str(error)
    sys.stdout.write(f"a kernel that {failing.name}: {time.monotonic() - begin:.0f} s: {said.splitlines()[0]}\n")
    sys.stdout.flush()
    right = re.search(_BACK + failing.says, said) and board.power == "off"
    return [] if right else [f"a kernel that {failing.name}: another message: {said}"]
