"""Lelong, 2015: space, kernel threads and checks of five filesystems. We do not have the talk's other figures."""

from __future__ import annotations

from typing import Final

from fsjoule.model import FlakeyModel
from fsjoule.suites.definitions.elc2015 import SOURCE
from fsjoule.suites.published.cells import Cell, PublishedFigure, Quantity
from fsjoule.suites.published.doubts import shares
from fsjoule.suites.published.publication import Publication, rows_of
from fsjoule.suites.published.statements import Never, Origin, Statement, Without, above, all_of, below

_SECOND_MS: Final = 1000.0
_FILESYSTEMS: Final = ("ext4", "btrfs", "f2fs", "xfs", "nilfs2")
_MKFS: Final = {"total_mb": Quantity.TOTAL, "empty_used_mb": Quantity.USED, "kernel_threads": Quantity.KERNEL_THREADS}
_FSCK: Final = {"real_ms": Quantity.REAL, "sys_ms": Quantity.SYS, "user_ms": Quantity.USER}


def _figures(operation: str, columns: dict[str, Quantity]) -> tuple[PublishedFigure, ...]:
    return tuple(
        PublishedFigure(Cell(operation, row["filesystem"], operation, quantity), float(row[column]), row[column])
        for row in rows_of(f"elc2015_{operation}.csv")
        for column, quantity in columns.items()
        if row[column]
    )


_FIGURES: Final = (*_figures("mkfs", _MKFS), *_figures("fsck", _FSCK))


def _mkfs(filesystem: str, quantity: Quantity) -> Cell:
    return Cell("mkfs", filesystem, "mkfs", quantity)


def _fsck(filesystem: str, quantity: Quantity = Quantity.REAL) -> Cell:
    return Cell("fsck", filesystem, "fsck", quantity)


def _power_loss(filesystem: str, quantity: Quantity) -> tuple[Cell, ...]:
    return tuple(Cell("power-loss", filesystem, f"power-loss-{mode}", quantity) for mode in ("sync", "async"))


def _flakey(filesystem: str, quantity: Quantity) -> tuple[Cell, ...]:
    return tuple(Cell("dm-flakey", filesystem, f"dm-flakey-{model.value}", quantity) for model in FlakeyModel)


def _others(*named: str) -> tuple[str, ...]:
    return tuple(name for name in _FILESYSTEMS if name not in named)


_CHECKED: Final = tuple(name for name in _FILESYSTEMS if name != "nilfs2")

_STATEMENTS: Final = (
    Statement(
        "btrfs takes the least space when empty",
        Origin.TABLE,
        below(_mkfs("btrfs", Quantity.USED), *(_mkfs(name, Quantity.USED) for name in _others("btrfs"))),
    ),
    Statement(
        "f2fs takes the most space when empty",
        Origin.TABLE,
        above(_mkfs("f2fs", Quantity.USED), *(_mkfs(name, Quantity.USED) for name in _others("f2fs"))),
    ),
    Statement(
        "nilfs2 offers the least space in all",
        Origin.TABLE,
        below(_mkfs("nilfs2", Quantity.TOTAL), *(_mkfs(name, Quantity.TOTAL) for name in _others("nilfs2"))),
    ),
    Statement(
        "btrfs runs the most kernel threads",
        Origin.TABLE,
        above(
            _mkfs("btrfs", Quantity.KERNEL_THREADS),
            *(_mkfs(name, Quantity.KERNEL_THREADS) for name in _others("btrfs")),
        ),
    ),
    Statement(
        "f2fs and nilfs2 run the fewest kernel threads",
        Origin.TABLE,
        all_of(
            *(
                below(
                    _mkfs(few, Quantity.KERNEL_THREADS),
                    *(_mkfs(name, Quantity.KERNEL_THREADS) for name in _others("f2fs", "nilfs2")),
                )
                for few in ("f2fs", "nilfs2")
            )
        ),
    ),
    Statement(
        "ext4 is checked the fastest",
        Origin.TABLE,
        below(_fsck("ext4"), *(_fsck(name) for name in _CHECKED if name != "ext4")),
    ),
    Statement(
        "f2fs is checked the slowest",
        Origin.TABLE,
        above(_fsck("f2fs"), *(_fsck(name) for name in _CHECKED if name != "f2fs")),
    ),
    Statement("The check of a clean f2fs takes more than a second", Origin.TABLE, above(_fsck("f2fs"), _SECOND_MS)),
    Statement(
        "The check of a clean xfs takes more time in the kernel than in the program",
        Origin.TABLE,
        above(_fsck("xfs", Quantity.SYS), _fsck("xfs", Quantity.USER)),
    ),
    Statement("nilfs2 has no fsck", Origin.SAID, Without(_fsck("nilfs2"))),
    *(
        Statement(
            f"{name} loses no file whose sync had returned to a power cut",
            Origin.OURS,
            Never(_power_loss(name, Quantity.LOST)),
        )
        for name in _FILESYSTEMS
    ),
    *(
        Statement(
            f"{name} can be mounted for writing after a power cut",
            Origin.OURS,
            Never(_power_loss(name, Quantity.UNMOUNTABLE)),
        )
        for name in _FILESYSTEMS
    ),
    Statement(
        "btrfs, which has checksums of data, never gives damaged data back as if it were intact",
        Origin.OURS,
        Never(_flakey("btrfs", Quantity.SILENT)),
    ),
    Statement(
        "btrfs detects damage when it is mounted or read",
        Origin.OURS,
        Never(_flakey("btrfs", Quantity.DETECTED), ever=True),
    ),
    *(
        Statement(
            f"{name}, which has no checksums of data, gives damaged data back as if it were intact",
            Origin.OURS,
            Never(_flakey(name, Quantity.SILENT), ever=True),
        )
        for name in _FILESYSTEMS
        if name != "btrfs"
    ),
)

PUBLICATION: Final = Publication(
    "elc2015",
    SOURCE,
    remarks=(
        "Measured on a BeagleBone Black with kernels 3.12.10 and 3.19, fio 2.1.4, two SD cards and an eMMC.",
        "Our data have only its figures of mkfs and fsck, without the number of repetitions.",
        "Its megabytes are MiB as we read them: btrfs has 1024 of them on a partition of about 1 GB.",
        "It gives no queue depth, and no number of threads in its mixed part.",
    ),
    figures=_FIGURES,
    statements=_STATEMENTS,
    doubts=tuple(shares(_FIGURES, Quantity.USED, Quantity.TOTAL, "more is used than there is")),
    without=frozenset({("fsck", "nilfs2")}),
)
