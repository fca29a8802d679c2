"""The benchmark of "BTRFS vs Ext4: Filesystems Impact on Energy Consumption of eMMC-Based Embedded Computers".

Jacomelli and Bruschi give pattern, block size, size (500 MB, which fio reads as 500 MiB) and one thread. They do not
give ioengine, depth, direct and fsync: we take fio's defaults (psync, 1, buffered), with `end_fsync` so that buffered
writes reach the card. They ran it once, on two filesystems; the second suite does the work that they left for later.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fsjoule.model import KIB, MIB, PURE_PATTERNS, FioWorkload, Workload
from fsjoule.suites.published.cells import FigureCell, PublishedFigure, Quantity
from fsjoule.suites.published.doubts import energies, far_deviations
from fsjoule.suites.published.publication import Publication, rows_of
from fsjoule.suites.published.statements import Above, Statement, StatementSource, above, all_of, below, falling, rising
from fsjoule.suites.suite import Suite

_SOURCE: Final = (
    "Jacomelli, Bruschi: BTRFS vs Ext4: Filesystems Impact on Energy Consumption of eMMC-Based Embedded Computers, 2025"
)

_WORKLOADS: Final[tuple[Workload, ...]] = tuple(
    FioWorkload(pattern, block_kib * KIB, 500 * MIB) for block_kib in (16, 32, 64) for pattern in PURE_PATTERNS
)

SUITE: Final = Suite(
    "energy-emmc-2025", "four I/O patterns at 16, 32 and 64 KiB, 500 MiB each", _WORKLOADS, source=_SOURCE
)
EXTENDED: Final = Suite(
    "energy-emmc-extended",
    "the same on all filesystems and btrfs variants, five boots each",
    _WORKLOADS,
    source=_SOURCE,
    filesystems=(
        *("ext4", "btrfs", "f2fs", "xfs", "nilfs2", "udf", "vfat"),
        *("btrfs:zstd", "btrfs:lzo", "btrfs:nodatacow", "btrfs:single", "btrfs:ssd", "ext4:nojournal"),
    ),
    repeat=5,
    published_repeat=5,
)


BLOCK_SIZES_KIB: Final = (16, 32, 64)
PATTERNS: Final = ("read", "write", "randread", "randwrite")
# In the publication's order.
TABLES: Final = tuple((filesystem, kib) for filesystem in ("ext4", "btrfs") for kib in BLOCK_SIZES_KIB)

_COLUMNS: Final = {
    "throughput_mib_per_s": Quantity.THROUGHPUT,
    "power_mean_w": Quantity.POWER,
    "power_sd_w": Quantity.POWER_SD,
    "energy_mj_per_mib": Quantity.ENERGY,
}


def _cell(filesystem: str, pattern: str, kib: int | str, quantity: Quantity) -> FigureCell:
    return FigureCell("", filesystem, f"{pattern}-{kib}k", quantity)


_FIGURES: Final = tuple(
    PublishedFigure(
        _cell(row["filesystem"], row["operation"], row["block_size_kib"], quantity), float(row[column]), row[column]
    )
    for row in rows_of(
        Path(__file__).with_name("energy_emmc_2025.csv"), "throughput_mib_per_s", "power_mean_w", "energy_mj_per_mib"
    )
    for column, quantity in _COLUMNS.items()
)


def _energies(filesystem: str, pattern: str) -> list[FigureCell]:
    return [_cell(filesystem, pattern, kib, Quantity.ENERGY) for kib in BLOCK_SIZES_KIB]


def _everywhere(greater: str, less: str, quantity: Quantity) -> Above:
    return all_of(
        *(
            above(_cell(greater, pattern, kib, quantity), _cell(less, pattern, kib, quantity))
            for kib in BLOCK_SIZES_KIB
            for pattern in PATTERNS
        )
    )


def _of_reading(quantity: Quantity, *, most: bool) -> Above:
    """Sequential reading against the other patterns, on each filesystem at each block size."""
    order = above if most else below
    return all_of(
        *(order(*(_cell(filesystem, pattern, kib, quantity) for pattern in PATTERNS)) for filesystem, kib in TABLES)
    )


_STATEMENTS: Final = (
    *(
        Statement(
            f"ext4 reads faster than btrfs at {kib} KiB",
            StatementSource.TABLE,
            above(_cell("ext4", "read", kib, Quantity.THROUGHPUT), _cell("btrfs", "read", kib, Quantity.THROUGHPUT)),
        )
        for kib in BLOCK_SIZES_KIB
    ),
    Statement(
        "ext4 is faster than btrfs in every pattern at every block size",
        StatementSource.TABLE,
        _everywhere("ext4", "btrfs", Quantity.THROUGHPUT),
    ),
    Statement(
        "btrfs draws more power than ext4 in every pattern at every block size",
        StatementSource.TABLE,
        _everywhere("btrfs", "ext4", Quantity.POWER),
    ),
    Statement(
        "btrfs takes more energy per MiB than ext4 in every pattern at every block size",
        StatementSource.TABLE,
        _everywhere("btrfs", "ext4", Quantity.ENERGY),
    ),
    *(
        Statement(
            f"Larger blocks improve {what} reads of {filesystem}",
            StatementSource.SAID,
            rising([_cell(filesystem, pattern, kib, Quantity.THROUGHPUT) for kib in BLOCK_SIZES_KIB]),
        )
        for filesystem in ("ext4", "btrfs")
        for pattern, what in (("read", "sequential"), ("randread", "random"))
    ),
    *(
        Statement(
            f"{filesystem}'s energy per MiB falls with the block size for random reads",
            StatementSource.TABLE,
            falling(_energies(filesystem, "randread")),
        )
        for filesystem in ("ext4", "btrfs")
    ),
    Statement(
        "ext4's energy per MiB falls with the block size for random writes",
        StatementSource.TABLE,
        falling(_energies("ext4", "randwrite")),
    ),
    Statement(
        "Sequential reads draw the most power of the four patterns",
        StatementSource.TABLE,
        _of_reading(Quantity.POWER, most=True),
    ),
    Statement(
        "Sequential reads take the least energy per MiB of the four patterns",
        StatementSource.TABLE,
        _of_reading(Quantity.ENERGY, most=False),
    ),
)

PUBLICATION: Final = Publication(
    "energy-emmc-2025",
    _SOURCE,
    remarks=(
        "One run each, 500 MiB, on a Colibri i.MX6ULL with eMMC, kernel 6.1.42; energy is gross.",
        "It does not state ioengine, queue depth, direct, fsync, the place of its marks, and idle power.",
        "Its deviations are over samples of power: one per millisecond, a moving average of ten.",
        "Its second equation lacks the 1/N of a mean.",
    ),
    figures=_FIGURES,
    statements=_STATEMENTS,
    doubts=(*energies(_FIGURES), *far_deviations(_FIGURES)),
    lends_to=("quick",),
    sections="fsjoule.plugins.publications.energy_emmc_sections:sections",
)
