"""What each kind of workload says of itself, so that nobody asks which kind it is."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fsjoule.model import (
    KIB,
    MIB,
    FioWorkload,
    FlakeyModel,
    FlakeyWorkload,
    IoPattern,
    PowerLossWorkload,
    TimedKind,
    TimedWorkload,
    Workload,
)


@dataclass(frozen=True)
class Says:
    """Expected of one workload; times and bytes written are at 10 MiB/s."""

    name: str
    identity: str
    space_bytes: int
    written_bytes: int
    seconds: float
    only_writes: bool = True
    buffer_bytes: int = 0
    others: dict[str, object] = field(default_factory=dict[str, object])


@pytest.mark.parametrize(
    ("workload", "says"),
    [
        (
            FioWorkload(IoPattern.RANDREAD, 16 * KIB, 10 * MIB, jobs=4, depth=2),
            Says(
                "randread-16k-4jobs-qd2", "randread-16k-4jobs-qd2 10240KiB", 40 * MIB, 40 * MIB, 4.0, False, 128 * KIB
            ),
        ),
        (
            FioWorkload(IoPattern.WRITE, 4 * KIB, 10 * MIB, io_bytes=50 * MIB, jobs=2, shared=True),
            Says("write-4k-2jobs", "write-4k-2jobs 10240KiB of 51200KiB", 10 * MIB, 100 * MIB, 10.0, True, 8 * KIB),
        ),
        (
            # Half of what is moved in 6 s is written, and all of the files before; these are laid out in 1 s.
            FioWorkload(IoPattern.RANDRW, 4 * KIB, 10 * MIB, runtime_s=6.0),
            Says("randrw-4k-6s", "randrw-4k-6s 10240KiB", 10 * MIB, 40 * MIB, 7.0, False, 4 * KIB),
        ),
        (
            TimedWorkload(TimedKind.COPY, 20 * MIB, from_root=True),
            Says("copy", "copy-20m 20480KiB", 20 * MIB, 20 * MIB, 3.0, others={"uses_root": True}),
        ),
        (TimedWorkload(TimedKind.HASH_FILES, MIB), Says("hash_files", "hash_files-1m 1024KiB", MIB, MIB, 1.1, False)),
        (TimedWorkload(TimedKind.BOOT), Says("boot", "boot", 0, 0, 1.0, others={"is_boot": True})),
        (TimedWorkload(TimedKind.MOUNT, fill=0.6), Says("mount", "mount-full60", 0, 0, 1.0)),
        (
            PowerLossWorkload(sync=True),
            Says("power-loss-sync", "power-loss-sync 256KiB", 10 * MIB, 2_995_200, 2.25, others={"cuts_power": True}),
        ),
        (
            FlakeyWorkload(FlakeyModel.ALTERNATING),
            Says(
                *("dm-flakey-alternating", "dm-flakey-alternating 30720KiB", 38 * MIB, 38 * MIB, 23.8),
                others={"modules": ("dm-flakey",)},
            ),
        ),
    ],
)
def test_a_workload_knows(workload: Workload, says: Says) -> None:
    assert (workload.name, workload.identity) == (says.name, says.identity)
    assert workload.space_bytes == says.space_bytes
    assert workload.written_bytes(10.0) == says.written_bytes
    assert workload.seconds(10.0) == pytest.approx(says.seconds)
    assert workload.only_writes == says.only_writes
    assert workload.buffer_bytes == says.buffer_bytes
    others: dict[str, object] = {"uses_root": False, "is_boot": False, "cuts_power": False, "modules": ()}
    assert {name: getattr(workload, name) for name in others} == others | says.others


def test_only_fio_has_a_queue() -> None:
    copy = TimedWorkload(TimedKind.COPY, MIB)
    assert copy.at_depth(8) == copy
    assert FioWorkload(IoPattern.READ, KIB, MIB).at_depth(8).depth == 8


def test_files_that_are_written_until_the_power_is_cut_keep_their_sizes() -> None:
    loss, flakey = PowerLossWorkload(sync=False), FlakeyWorkload(FlakeyModel.AFTER_10S)
    assert loss.scaled(0.1) == loss
    assert flakey.scaled(0.1).size_bytes == 3 * MIB
