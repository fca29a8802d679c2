"""The benchmarks of "Filesystem considerations for embedded devices" (Lelong, Embedded Linux Conference 2015).

The talk gives block sizes, directness, size and number of files for its bandwidth part, and less for the others. Our
own choices: queue depth 1; 1, 2, 4 and 8 threads in `mixed`; blocks of 4 MiB in `kthreads` and `cpu`; files of 1 MiB
that fill the filesystem of `mount`; a fresh filesystem for `fsck`; the files of `power-loss`.
"""

from __future__ import annotations

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
from fsjoule.suites.suite import Suite, Where

SOURCE: Final = "Lelong: Filesystem considerations for embedded devices, Embedded Linux Conference, 2015"

_GIB: Final = 1024 * MIB
_FILESYSTEMS: Final = ("ext4", "btrfs", "f2fs", "xfs", "nilfs2")
_JOBS: Final = (1, 2, 4, 8)


def _part(name: str, title: str, *workloads: Workload, **more: object) -> Suite:
    return Suite(f"elc2015/{name}", title, workloads, source=SOURCE, filesystems=_FILESYSTEMS, **more)  # type: ignore[arg-type]


_BANDWIDTH: Final = tuple(
    FioWorkload(pattern, block, 500 * MIB, direct=direct, engine="libaio", files=50)
    for block in (4 * MIB, 4 * KIB)
    for direct in (True, False)
    for pattern in PURE_PATTERNS
)

SUITE: Final = Suite(
    "elc2015",
    "bandwidth, threads, storage devices, boot, mount, kernel threads, CPU, mkfs, fsck, power cuts and damage",
    source=SOURCE,
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
            where=Where.EVERY,
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
