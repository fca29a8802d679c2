"""The tests of "Comparing Ext4 and ZFS for Onboard Data Processing" (Johansson, Said, Forsberg, Tsog, Flordal, 2023).

It gives block sizes, sizes of files, jobs, queue depths and times, mostly as ranges. Our own choices: decades of block
sizes; in test 2 all jobs with the largest file, and all sizes with the most jobs, with all jobs on one file; direct I/O
through libaio, because buffered I/O ignores the queue depth; psync in test 3, and one block size for its 20 minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Final

from fsjoule.model import KIB, MIB, PURE_PATTERNS, FioWorkload, IoPattern, Workload
from fsjoule.suites.published.cells import FigureCell, PublishedFigure, Quantity
from fsjoule.suites.published.doubts import latencies
from fsjoule.suites.published.publication import Publication, rows_of
from fsjoule.suites.published.statements import Statement, StatementSource, above, all_of, below
from fsjoule.suites.suite import StorageChoice, Suite

_SOURCE: Final = "Johansson, Said, Forsberg, Tsog, Flordal: Comparing Ext4 and ZFS for Onboard Data Processing, 2023"

_FILESYSTEMS: Final = ("ext4", "zfs")
_GIB: Final = 1024 * MIB
_MINUTE_S: Final = 60.0
_MIXED_PATTERNS: Final = (IoPattern.READWRITE, IoPattern.RANDRW)
_SIZES: Final = tuple(gib * _GIB for gib in (2, 4, 6, 8, 10))
_JOBS: Final = (1, 2, 4, 8, 16)
_POINTS: Final = tuple(
    dict.fromkeys([*((_SIZES[-1], jobs) for jobs in _JOBS), *((size, _JOBS[-1]) for size in _SIZES)])
)


def _test2(pattern: IoPattern, size_bytes: int, jobs: int) -> FioWorkload:
    return FioWorkload(
        pattern,
        128 * KIB,
        size_bytes,
        jobs=jobs,
        depth=256,
        direct=True,
        engine="libaio",
        runtime_s=_MINUTE_S,
        shared=True,
    )


def _test3(pattern: IoPattern, block_kib: int, minutes: int) -> FioWorkload:
    return FioWorkload(pattern, block_kib * KIB, _GIB, jobs=5, direct=True, runtime_s=minutes * _MINUTE_S, shared=True)


def _test(number: int, title: str, *workloads: FioWorkload, raw: bool = False, **more: object) -> Suite:
    name, filesystems = f"ext4-zfs-2023/test{number}", ("raw",) if raw else _FILESYSTEMS
    return Suite(name, title, workloads, _SOURCE, filesystems, repeat=1, where=StorageChoice.FURTHER, raw=raw, **more)  # type: ignore[arg-type]


SUITE: Final = Suite(
    "ext4-zfs-2023",
    "block sizes, jobs and file sizes, and the raw devices",
    source=_SOURCE,
    filesystems=_FILESYSTEMS,
    repeat=1,
    parts=(
        _test(
            1,
            "random reads and writes, blocks of 1 KiB to 100000 KiB",
            *(
                FioWorkload(pattern, 10**n * KIB, _GIB, depth=128, direct=True, engine="libaio", runtime_s=_MINUTE_S)
                for n in range(6)
                for pattern in (IoPattern.RANDREAD, IoPattern.RANDWRITE)
            ),
            depths={"sata": 16},
        ),
        _test(
            2,
            "four I/O patterns, files of 2 to 10 GiB, 1 to 16 jobs",
            *(_test2(pattern, size, jobs) for size, jobs in _POINTS for pattern in PURE_PATTERNS),
        ),
        _test(
            3,
            "reads and writes of the raw device, half of each",
            *(_test3(pattern, 10**n, 1) for n in range(5) for pattern in _MIXED_PATTERNS),
            *(_test3(pattern, 100, 20) for pattern in _MIXED_PATTERNS),
            raw=True,
        ),
    ),
)


NVME: Final = "iX10-100"
SATA: Final = "iX5-100"
# Test 2 is about file sizes and jobs: it has figures for the most jobs, and for the largest file.
MOST_JOBS: Final = 16
LARGEST: Final = "largest file"
_DEPTH: Final = 256
_MB_PER_MIB: Final = 1.048576
_PATTERNS: Final = ("read", "write", "randread", "randwrite")
_ORDERS: Final = {"read": "sequential", "write": "sequential", "randread": "random", "randwrite": "random"}
_MIXED: Final = {"rw": "sequential", "randrw": "random"}


def _part(test: int | str) -> str:
    return f"test{test}"


def _rate(filesystem: str, pattern: str) -> FigureCell:
    return FigureCell(_part(2), filesystem, f"{pattern}-{MOST_JOBS}jobs", Quantity.IOPS)


def _latency(filesystem: str, order: str, test: int = 2) -> FigureCell:
    workload = f"{order}, {LARGEST}" if test == 2 else order  # noqa: PLR2004 - the publication's own number
    return FigureCell(_part(test), filesystem, workload, Quantity.LATENCY_MAX)


def _throughput(filesystem: str, pattern: str) -> FigureCell:
    return FigureCell(_part(1), filesystem, pattern, Quantity.THROUGHPUT)


def _figure(row: dict[str, str]) -> PublishedFigure:
    filesystem, what, printed = row["filesystem"], row["operation"], row["value"]
    match row["metric"]:
        case "throughput":
            # We take MB/s for a million bytes per second.
            printed = f"{float(printed) / _MB_PER_MIB:.1f}"
            cell = _throughput(filesystem, what)
        case "iops_16_threads":
            cell = _rate(filesystem, what)
        case "latency_max_10gb":
            cell = _latency(filesystem, what)
        case "latency_max":
            cell = _latency(filesystem, what, test=3)
        case _:
            cell = FigureCell(_part(row["test"]), filesystem, f"{what}, 20 min", Quantity.PER_CPU_PERCENT)
    return PublishedFigure(cell, float(printed), printed, hardware=row["hardware"])


def names(part: str, workload: Workload, workloads: Sequence[Workload]) -> tuple[str, ...]:
    """The publication's names: a pattern, a pattern with the most jobs, an order with the largest file, an order."""
    pattern = workload.operation.value
    if part == _part(1):
        return (pattern,)
    if part == _part(3):
        return (_MIXED[pattern],) if pattern in _MIXED else ()
    largest = max(each.size_bytes for each in workloads)
    return (
        *((f"{pattern}-{MOST_JOBS}jobs",) if workload.jobs == MOST_JOBS else ()),
        *((f"{_ORDERS[pattern]}, {LARGEST}",) if workload.size_bytes == largest and pattern in _ORDERS else ()),
    )


_FIGURES: Final = tuple(_figure(row) for row in rows_of(Path(__file__).with_name("ext4_zfs_2023.csv")))

_STATEMENTS: Final = (
    Statement(
        "zfs has more throughput than ext4 in random reads",
        StatementSource.TABLE,
        above(_throughput("zfs", "randread"), _throughput("ext4", "randread")),
        (SATA,),
    ),
    Statement(
        "ext4 has more throughput than zfs in random writes",
        StatementSource.TABLE,
        above(_throughput("ext4", "randwrite"), _throughput("zfs", "randwrite")),
        (SATA,),
    ),
    Statement(
        f"zfs has more IOPS than ext4 with {MOST_JOBS} jobs in every pattern",
        StatementSource.TABLE,
        all_of(*(above(_rate("zfs", pattern), _rate("ext4", pattern)) for pattern in _PATTERNS)),
        (NVME,),
    ),
    Statement(
        f"zfs has more IOPS in sequential than in random order with {MOST_JOBS} jobs",
        StatementSource.TABLE,
        all_of(
            above(_rate("zfs", "read"), _rate("zfs", "randread")),
            above(_rate("zfs", "write"), _rate("zfs", "randwrite")),
        ),
        (NVME,),
    ),
    *(
        Statement(
            f"zfs's maximum latency is lower than ext4's in {order} order with the largest file",
            StatementSource.TABLE,
            below(_latency("zfs", order), _latency("ext4", order)),
            (NVME, SATA),
        )
        for order in ("sequential", "random")
    ),
    Statement(
        "ext4's maximum latency is higher in random than in sequential order with the largest file",
        StatementSource.TABLE,
        above(_latency("ext4", "random"), _latency("ext4", "sequential")),
        (NVME, SATA),
    ),
    Statement(
        "The raw disk's maximum latency is lower in random than in sequential order",
        StatementSource.TABLE,
        below(_latency("raw", "random", test=3), _latency("raw", "sequential", test=3)),
        (NVME, SATA),
    ),
)

PUBLICATION: Final = Publication(
    "ext4-zfs-2023",
    _SOURCE,
    remarks=(
        f"Measured on {NVME} (NVMe, partitions of 100 GB) and {SATA} (SATA, partitions of 40 GB).",
        "Its software is Ubuntu 20.04 with kernel 5.15.32, fio 3.16, ZFS 0.8.3.",
        "We do not know the block size of its throughputs, the file size of its IOPS, the jobs of its latencies.",
        "Such a figure is compared with the greatest of ours.",
        "We take its MB/s for millions of bytes per second, and its maximum latency for the total latency.",
        "The operations per CPU per cent of test 3 hold for 20 minutes: a shorter run has nothing to compare.",
    ),
    figures=_FIGURES,
    statements=_STATEMENTS,
    doubts=tuple(
        latencies(
            _FIGURES,
            [
                (_latency(filesystem, _ORDERS[pattern]), _rate(filesystem, pattern))
                for filesystem, pattern in product(("ext4", "zfs"), _PATTERNS)
            ],
            in_flight=MOST_JOBS * _DEPTH,
        )
    ),
    names=names,
    sections="fsjoule.plugins.publications.ext4_zfs_sections:sections",
)
