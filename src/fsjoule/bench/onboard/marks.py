"""Small scripts on the board that send marks and read counters, and the parsers of their output.

The scripts need only a POSIX shell and cat. `start` reads the counters before its mark and `stop` after its mark, so
that the window contains only the work.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fsjoule.bench.media import BLOCK_ERASES, PAGE_PROGRAMS, PAGE_READS
from fsjoule.errors import LabError, MeasurementInvalid
from fsjoule.model import DeviceCounters, FlashCounters, MarkLine
from fsjoule.model.kernel_events import MARK as EVENT_MARK
from fsjoule.model.kernel_events import WORKER, thread_name

DIRECTORY: Final = "/tmp/fsjoule"  # noqa: S108 - on the board, whose /tmp is ours alone
RESULT: Final = f"{DIRECTORY}/result.json"
BEFORE: Final = f"{DIRECTORY}/before"
AFTER: Final = f"{DIRECTORY}/after"
DURATION: Final = f"{DIRECTORY}/duration"
THREADS_BEFORE: Final = f"{DIRECTORY}/threads-before"
THREADS_AFTER: Final = f"{DIRECTORY}/threads-after"
START: Final = f"{DIRECTORY}/start"
STOP: Final = f"{DIRECTORY}/stop"
JOBS: Final = f"{DIRECTORY}/jobs"
TIMED: Final = f"{DIRECTORY}/timed"
GATE: Final = f"{DIRECTORY}/gate"
TRACING: Final = "/sys/kernel/tracing/instances/fsjoule"
# Runs a program while perf counts instructions; FIFOs to and from perf, and what it has counted.
COUNTED: Final = f"{DIRECTORY}/counted"
COUNTER: Final = f"{DIRECTORY}/counter"
COUNTER_ANSWER: Final = f"{DIRECTORY}/counter-answer"
COUNTS: Final = f"{DIRECTORY}/counts"
# What a mark's script says to perf, if there is one. Source: perf-stat(1), --control
ENABLE: Final = f"echo enable > {COUNTER}; read -r answer < {COUNTER_ANSWER}"
DISABLE: Final = f"echo disable > {COUNTER}; read -r answer < {COUNTER_ANSWER}"

# A process that ends between the shell's listing and cat's reading is no error.
_THREADS: Final = "{ cat /proc/[0-9]*/stat 2> /dev/null || true; }"
_SECTOR_BYTES: Final = 512
_USER_HZ: Final = 100  # fixed by the kernel's interface to user space
_SCHEDSTAT_RUNNING: Final = 7  # field of a CPU's line: nanoseconds in which tasks ran, since version 14
_SCHEDSTAT_VERSION: Final = 14
_CPU_FIELDS: Final = 8
_KTHREADD: Final = 2  # the parent of all kernel threads
_CPU_IDLE: Final = (3, 4)  # idle and iowait
_DISK_READS: Final = 0
_DISK_WRITES: Final = 4
_DISK_BUSY_MS: Final = 9
_DISK_FIELDS: Final = 17  # since Linux 5.5, which added the flushes
_FLASH_NUMBERS: Final = 6  # bytes of the flash, of a block, of a page, corrected bits, failed pages, bad blocks


def start_mark(number: int) -> str:
    return f"S{number}"


def stop_mark(number: int) -> str:
    return f"E{number}"


BOOT_START: Final = "Sboot"
BOOT_STOP: Final = "Eboot"

# Lets the last of several jobs through and makes the others wait. With noclobber only one job can make a file.
_LAST_OF_JOBS: Final = f"""\
jobs=$2
if [ "$jobs" -gt 1 ]; then
    place=1
    set -C
    until true > "{START}-$1-$place"; do place=$((place + 1)); done 2> /dev/null
    set +C
    if [ "$place" -lt "$jobs" ]; then read -r go <&3; exit 0; fi
fi
"""


def scripts(
    *,
    mark_line: MarkLine,
    counters: Sequence[str],
    uptime: bool = False,
    traced: bool = False,
    events: Sequence[str] = (),
) -> dict[str, bytes]:
    """The scripts by path. `counters` are the files with those of the device under test.

    Each job of fio runs `start N JOBS` before its first I/O; a single job runs `stop N` after its last I/O. A further
    argument `threads` reads the kernel's threads too. Starting a program takes a slow board's CPU a tenth of a second,
    so several jobs would begin one after the other: each waits in `start` for the last, which sends the mark. `GATE` is
    a FIFO, opened both ways because that does not block. At the end every job would delay the mark by a program, so
    `jobs N THREADS PROGRAM...`, which waits for fio, sends it instead.
    `timed N UNMOUNT PROGRAM...` runs a program between the two marks, and then UNMOUNT, a line of shell.
    With `uptime` the readings of the counters begin with a line of /proc/uptime. With `traced` each mark is written
    into the kernel's trace first. With `events` there is `counted PROGRAM...`, too: perf counts these from before the
    first mark to after the second. It runs beside the program: as its parent it would hide a signal that ends it.
    """

    def count(order: str) -> str:
        return f"[ ! -p {COUNTER} ] || {{ {order}; }}\n" * bool(events)

    def send(text: str) -> str:
        return f'echo "{EVENT_MARK} {text}" > {TRACING}/trace_marker\n' * traced + mark_line.send(text)

    read = f"{shlex.join(counters_argv(counters, uptime=uptime))} 2> /dev/null"
    stop = f'{send("E$number")}\n{count(DISABLE)}{read} > {AFTER}\n[ -z "$threads" ] || {_THREADS} > {THREADS_AFTER}\n'
    texts = {
        START: (
            f"exec 3<> {GATE}\n{_LAST_OF_JOBS}"
            f'[ -z "$3" ] || {_THREADS} > {THREADS_BEFORE}\n{read} > {BEFORE}\n{count(ENABLE)}{send("S$1")}\n'
            "while [ $((jobs -= 1)) -gt 0 ]; do echo >&3; done\n"
        ),
        STOP: f"number=$1; threads=$2\n{stop}exit 0\n",
        JOBS: f'number=$1; threads=$2; shift 2\n"$@"\nstatus=$?\n{stop}exit $status\n',
        # The shell itself reads the kernel's monotonic clock: a program would take longer than a fast mount.
        # /proc/timer_list has nanoseconds (for root only), /proc/uptime hundredths of a second.
        TIMED: (
            "number=$1; unmount=$2; shift 2\nunit=1e-9\n[ -r /proc/timer_list ] || unit=1\n"
            "now() {\n if [ $unit = 1 ]; then read -r t rest < /proc/uptime\n"
            " else { read -r rest; read -r rest; read -r rest rest t rest; } < /proc/timer_list; fi\n}\n"
            f'{read} > {BEFORE}\n{count(ENABLE)}{send("S$number")}\nnow; begin=$t\n"$@"\nstatus=$?\nnow; end=$t\n'
            'if [ -n "$unmount" ]; then eval "$unmount" || status=1; now; fi\n'
            f'{send("E$number")}\n{{ echo "$begin $end $t $unit"; times; }} > {DURATION}\n'
            f"{count(DISABLE)}{read} > {AFTER}\nexit $status\n"
        ),
    }
    if events:
        # Its descriptor stays open until perf has ended: what nobody has read would be lost with it.
        end, fifos = f"{DIRECTORY}/counted-end", f"{COUNTER} {COUNTER_ANSWER} {DIRECTORY}/counted-end"
        perf = shlex.join(perf_stat(events, "sh", "-c", f"read -r end <> {end}"))
        texts[COUNTED] = (
            f"rm -f {fifos} {COUNTS}\nmkfifo {fifos}\nexec 4<> {end}\n{perf} > /dev/null 2>&1 &\n"
            f'"$@" 4>&-\nstatus=$?\necho end >&4\nwait\nrm -f {fifos}\nexit $status\n'
        )
    return {path: f"#!/bin/sh\n{text}".encode() for path, text in texts.items()}


def perf_stat(events: Sequence[str], *program: str) -> tuple[str, ...]:
    """Let perf count on all processors while the program runs, as soon as it is told to. Source: perf-stat(1)."""
    control = f"--control=fifo:{COUNTER},{COUNTER_ANSWER}"
    options = ("--all-cpus", "--delay=-1", control, "--field-separator=,", f"--output={COUNTS}")
    return ("perf", "stat", *options, *(f"--event={event}" for event in events), "--", *program)


def counters_argv(counters: Sequence[str], *, uptime: bool = False) -> tuple[str, ...]:
    """The command that prints those of the CPU and of a device for `usage`. A kernel may lack schedstat."""
    first = ("/proc/uptime",) if uptime else ()
    return ("cat", *first, "/proc/stat", "/proc/schedstat", *counters)


@dataclass(frozen=True, slots=True)
class BoardUsage:
    """CPU time and I/O of the board between two readings of its counters; no `device` if its kernel counts nothing."""

    cpu_busy_s: float
    device: DeviceCounters | None


def usage(before: str, after: str) -> BoardUsage:
    """The difference of two readings of `/proc/stat`, `/proc/schedstat` (if present) and the device's counters.

    schedstat counts the nanoseconds in which a task ran; without it ticks of 0.01 s that found the CPU busy count.
    Source: the kernel's Documentation/filesystems/proc.rst, section 1.7, scheduler/sched-stats.rst and block/stat.rst.
    Raises MeasurementInvalid if a reading lacks a field.
    """
    cpu0, cpu1 = _cpu(before), _cpu(after)
    busy = sum(b - a for i, (a, b) in enumerate(zip(cpu0, cpu1, strict=True)) if i not in _CPU_IDLE)
    ran0_ns, ran1_ns = _ran_ns(before), _ran_ns(after)
    return BoardUsage(
        cpu_busy_s=busy / _USER_HZ if ran0_ns is None or ran1_ns is None else (ran1_ns - ran0_ns) / 1e9,
        device=_flash(before, after) if _is_flash(after) else _disk(_disk_fields(before), _disk_fields(after)),
    )


def _disk(before: Sequence[int], after: Sequence[int]) -> DeviceCounters:
    disk = [b - a for a, b in zip(before, after, strict=True)]
    return DeviceCounters(
        reads=disk[_DISK_READS],
        read_bytes=disk[2] * _SECTOR_BYTES,
        writes=disk[_DISK_WRITES],
        written_bytes=disk[6] * _SECTOR_BYTES,
        discards=disk[11],
        flushes=disk[15],
        request_ms=disk[3] + disk[7] + disk[14] + disk[16],
        busy_ms=_busy_ms(before, after),
    )


def _flash(before: str, after: str) -> DeviceCounters | None:
    """The counters of raw flash, from the lines of `media.counter_files`; None if the kernel counts no operations."""
    (hits0, state0), (hits1, state1) = _flash_reading(before), _flash_reading(after)
    if not hits1:
        return None
    reads, programs, erases = (
        sum(hits1.get(each, 0) - hits0.get(each, 0) for each in operation)
        for operation in (PAGE_READS, PAGE_PROGRAMS, BLOCK_ERASES)
    )
    size_bytes, block_bytes, page_bytes, corrected, failed, bad, *erased = state1
    return DeviceCounters(
        reads=reads,
        read_bytes=reads * page_bytes,
        writes=programs,
        written_bytes=programs * page_bytes,
        discards=0,
        flushes=0,
        request_ms=0,
        flash=FlashCounters(
            erases=erases,
            size_bytes=size_bytes,
            block_bytes=block_bytes,
            corrected_bits=corrected - state0[3],
            failed_pages=failed - state0[4],
            bad_blocks=bad,
            most_erased=erased[0] if erased else None,
        ),
    )


def _is_flash(text: str) -> bool:
    """Whether a reading ends with the state of raw flash: single numbers, where a block device has a line of them."""
    return re.fullmatch(r"\d+", text.rstrip().rpartition("\n")[2]) is not None


def _flash_reading(text: str) -> tuple[dict[str, int], list[int]]:
    """The hits of the kernel's probes by function, and the numbers at the end. Raises MeasurementInvalid."""
    hits = {match[1]: int(match[2]) for match in re.finditer(r"^ +(\w+) +(\d+) +\d+ *$", text, re.MULTILINE)}
    end = re.search(r"(?:^\d+\n?)+\Z", text, re.MULTILINE)
    state = [int(each) for each in end[0].split()] if end else []
    if len(state) < _FLASH_NUMBERS:
        raise MeasurementInvalid("counters", [f"the flash's counters are incomplete: {text.strip()[-200:]!r}"])
    return hits, state


def _busy_ms(before: Sequence[int], after: Sequence[int]) -> int | None:
    """Milliseconds in which the device had a request; None while the kernel does not count them.

    32-bit Linux 6.1 does not count them for its first 300 s: jiffies start 300 s before their overflow, and must be
    after a stamp of 0. Source: `update_io_ticks`, block/blk-core.c; `INITIAL_JIFFIES`, include/linux/jiffies.h.
    """
    counted = before if before[_DISK_READS] + before[_DISK_WRITES] else after
    requests = counted[_DISK_READS] + counted[_DISK_WRITES]
    return None if requests and not counted[_DISK_BUSY_MS] else after[_DISK_BUSY_MS] - before[_DISK_BUSY_MS]


def _ran_ns(text: str) -> int | None:
    """Nanoseconds in which tasks ran on all CPUs since the boot; None without schedstat."""
    version = re.search(r"^version (\d+)\n", text, re.MULTILINE)
    if version is None or int(version[1]) < _SCHEDSTAT_VERSION:
        return None
    cpus = re.findall(r"^cpu\d+ .*", text[version.end() :], re.MULTILINE)
    return sum(int(line.split()[_SCHEDSTAT_RUNNING]) for line in cpus) if cpus else None


def _cpu(text: str) -> list[int]:
    cpu = next((line for line in text.split("\n") if line.startswith("cpu ")), "")
    return _whole(cpu.split()[1 : 1 + _CPU_FIELDS], _CPU_FIELDS, text)


def _disk_fields(text: str) -> list[int]:
    lines = reversed(text.split("\n"))
    disk = next((line for line in lines if re.fullmatch(r"[\s\d]+", line) and line.strip()), "")
    return _whole(disk.split(), _DISK_FIELDS, text)


def _whole(fields: Sequence[str], least: int, text: str) -> list[int]:
    if len(fields) < least:
        raise MeasurementInvalid("counters", [f"the board's counters are incomplete: {text.strip()[:200]!r}"])
    return [int(x) for x in fields]


@dataclass(frozen=True, slots=True)
class Spent:
    """The times of `timed`, in seconds. `unmount_s` is None if nothing was unmounted."""

    duration_s: float
    unmount_s: float | None
    user_s: float
    sys_s: float


def spent(text: str, *, unmounted: bool) -> Spent:
    """Parse the output of `timed`. Its CPU times include reading the counters, 0.01 s. Raises MeasurementInvalid."""
    lines = text.split("\n")
    try:
        begin, end, last, unit = (float(word) for word in lines[0].split())
        user_s, sys_s = (_shell_time_s(word) for word in lines[2].split())
    except (ValueError, IndexError) as error:
        raise MeasurementInvalid("time", [f"the board's own time cannot be read: {text.strip()!r}"]) from error
    return Spent((end - begin) * unit, (last - end) * unit if unmounted else None, user_s, sys_s)


def _shell_time_s(text: str) -> float:
    """`1m2.340000s` -> 62.34 (POSIX, `times`)."""
    minutes, seconds = text.removesuffix("s").split("m")
    return 60 * float(minutes) + float(seconds)


def kernel_threads_s(before: str, after: str) -> dict[str, float]:
    """CPU seconds by name of each kernel thread that ran between two readings of all `/proc/[pid]/stat`.

    Workers of one queue are added up, because chance decides which of them works. A worker has its queue's name only
    while it works; otherwise it counts as `kworker`. Source: proc_pid_stat(5), fields 2, 4, 14 and 15.
    """
    first, last = _threads(before), _threads(after)
    total: dict[str, float] = {}
    for pid, (name, ticks) in last.items():
        used = ticks - (first[pid][1] if pid in first else 0)
        if used > 0:
            total[name] = total.get(name, 0.0) + used / _USER_HZ
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def kernel_thread_count(text: str) -> int:
    """The number of kernel threads in a reading, without workers, whose number varies. Raises LabError."""
    if not text.strip():
        raise LabError("the board's /proc shows no process", transient=True)
    return sum(not name.startswith(WORKER) for name, _ in _threads(text).values())


def _threads(text: str) -> dict[int, tuple[str, int]]:
    threads: dict[int, tuple[str, int]] = {}
    for line in text.splitlines():
        matched = re.fullmatch(r"(\d+) \((.*)\) (.*)", line)
        if matched is None:
            continue
        fields = matched[3].split()
        if int(fields[1]) == _KTHREADD:
            threads[int(matched[1])] = (thread_name(matched[2]), int(fields[11]) + int(fields[12]))
    return threads


THREADS: Final = ("sh", "-c", _THREADS)
