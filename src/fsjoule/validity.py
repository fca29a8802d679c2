"""When a measurement is not to be believed, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fsjoule.model import Energy, SampleCounts, Trace, Window


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a measurement may be off before it is invalid.

    A window may be longer than the board's own time by what its board allows and `window_excess` of the runtime: the
    marks bracket the work, and the programs that send them have to be started first. It may be shorter by
    `window_deficit_s`, the resolution of fio's clock (1 ms) and of the mark line.
    """

    window_excess: float = 0.02
    window_deficit_s: float = 0.005
    missing_fraction: float = 0.001


DEFAULT: Final = Limits()

# What the kernel says when a card or a filesystem fails; one line each is enough to mistrust the figures.
_IO_ERROR: Final = re.compile(
    r"I/O error|EXT4-fs error|BTRFS:? (?:error|critical)|BTRFS.*aborted|F2FS-fs.*(?:error|inconsistent)"
    r"|XFS.*(?:corruption|error)|NILFS.*error|UDF-fs.*error|FAT-fs.*error|mmc(?:blk)?\d.*(?:error|timeout|timed out)"
    r"|Remounting filesystem read-only|blk_update_request",
    re.IGNORECASE,
)


def window_complaints(window: Window, duration_s: float, allowed_s: float, limits: Limits = DEFAULT) -> list[str]:
    """Whether the marks bracket the work that the board itself timed at `duration_s`, `allowed_s` being its board's."""
    excess_s = window.duration_s - duration_s
    allowed_s += limits.window_excess * duration_s
    if -limits.window_deficit_s <= excess_s <= allowed_s:
        return []
    return [
        (
            f"the window ({window.duration_s:.3f} s) and the board's own time ({duration_s:.3f} s) differ by "
            f"{excess_s * 1e3:+.0f} ms; allowed are {-limits.window_deficit_s * 1e3:.0f} to {allowed_s * 1e3:+.0f} ms"
        )
    ]


def sample_complaints(counts: SampleCounts, limits: Limits = DEFAULT) -> list[str]:
    """Whether too many of the meter's samples are missing."""
    missing = counts.missed + counts.lost
    if missing <= limits.missing_fraction * counts.expected:
        return []
    return [
        (
            f"{missing} of {counts.expected} samples are missing ({counts.missed} missed by the meter, {counts.lost} "
            f"lost on the way); allowed are {limits.missing_fraction:.1%}"
        )
    ]


def trace_complaints(trace: Trace) -> list[str]:
    """Faults that the meter itself reported."""
    return [f"the meter reported: {fault}" for fault in trace.faults]


def energy_complaints(energy: Energy, counts: SampleCounts) -> list[str]:
    """Whether the samples add up to what the meter itself accumulated; only lost frames may make a difference."""
    if energy.check_mj is None or counts.lost:
        return []
    if abs(energy.check_mj - energy.check_sum_mj) <= 1e-9 * max(1.0, abs(energy.check_mj)):
        return []
    return [
        (
            f"the samples add up to {energy.check_sum_mj:.6f} mJ, the meter accumulated {energy.check_mj:.6f} mJ over "
            "the same ticks"
        )
    ]


def kernel_complaints(kernel_log: str) -> list[str]:
    """I/O and filesystem errors among the kernel's messages of a measurement."""
    found = [line.strip() for line in kernel_log.splitlines() if _IO_ERROR.search(line)]
    return [f"the kernel reported: {line}" for line in found[:3]]
