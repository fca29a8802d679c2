"""The benchmark of "File System Benchmarks: UDF, Btrfs, NILFS, ext4" (Berger, 2016).

Each test mounts before and unmounts after; operation and unmount are timed separately. Our own choices: the files are a
halving series, twice (20 files, the largest a quarter of all); fragmenting fills directories with sixteen files of one
size and removes the oldest directory for every two new ones.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from fsjoule.model import MIB, TimedKind, TimedWorkload
from fsjoule.suites.published.cells import FigureCell, PublishedFigure, Quantity
from fsjoule.suites.published.doubts import impossible_deviations
from fsjoule.suites.published.publication import Publication, rows_of
from fsjoule.suites.published.statements import Statement, StatementSource, above, below
from fsjoule.suites.suite import Suite

_SOURCE: Final = "Berger: File System Benchmarks: UDF, Btrfs, NILFS, ext4, 2016"
_FULL: Final = 0.75

_FILESYSTEMS: Final = ("udf", "btrfs", "nilfs2", "ext4")

SUITE: Final = Suite(
    "home-usage-2016",
    "writing, hashing, fragmenting and removing files, and the unmount after each",
    (
        TimedWorkload(TimedKind.WRITE_FILES, 1024 * MIB),
        TimedWorkload(TimedKind.HASH_FILES, 1024 * MIB),
        TimedWorkload(TimedKind.FRAGMENT, fill=_FULL),
        TimedWorkload(TimedKind.REMOVE, fill=_FULL),
    ),
    source=_SOURCE,
    filesystems=_FILESYSTEMS,
    published_repeat=9,
    remarks=(
        "The publication kept 3 of 9 repetitions of nilfs2: in the others no space was left on the device.",
        "Every test begins with a freshly mounted filesystem and an empty page cache.",
    ),
)


_REPETITIONS: Final = 9
_REPETITIONS_OF_NILFS2: Final = 3


def _figures() -> tuple[PublishedFigure, ...]:
    """The printed figures, and their sums, by which the publication ranks."""
    figures: list[PublishedFigure] = []
    for row in rows_of(Path(__file__).with_name("home_usage_2016.csv"), "operation_mean_s", "umount_mean_s"):
        n = _REPETITIONS_OF_NILFS2 if row["filesystem"] == "nilfs2" else _REPETITIONS

        def figure(quantity: Quantity, printed: str, sd: float, row: dict[str, str] = row, n: int = n) -> None:
            cell = FigureCell("", row["filesystem"], row["test"], quantity)
            figures.append(PublishedFigure(cell, float(printed), printed, sd, n))

        sds = float(row["operation_sd_s"]), float(row["umount_sd_s"])
        figure(Quantity.TIME, row["operation_mean_s"], sds[0])
        figure(Quantity.UNMOUNT, row["umount_mean_s"], sds[1])
        together = float(row["operation_mean_s"]) + float(row["umount_mean_s"])
        figure(Quantity.TOGETHER, f"{together:.2f}", math.hypot(*sds))
    return tuple(figures)


_FIGURES: Final = _figures()


def _cell(filesystem: str, test: str, quantity: Quantity = Quantity.TOGETHER) -> FigureCell:
    return FigureCell("", filesystem, test, quantity)


def _others(named: str, test: str, quantity: Quantity = Quantity.TOGETHER) -> list[FigureCell]:
    return [_cell(name, test, quantity) for name in _FILESYSTEMS if name != named]


def _ranked(filesystem: str, rank: str, test: str) -> Statement:
    """One filesystem against all others, by operation with unmount."""
    order = below if rank == "fastest" else above
    rule = order(_cell(filesystem, test), *_others(filesystem, test))
    return Statement(f"{filesystem} is the {rank} in {test}", StatementSource.TABLE, rule)


_STATEMENTS: Final = (
    _ranked("ext4", "fastest", "write_files"),
    Statement(
        "nilfs2 unmounts the fastest after write_files",
        StatementSource.TABLE,
        below(_cell("nilfs2", "write_files", Quantity.UNMOUNT), *_others("nilfs2", "write_files", Quantity.UNMOUNT)),
    ),
    Statement(
        "btrfs is faster than ext4 and udf in hash_files",
        StatementSource.TABLE,
        below(_cell("btrfs", "hash_files"), _cell("ext4", "hash_files"), _cell("udf", "hash_files")),
    ),
    _ranked("ext4", "fastest", "fragment"),
    _ranked("udf", "slowest", "fragment"),
    _ranked("ext4", "fastest", "removing"),
    _ranked("udf", "slowest", "removing"),
    Statement(
        "On udf the unmount after removing takes longer than the removing",
        StatementSource.TABLE,
        above(_cell("udf", "removing", Quantity.UNMOUNT), _cell("udf", "removing", Quantity.TIME)),
    ),
)

PUBLICATION: Final = Publication(
    "home-usage-2016",
    _SOURCE,
    remarks=(
        "Measured on a 16 GB USB drive with partitions of about 4 GB, kernel 4.3.6.",
        "It does not say for which tests three repetitions of nilfs2 were kept: we count three for each.",
        "It has no deviation of operation with unmount: ours assumes independent times.",
    ),
    figures=_FIGURES,
    statements=_STATEMENTS,
    doubts=tuple(impossible_deviations(_FIGURES)),
    sections="fsjoule.plugins.publications.home_usage_sections:sections",
)
