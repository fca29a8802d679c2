"""A profile with each measurement, and the symbols of each boot, asked for when nothing more is measured on it.

The board's lab counts what is executed, or perf takes samples of it on the board, with a sampling error. A timer
interrupts each processor; what it was doing is a sample. Work with interrupts off is sampled where they are on again.
The board needs perf and a kernel with performance events. Source: perf-record(1), perf-script(1).

Without a profile there is the number of executed instructions: the lab's, or else the processor's own, by perf.

Asking a board for its symbols takes it some seconds, after which nothing on it would be as it is without profiles.
"""

from __future__ import annotations

import logging
import re
import shlex
import zlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from fsjoule.bench.judge import WorkFacts
from fsjoule.bench.onboard import marks as onboard
from fsjoule.errors import BoardError, ConfigError, LabError
from fsjoule.model import INSTRUCTIONS, KERNEL_INSTRUCTIONS, SAMPLED, USER_INSTRUCTIONS, Profile, Symbols
from fsjoule.ports import Profiler, ResultStore, Shell
from fsjoule.store.profiles import PROFILE_FILE, encode_profile, encode_symbols, symbols_file

_log: Final = logging.getLogger(__name__)

# Some seconds of a serial line each.
_LINES: Final = 16_000
_READING_TIMEOUT_S: Final = 120.0
_TABLE: Final = "/proc/kallsyms"
_PART: Final = "/tmp/fsjoule-symbols"  # noqa: S108 - on the board, whose /tmp is ours alone
_FIND: Final = "find /lib/modules/$(uname -r)/kernel/ -name '*.ko*'"
# The part of a module's path where its folder in the kernel's source begins.
_FOLDER: Final = 5
# Text, also of functions that others may replace.
_CODE: Final = ("t", "w")
# Where a processor of 32 bits enters the kernel: code that is copied there when it boots, and has no symbol.
_VECTORS: Final = 0xFFFF0000
_HINT: Final = "a kernel is built with CONFIG_KALLSYMS to have symbols"


# About 2000 a second. A prime, so that it keeps no step with the kernel's own timers.
PERIOD_NS: Final = 499_979
# perf on a slow board reads all symbols of the kernel first.
START_S: Final = 60.0
_PERF_TIMEOUT_S: Final = 300.0
_DATA: Final = f"{onboard.DIRECTORY}/perf.data"
_TEXT: Final = f"{onboard.DIRECTORY}/samples"
_CHECK: Final = "command -v perf || exit 3; [ -e /proc/sys/kernel/perf_event_paranoid ] || exit 4"
_NO_PERF: Final = 3
_NO_EVENTS: Final = 4
# `  123 K     12.345678901:  c0123456 ([kernel.kallsyms])`: process, mode, time, address, file
_SAMPLE: Final = re.compile(r"\s*\d+\s+([KUHGg]*)\s+(\d+)\.(\d{9,}):\s+([0-9a-f]+)(?: \((.*)\))?\s*")
# A perf of 32 bits takes off the seconds in 32 bits: after 4.3 s its nanoseconds have a multiple of this too many.
# https://github.com/torvalds/linux/blob/v6.12/tools/perf/builtin-script.c, `perf_sample__fprintf_start`
_OVERFLOW_NS: Final = 2**32
_KERNEL: Final = "K"
_UNKNOWN: Final = "other code of programs"

# perf's words beside a measurement: lines as `123456,,instructions:k,1000000,100.00,,`.
COUNTS_FILE: Final = "perf-stat.csv"
_COUNT: Final = re.compile(r"^([^,\n]*),[^,\n]*,[^,\n]*instructions(?:[:/]([ku]))?[^,\n]*,\d+,([\d.]+)", re.MULTILINE)
_MODES: Final = {"k": KERNEL_INSTRUCTIONS, "u": USER_INSTRUCTIONS, "": INSTRUCTIONS}
_WHOLE: Final = 100.0
# Cortex-A8 and A9 cannot tell the kernel's apart: drivers/perf/arm_pmuv7.c, `set_event_filter`.
_EVENTS: Final = (("instructions:k", "instructions:u"), ("instructions",))
# Its counters of 32 bits would overflow without a word: drivers/perf/arm_pmu_platform.c
_NO_INTERRUPTS: Final = "no irqs for PMU"


def attach_profile(profiler: Profiler, evidence: WorkFacts) -> None:
    """Put the profile of what was just measured beside its other files; a note says so where there is none."""
    window = evidence.marks[0][1:]
    profile = profiler.take(window) if window else None
    if profile is None:
        evidence.notes.append("no profile: the board did not come to the end of its window")
    else:
        evidence.attachments[PROFILE_FILE] = encode_profile(profile)
        evidence.counts |= profile.counts


def attach_count(counter: Profiler, evidence: WorkFacts) -> None:
    """Note how many instructions what was just measured has executed, if its board's lab is this computer's."""
    window = evidence.marks[0][1:]
    counted = None
    with suppress(LabError):  # the lab's faults show where the board is asked
        counted = counter.take(window) if window else None
    if counted is not None:
        evidence.counts |= counted.counts


def check_counting(shell: Shell) -> tuple[str, ...]:
    """The events with which perf counts the instructions of a booted board.

    Raises BoardError if perf or the processor cannot.
    """
    fifos = f"{onboard.COUNTER} {onboard.COUNTER_ANSWER}"
    words = ""
    for events in _EVENTS:
        perf = shlex.join(onboard.perf_stat(events, "sh", "-c", onboard.ENABLE))
        done = shell.run(
            ("sh", "-c", f"mkfifo {fifos}; {perf} 2>&1; code=$?; rm {fifos}; exit $code"), timeout_s=START_S
        )
        words = done.stdout.strip()[-200:] if done.exit_code else "its processor counted none"
        if counts_in(shell.get_all((onboard.COUNTS,))[0].decode(errors="replace")):
            break
    else:
        raise BoardError(
            f"the board cannot count instructions: {words}",
            transient=False,
            hint="count_instructions needs perf 5.10 or newer on its card, and a processor that counts",
        )
    if shell.run(("sh", "-c", f"dmesg | grep '{_NO_INTERRUPTS}'")).stdout.strip():
        raise BoardError(
            f"the board cannot count instructions: its kernel has {_NO_INTERRUPTS}, so counters overflow unseen",
            transient=False,
            hint="take count_instructions out of the environment file",
        )
    return events


def counts_in(text: str) -> dict[str, int]:
    """The executed instructions in perf's words, by their names in a measurement's counts; none if some are missing."""
    rows = [(count, mode, float(share)) for count, mode, share in _COUNT.findall(text)]
    # A line for each kind of processor.
    if not all(count.isdigit() and share >= _WHOLE for count, _, share in rows):
        return {}
    counts: Counter[str] = Counter()
    for count, mode, _ in rows:
        counts[_MODES[mode]] += int(count)
        counts[INSTRUCTIONS] += int(count) * bool(mode)
    # QEMU's Cortex-A7 outside of guest time has the event, and counts nothing.
    return dict(counts) if counts and all(counts.values()) else {}


def attach_counts(evidence: WorkFacts, text: str, *, in_guest_time: bool) -> None:
    """Note what perf has counted between the marks, if it counted all the time, and keep its words.

    In guest time only the words: figures are the emulator's, or there are none.
    """
    evidence.attachments[COUNTS_FILE] = text.encode()
    if in_guest_time:
        return
    counts = counts_in(text)
    evidence.counts |= counts
    if not counts:
        evidence.notes.append(f"no instructions: perf did not count all the time ({COUNTS_FILE})")


def attach_samples(shell: Shell, evidence: WorkFacts, before: str, after: str) -> None:
    """Put perf's samples between two readings of the counters beside the other files of what was just measured.

    Raises LabError if perf cannot tell them.
    """
    evidence.complaints.append(SAMPLED)
    profile = take_samples(shell, before, after)
    if profile is None:
        evidence.notes.append("no profile: perf took no sample between the marks")
    else:
        evidence.attachments[PROFILE_FILE] = encode_profile(profile)


def keep_symbols(shell: Shell, boot: int, store: ResultStore) -> None:
    """Keep the symbols of a booted board in the run folder; without them its profiles are addresses, which is said.

    Raises StorageError if they cannot be stored.
    """
    try:
        symbols = boot_symbols(shell)
    except LabError as error:
        _log.info("the profiles of boot %s have no symbols: %s", boot, error)
    else:
        store.keep(symbols_file(boot), encode_symbols(symbols))


def boot_symbols(shell: Shell) -> Symbols:
    """The symbols of a booted board's kernel and modules. Raises LabError if it has none."""
    lines: list[str] = []
    first = 1
    while True:
        script = f"sed -n {first},{first + _LINES - 1}p {_TABLE} > {_PART} && wc -l < {_PART}"
        done = shell.run(("sh", "-c", script), timeout_s=_READING_TIMEOUT_S)
        if done.exit_code != 0:
            raise LabError(f"the board's kernel has no symbols: {done.stdout.strip()[-200:]}", hint=_HINT)
        count = int(done.stdout)
        if count:
            lines += shell.get(_PART).decode(errors="replace").splitlines()
        if count < _LINES:
            break
        first += _LINES
    module_files = shell.run(("sh", "-c", _FIND), timeout_s=_READING_TIMEOUT_S)
    shell.run(("rm", "-f", _PART))
    return parse_symbols(lines, module_files.stdout.splitlines())


def parse_symbols(lines: Sequence[str], files: Sequence[str] = ()) -> Symbols:
    """The functions of /proc/kallsyms: `c0101000 T name`, and `[module]` behind it. `files` are those of modules.

    One name for each address, the same whatever the order. Raises LabError if there is none that is told where it is.
    """
    by_address: dict[int, tuple[bool, str, str]] = {}
    for line in lines:
        address, kind, name, *module = line.split()
        if kind.lower() not in _CODE or name.startswith("$"):
            continue
        # An alias without underscores is what people call it.
        named = (name.startswith("_"), name, module[0].strip("[]") if module else "")
        at = int(address, 16)
        by_address[at] = min(by_address.get(at, named), named)
    if not any(by_address):
        raise LabError("the board's kernel does not tell where its symbols are", hint=_HINT)
    if max(by_address) < _VECTORS:
        by_address[_VECTORS] = (True, "vectors", "")
    at = sorted(by_address)
    names, modules = [by_address[each][1] for each in at], [by_address[each][2] for each in at]
    loaded = set(modules)
    # /lib/modules/6.1.0-44-armmp/kernel/fs/btrfs/btrfs.ko.xz; a module's name has no hyphens.
    parts = (Path(line).parts for line in files)
    folders = {path[-1].partition(".")[0].replace("-", "_"): "/".join(path[_FOLDER:-1]) for path in parts}
    return Symbols(
        np.array(at, np.uint64), names, modules, {name: folder for name, folder in folders.items() if name in loaded}
    )


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
    done = shell.run(("sh", "-c", script), timeout_s=_PERF_TIMEOUT_S)
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
        if not begin_ns <= int(seconds) * 1_000_000_000 + int(nanoseconds) % _OVERFLOW_NS < end_ns:
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
