"""The benchmarks of "Filesystem considerations for embedded devices" (Lelong, Embedded Linux Conference 2015).

The talk gives block sizes, directness, size and number of files for its bandwidth part, and less for the others. Our
own choices: queue depth 1; 1, 2, 4 and 8 threads in `mixed`; blocks of 4 MiB in `kthreads` and `cpu`; files of 1 MiB
that fill the filesystem of `mount`; a fresh filesystem for `fsck`; the files of `power-loss`. Of its figures we have
space, kernel threads and checks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fsjoule.model import (
    KIB,
    MIB,
    PURE_PATTERNS,
    FioWorkload,
    FlakeyModel,
    FlakeyWorkload,
    IoPattern,
    PowerLossWorkload,
    Provision,
    TimedKind,
    TimedWorkload,
    Workload,
)
from fsjoule.suites.published.cells import FigureCell, PublishedFigure, Quantity
from fsjoule.suites.published.doubts import shares
from fsjoule.suites.published.publication import Publication, rows_of
from fsjoule.suites.published.statements import Never, Statement, StatementSource, Without, above, all_of, below
from fsjoule.suites.suite import StorageChoice, Suite

_SOURCE: Final = "Lelong: Filesystem considerations for embedded devices, Embedded Linux Conference, 2015"

_GIB: Final = 1024 * MIB
_FILESYSTEMS: Final = ("ext4", "btrfs", "f2fs", "xfs", "nilfs2")
_JOBS: Final = (1, 2, 4, 8)


def _part(name: str, title: str, *workloads: Workload, **more: object) -> Suite:
    return Suite(f"elc2015/{name}", title, workloads, source=_SOURCE, filesystems=_FILESYSTEMS, **more)  # type: ignore[arg-type]


_BANDWIDTH: Final = tuple(
    FioWorkload(pattern, block, 500 * MIB, direct=direct, engine="libaio", files=50)
    for block in (4 * MIB, 4 * KIB)
    for direct in (True, False)
    for pattern in PURE_PATTERNS
)

SUITE: Final = Suite(
    "elc2015",
    "bandwidth, threads, storage devices, boot, mount, kernel threads, CPU, mkfs, fsck, power cuts and damage",
    source=_SOURCE,
    filesystems=_FILESYSTEMS,
    parts=(
        _part(
            "bandwidth",
            "four I/O patterns at 4 MiB and 4 KiB, direct and buffered, 500 MiB in 50 files",
            *_BANDWIDTH,
            remarks=(
                "50 files of 10 MiB in whole blocks of 4 MiB are 400 MiB, not 500: fio moves no part of a block.",
                "fio takes the files in turn, block by block, so that its sequential I/O is interleaved.",
                "Scaled down to a few files, fio still moves at least 16 blocks: it goes through them again, uncached.",
            ),
        ),
        _part(
            "mixed",
            "four I/O patterns with 1 to 8 threads",
            *(FioWorkload(pattern, 4 * KIB, 32 * MIB, jobs=jobs) for jobs in _JOBS for pattern in PURE_PATTERNS),
            remarks=(
                "The talk gives neither threads nor sizes: 1 to 8 threads, 4 KiB and 32 MiB each are our choice.",
            ),
        ),
        _part(
            "supports",
            "reading and writing 4 MiB blocks, direct, on each storage device",
            *(
                FioWorkload(pattern, 4 * MIB, 500 * MIB, direct=True, engine="libaio")
                for pattern in (IoPattern.READ, IoPattern.WRITE)
            ),
            where=StorageChoice.EVERY,
        ),
        _part(
            "boot",
            "from the root mounted to the console's prompt",
            TimedWorkload(TimedKind.BOOT),
            provision=Provision.ROOT,
            remarks=("The root filesystem has about 100 MB; the talk's had 15 MB.",),
        ),
        _part("mount", "of a filesystem that is 60 % full", TimedWorkload(TimedKind.MOUNT, fill=0.6)),
        _part(
            "kthreads",
            "CPU time of each kernel thread while 38 GB are written",
            FioWorkload(IoPattern.WRITE, 4 * MIB, 500 * MIB, io_bytes=38 * _GIB, kernel_threads=True),
            remarks=("Times come from /proc/[pid]/stat, in steps of 10 ms.",),
        ),
        _part(
            "cpu",
            "CPU time of a fixed amount of I/O, reading and writing",
            *(FioWorkload(pattern, 4 * MIB, 500 * MIB, io_bytes=_GIB) for pattern in (IoPattern.READ, IoPattern.WRITE)),
        ),
        _part("mkfs", "space when empty, and kernel threads once mounted", TimedWorkload(TimedKind.MKFS)),
        _part("fsck", "of a clean filesystem", TimedWorkload(TimedKind.FSCK)),
        _part(
            "power-loss",
            "power cut while files are written and synced; sync and async mounts",
            *(PowerLossWorkload(sync) for sync in (True, False)),
            provision=Provision.SCRATCH,
            repeat=10,
            published_repeat=226,
            remarks=("The talk does not give its files: 4 to 256 KiB at random, on a fresh filesystem for each cut.",),
        ),
        _part(
            "dm-flakey",
            "writes are damaged after 10 s, or every other second",
            *(FlakeyWorkload(model) for model in FlakeyModel),
            provision=Provision.SCRATCH,
            repeat=5,
            published_repeat=15,
            remarks=(
                "The kernel's dm-flakey changes the first byte of a request, which can be many blocks.",
                "The talk does not say how many small files there are: 8 is our choice.",
            ),
        ),
    ),
)


_SECOND_MS: Final = 1000.0
_MKFS: Final = {"total_mb": Quantity.TOTAL, "empty_used_mb": Quantity.USED, "kernel_threads": Quantity.KERNEL_THREADS}
_FSCK: Final = {"real_ms": Quantity.REAL, "sys_ms": Quantity.SYS, "user_ms": Quantity.USER}


def _figures(operation: str, columns: dict[str, Quantity]) -> tuple[PublishedFigure, ...]:
    return tuple(
        PublishedFigure(FigureCell(operation, row["filesystem"], operation, quantity), float(row[column]), row[column])
        for row in rows_of(Path(__file__).with_name(f"elc2015_{operation}.csv"))
        for column, quantity in columns.items()
        if row[column]
    )


_FIGURES: Final = (*_figures("mkfs", _MKFS), *_figures("fsck", _FSCK))


def _mkfs(filesystem: str, quantity: Quantity) -> FigureCell:
    return FigureCell("mkfs", filesystem, "mkfs", quantity)


def _fsck(filesystem: str, quantity: Quantity = Quantity.REAL) -> FigureCell:
    return FigureCell("fsck", filesystem, "fsck", quantity)


def _power_loss(filesystem: str, quantity: Quantity) -> tuple[FigureCell, ...]:
    return tuple(FigureCell("power-loss", filesystem, f"power-loss-{mode}", quantity) for mode in ("sync", "async"))


def _flakey(filesystem: str, quantity: Quantity) -> tuple[FigureCell, ...]:
    return tuple(FigureCell("dm-flakey", filesystem, f"dm-flakey-{model.value}", quantity) for model in FlakeyModel)


def _others(*named: str) -> tuple[str, ...]:
    return tuple(name for name in _FILESYSTEMS if name not in named)


_CHECKED: Final = tuple(name for name in _FILESYSTEMS if name != "nilfs2")

_STATEMENTS: Final = (
    Statement(
        "btrfs takes the least space when empty",
        StatementSource.TABLE,
        below(_mkfs("btrfs", Quantity.USED), *(_mkfs(name, Quantity.USED) for name in _others("btrfs"))),
    ),
    Statement(
        "f2fs takes the most space when empty",
        StatementSource.TABLE,
        above(_mkfs("f2fs", Quantity.USED), *(_mkfs(name, Quantity.USED) for name in _others("f2fs"))),
    ),
    Statement(
        "nilfs2 offers the least space in all",
        StatementSource.TABLE,
        below(_mkfs("nilfs2", Quantity.TOTAL), *(_mkfs(name, Quantity.TOTAL) for name in _others("nilfs2"))),
    ),
    Statement(
        "btrfs runs the most kernel threads",
        StatementSource.TABLE,
        above(
            _mkfs("btrfs", Quantity.KERNEL_THREADS),
            *(_mkfs(name, Quantity.KERNEL_THREADS) for name in _others("btrfs")),
        ),
    ),
    Statement(
        "f2fs and nilfs2 run the fewest kernel threads",
        StatementSource.TABLE,
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
        StatementSource.TABLE,
        below(_fsck("ext4"), *(_fsck(name) for name in _CHECKED if name != "ext4")),
    ),
    Statement(
        "f2fs is checked the slowest",
        StatementSource.TABLE,
        above(_fsck("f2fs"), *(_fsck(name) for name in _CHECKED if name != "f2fs")),
    ),
    Statement(
        "The check of a clean f2fs takes more than a second", StatementSource.TABLE, above(_fsck("f2fs"), _SECOND_MS)
    ),
    Statement(
        "The check of a clean xfs takes more time in the kernel than in the program",
        StatementSource.TABLE,
        above(_fsck("xfs", Quantity.SYS), _fsck("xfs", Quantity.USER)),
    ),
    Statement("nilfs2 has no fsck", StatementSource.SAID, Without(_fsck("nilfs2"))),
    *(
        Statement(
            f"{name} loses no file whose sync had returned to a power cut",
            StatementSource.OURS,
            Never(_power_loss(name, Quantity.LOST)),
        )
        for name in _FILESYSTEMS
    ),
    *(
        Statement(
            f"{name} can be mounted for writing after a power cut",
            StatementSource.OURS,
            Never(_power_loss(name, Quantity.UNMOUNTABLE)),
        )
        for name in _FILESYSTEMS
    ),
    Statement(
        "btrfs, which has checksums of data, never gives damaged data back as if it were intact",
        StatementSource.OURS,
        Never(_flakey("btrfs", Quantity.SILENT)),
    ),
    Statement(
        "btrfs detects damage when it is mounted or read",
        StatementSource.OURS,
        Never(_flakey("btrfs", Quantity.DETECTED), ever=True),
    ),
    *(
        Statement(
            f"{name}, which has no checksums of data, gives damaged data back as if it were intact",
            StatementSource.OURS,
            Never(_flakey(name, Quantity.SILENT), ever=True),
        )
        for name in _FILESYSTEMS
        if name != "btrfs"
    ),
)

PUBLICATION: Final = Publication(
    "elc2015",
    _SOURCE,
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
    sections="fsjoule.plugins.publications.elc2015_sections:sections",
)
