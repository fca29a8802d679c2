"""The tests of "Comparing Ext4 and ZFS for Onboard Data Processing" (Johansson, Said, Forsberg, Tsog, Flordal, 2023).

It gives block sizes, sizes of files, jobs, queue depths and times, mostly as ranges. Our own choices: decades of block
sizes; in test 2 all jobs with the largest file, and all sizes with the most jobs, with all jobs on one file; direct I/O
through libaio, because buffered I/O ignores the queue depth; psync in test 3, and one block size for its 20 minutes.
"""

from __future__ import annotations

from typing import Final

from fsjoule.model import KIB, MIB, PURE_PATTERNS, FioWorkload, IoPattern
from fsjoule.suites.suite import Suite, Where

SOURCE: Final = "Johansson, Said, Forsberg, Tsog, Flordal: Comparing Ext4 and ZFS for Onboard Data Processing, 2023"

_FILESYSTEMS: Final = ("ext4", "zfs")
_GIB: Final = 1024 * MIB
_MINUTE_S: Final = 60.0
_MIXED: Final = (IoPattern.READWRITE, IoPattern.RANDRW)
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


def _part(number: int, title: str, *workloads: FioWorkload, raw: bool = False, **more: object) -> Suite:
    name, filesystems = f"ext4-zfs-2023/test{number}", ("raw",) if raw else _FILESYSTEMS
    return Suite(name, title, workloads, SOURCE, filesystems, repeat=1, where=Where.FURTHER, raw=raw, **more)  # type: ignore[arg-type]


SUITE: Final = Suite(
    "ext4-zfs-2023",
    "block sizes, jobs and file sizes, and the raw devices",
    source=SOURCE,
    filesystems=_FILESYSTEMS,
    repeat=1,
    parts=(
        _part(
            1,
            "random reads and writes, blocks of 1 KiB to 100000 KiB",
            *(
                FioWorkload(pattern, 10**n * KIB, _GIB, depth=128, direct=True, engine="libaio", runtime_s=_MINUTE_S)
                for n in range(6)
                for pattern in (IoPattern.RANDREAD, IoPattern.RANDWRITE)
            ),
            depths={"sata": 16},
        ),
        _part(
            2,
            "four I/O patterns, files of 2 to 10 GiB, 1 to 16 jobs",
            *(_test2(pattern, size, jobs) for size, jobs in _POINTS for pattern in PURE_PATTERNS),
        ),
        _part(
            3,
            "reads and writes of the raw device, half of each",
            *(_test3(pattern, 10**n, 1) for n in range(5) for pattern in _MIXED),
            *(_test3(pattern, 100, 20) for pattern in _MIXED),
            raw=True,
        ),
    ),
)
