"""What the bench does differently on each kind of storage: one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fsjoule.model.medium import Medium, medium_of

_TRACING: Final = "/sys/kernel/tracing"
# Of the kernel's raw NAND core: one call loads, programs or erases one page or block. All are exported functions.
# Source: drivers/mtd/nand/raw/nand_base.c.
PAGE_READS: Final = ("nand_read_page_op",)
PAGE_PROGRAMS: Final = ("nand_prog_page_op", "nand_prog_page_begin_op")
BLOCK_ERASES: Final = ("nand_erase_op",)
# The kernel counts the hits of a probe even if it traces nothing. A kernel without probes counts nothing.
_COUNT_OPERATIONS: Final = f"""\
cd {_TRACING} || exit
[ -e kprobe_events ] || mount -t tracefs tracefs {_TRACING} && cd {_TRACING} || exit
echo 0 > tracing_on
for each in {" ".join((*PAGE_READS, *PAGE_PROGRAMS, *BLOCK_ERASES))}; do
    [ -e events/fsjoule/$each ] || echo "p:fsjoule/$each $each" >> kprobe_events
done
echo 1 > events/fsjoule/enable
"""


_LET_GO: Final = "[ ! -e /dev/ubiblock9_0 ] || ubiblock --remove /dev/ubi9_0; [ ! -e /dev/ubi9 ] || ubidetach -d 9"
_STATE: Final = ("size", "erasesize", "writesize", "corrected_bits", "ecc_failures", "bad_blocks")


# What UBI keeps back for blocks that go bad, and vendors of NAND promise. Source: CONFIG_MTD_UBI_BEB_LIMIT.
RESERVE_OF_1024: Final = 20


@dataclass(frozen=True, slots=True)
class MediumRow:
    """What a kind of storage needs. `{device}` is the kernel's name of the device: `sda`, `mtd0`.

    `node` is what filesystems are made on, `size` a file with the size in units of `unit_bytes`; `titles` are files
    that may have the device's own name. `discards` is a file with 0 if the device takes no discards, empty if none of
    its kind does. `prepare` is a script for the first use; `bad_blocks` are files with their number and the bytes of a
    block. `release` is a program that lets go of the unmounted device, which a mount that failed may have attached.
    `counters` are the files that `onboard.marks.usage` reads, behind those of the processor.
    """

    node: str
    size: str
    titles: tuple[str, ...]
    counters: tuple[str, ...]
    unit_bytes: int = 1
    discards: str = ""
    prepare: str = ""
    bad_blocks: tuple[str, str] | None = None
    release: tuple[str, ...] = ()


MEDIA: Final[Mapping[Medium, MediumRow]] = {
    Medium.BLOCK: MediumRow(
        # No program takes it for a whole disk's: zpool would partition that, and wait for udev.
        node="/dev/fsjoule/{device}",
        size="/sys/class/block/{device}/size",
        unit_bytes=512,
        titles=("/sys/class/block/{device}/device/model", "/sys/class/block/{device}/device/name"),
        discards="/sys/class/block/{device}/queue/discard_max_bytes",
        counters=("/sys/class/block/{device}/stat",),
    ),
    Medium.MTD: MediumRow(
        node="/dev/{device}",
        size="/sys/class/mtd/{device}/size",
        titles=("/sys/class/mtd/{device}/name",),
        prepare=_COUNT_OPERATIONS,
        # UBI's thread would go on to move blocks under JFFS2.
        release=("sh", "-c", _LET_GO),
        bad_blocks=("/sys/class/mtd/{device}/bad_blocks", "/sys/class/mtd/{device}/erasesize"),
        counters=(
            f"{_TRACING}/kprobe_profile",
            *(f"/sys/class/mtd/{{device}}/{each}" for each in _STATE),
            "/sys/class/ubi/ubi9/max_ec",
        ),
    ),
}


def names_in_mounts(node: str) -> tuple[str, ...]:
    """What /proc/mounts may call this device's filesystem: raw flash has several names."""
    device = node.removeprefix("/dev/")
    if medium_of(device) is Medium.BLOCK:
        return (node,)
    return (node, device, node.replace("/mtd", "/mtdblock"))


def counter_files(device: str, medium: Medium) -> tuple[str, ...]:
    return tuple(each.format(device=device) for each in MEDIA[medium].counters)
