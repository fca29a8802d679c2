"""Samples of a board's processors, which perf takes while a program runs: a profile with a sampling error.

The board needs perf and a kernel with performance events. A timer interrupts each processor; what it was doing is a
sample. Work with interrupts off is sampled where they are on again. Source: perf-record(1), perf-script(1).
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from fsjoule.bench.onboard import marks as onboard
from fsjoule.errors import ConfigError, LabError
from fsjoule.model import Profile
from fsjoule.ports import Shell

# About 2000 a second. A prime, so that it keeps no step with the kernel's own timers.
PERIOD_NS: Final = 499_979
# perf on a slow board reads all symbols of the kernel first.
START_S: Final = 60.0
_READING_TIMEOUT_S: Final = 300.0
_DATA: Final = f"{onboard.DIRECTORY}/perf.data"
_TEXT: Final = f"{onboard.DIRECTORY}/samples"
_CHECK: Final = "command -v perf || exit 3; [ -e /proc/sys/kernel/perf_event_paranoid ] || exit 4"
_NO_PERF: Final = 3
_NO_EVENTS: Final = 4
# `  123 K     12.345678901:  c0123456 ([kernel.kallsyms])`: process, mode, time, address, file
_SAMPLE: Final = re.compile(r"\s*\d+\s+([KUHGg]*)\s+(\d+)\.(\d{9}):\s+([0-9a-f]+)(?: \((.*)\))?\s*")
_KERNEL: Final = "K"
_UNKNOWN: Final = "other code of programs"


def check_sampling(shell: Shell) -> None:
    """Raises ConfigError for a booted board that cannot be sampled."""
    done = shell.run(("sh", "-c", _CHECK))
    if done.exit_code == _NO_PERF:
        raise ConfigError(
            "the board's card has no perf, with which a board in real time is explained",
            hint="its recipe adds Debian's package linux-perf: docs/explain.md has the lines",
        )
    if done.exit_code == _NO_EVENTS:
        raise ConfigError(
            "the board's kernel cannot be sampled: it has no performance events",
            hint="build it with CONFIG_PERF_EVENTS=y",
        )


def under_perf(argv: Sequence[str]) -> tuple[str, ...]:
    """The command that runs a program and samples all processors meanwhile. Its exit code is the program's."""
    record = ("perf", "record", "--quiet", "--all-cpus", "--event", "cpu-clock", "--count", str(PERIOD_NS))
    clock = ("--clockid", "boottime", "--no-buildid", "--no-buildid-cache", "--output", _DATA)
    return (*record, *clock, "--", *argv)


def take_samples(shell: Shell, before: str, after: str) -> Profile | None:
    """The samples between two readings of the counters, whose first line is the board's uptime; None for none.

    Raises LabError if perf cannot tell them.
    """
    script = f"perf script --input {_DATA} --ns --fields pid,misc,time,ip,dso > {_TEXT}"
    done = shell.run(("sh", "-c", script), timeout_s=_READING_TIMEOUT_S)
    if done.exit_code != 0:
        raise LabError(f"perf cannot read its samples: {done.stdout.strip()[-200:]}")
    text = shell.get(_TEXT).decode(errors="replace")
    shell.run(("rm", "-f", _DATA, _TEXT))
    try:
        begin_ns, end_ns = (round(float(each.split()[0]) * 1e9) for each in (before, after))
    except (ValueError, IndexError):
        return None  # the work failed before its mark
    return samples_between(text, begin_ns, end_ns)


def samples_between(text: str, begin_ns: int, end_ns: int) -> Profile | None:
    """Perf's samples from one time to the other, by address; programs by the names of their files."""
    counts: Counter[tuple[int, int]] = Counter()
    programs: dict[int, str] = {}
    for line in text.splitlines():
        matched = _SAMPLE.fullmatch(line)
        if matched is None:
            continue
        mode, seconds, nanoseconds, address, file = matched.groups()
        if not begin_ns <= int(seconds) * 1_000_000_000 + int(nanoseconds) < end_ns:
            continue
        page = 0
        if mode != _KERNEL:
            name = (file or "").rpartition("/")[2]
            name = _UNKNOWN if not name or name.startswith("[") else name
            page = zlib.crc32(name.encode()) or 1
            programs[page] = name
        counts[int(address, 16), page] += 1
    if not counts:
        return None
    rows = sorted(counts)
    return Profile(
        addresses=np.array([address for address, _ in rows], np.uint64),
        pages=np.array([page for _, page in rows], np.uint64),
        executed=np.array([counts[row] for row in rows], np.uint64),
        window_ns=end_ns - begin_ns,
        busy_ns=sum(counts.values()) * PERIOD_NS,
        instruction_ns=PERIOD_NS,
        sampled=True,
        programs=programs,
    )
