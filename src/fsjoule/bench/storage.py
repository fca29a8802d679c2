"""A board's further storage devices: brought up at first use, and identified before anything is erased."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fsjoule.bench.scratch import checked
from fsjoule.errors import BoardError
from fsjoule.model import CARD, MIB, Storage
from fsjoule.ports import Shell

# Loads the board's driver modules until the device appears; every image has it.
_ATTACH: Final = "/usr/lib/fsjoule/attach"
_ATTACH_TIMEOUT_S: Final = 60.0
_SECTOR_BYTES: Final = 512
_TOLERANCE: Final = 0.1  # devices are not always as large as sold


def attach(shell: Shell, name: str, storage: Storage) -> str:
    """Bring a storage device up; returns its own name for people and for the series: `QEMU NVMe Ctrl`.

    Raises BoardError if it does not appear, or if its size differs from the environment file's, because all of it is
    going to be overwritten.
    """
    attached = shell.run((_ATTACH, storage.device), timeout_s=_ATTACH_TIMEOUT_S)
    if attached.exit_code != 0:
        raise BoardError(
            f"the board has no {name}: {attached.stdout.strip()[-300:]}",
            hint="does the environment file name the board's block device, and does the kernel have its driver?",
            transient=False,
        )
    block = f"/sys/class/block/{storage.device}"
    size_bytes = int(checked(shell, "cat", f"{block}/size").stdout) * _SECTOR_BYTES
    if abs(size_bytes - storage.size_bytes) > _TOLERANCE * storage.size_bytes:
        raise BoardError(
            f"{name} is {storage.device} with {size_bytes / MIB:.0f} MiB, and the environment file says "
            f"{storage.size_bytes / MIB:.0f} MiB: it was not touched",
            hint="correct the device or the size in the environment file",
            transient=False,
        )
    for file in ("device/model", "device/name"):
        told = shell.run(("cat", f"{block}/{file}"))
        if told.exit_code == 0 and told.stdout.strip():
            return f"{name} {told.stdout.strip()}"
    return name


def takes_discards(shell: Shell, storage: Storage) -> bool:
    """Whether an attached device can be purged; most sticks cannot. True if the kernel does not say."""
    told = shell.run(("cat", f"/sys/class/block/{storage.device}/queue/discard_max_bytes"))
    return told.exit_code != 0 or told.stdout.strip() != "0"


def name_of(told: str, further: Iterable[str]) -> str:
    """The board's name for a series' storage, as `told` by `attach`; the card's name for any other."""
    return next((name for name in further if told == name or told.startswith(f"{name} ")), CARD)


def scratch_node(storage: Storage) -> str:
    """A node that no program takes for a whole disk's: zpool would partition it, and wait for udev."""
    return f"/dev/fsjoule/{storage.device}"
