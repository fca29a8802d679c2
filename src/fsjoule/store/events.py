"""The kernel's events of a measurement, as the board printed them (gzip), and their parser.

Source: the kernel's Documentation/trace/ftrace.rst; include/trace/events/{sched,block,power,workqueue}.h.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Final

from fsjoule.errors import ResultError
from fsjoule.host.plaintext import plain_line
from fsjoule.model.kernel_events import (
    IDLE,
    MARK,
    WORKER,
    Call,
    Frequency,
    KernelEvents,
    Request,
    RequestKind,
    Switch,
    thread_name,
)

EVENTS_FILE: Final = "events.txt.gz"
_MOST_BYTES: Final = 256 << 20
_SECTOR_BYTES: Final = 512
# `  kworker/0:1-19      [000] d..2.   123.456789: sched_switch: prev_comm=...`, and `sys_fsync(fd: 3)` without a colon
_LINE: Final = re.compile(r"\s*(.{1,16}?)-(\d+) +(?:\([ \d-]+\) +)?\[(\d+)\] \S+ +(\d+\.\d+): (\w+)(.*)")
_SWITCH: Final = re.compile(r": prev_comm=(.*) prev_pid=(\d+) .* ==> next_comm=(.*) next_pid=(\d+) ")
# `: 179,2 WS 16384 () 12345 + 32 none,0,0 [fio]`
_REQUEST: Final = re.compile(r": (\d+,\d+) (\w+) (?:\d+ )?\(.*?\) (\d+) \+ (\d+) ")
_FREQUENCY: Final = re.compile(r": state=(\d+) cpu_id=(\d+)")
_WORK: Final = re.compile(r": work struct \S+: function (\S+)")
_DROPPED: Final = re.compile(r"(?:dropped events|overrun): (\d+)")
_NO_CALL: Final = "-> "


def encode_events(text: bytes) -> bytes:
    """The file of a board's events."""
    return gzip.compress(text, mtime=0)


def decode_events(content: bytes, path: Path) -> KernelEvents:
    """Read what `encode_events` made. Raises ResultError, which names `path`, if it is damaged."""
    try:
        with gzip.open(BytesIO(content)) as file:
            text = file.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ResultError(f"{plain_line(str(path))} is damaged: {error}") from error
    if len(text) > _MOST_BYTES:
        raise ResultError(f"{plain_line(str(path))} has more than {_MOST_BYTES >> 20} MiB of events")
    return parse_events(text.decode(errors="replace").splitlines())


def parse_events(lines: Iterable[str]) -> KernelEvents:
    """Read the lines of `per_cpu/cpu*/stats` and `trace`. Lines that are no event are left out."""
    parser = _Parser()
    for line in lines:
        matched = _LINE.fullmatch(line)
        if matched is None:
            parser.dropped += sum(map(int, _DROPPED.findall(line)))
        else:
            parser.take(matched)
    return parser.events()


@dataclass
class _Parser:
    dropped: int = 0
    unfinished: int = 0
    end_s: float = 0.0
    switches: list[Switch] = field(default_factory=list[Switch])
    requests: list[Request] = field(default_factory=list[Request])
    calls: list[Call] = field(default_factory=list[Call])
    frequencies: list[Frequency] = field(default_factory=list[Frequency])
    marks: dict[str, float] = field(default_factory=dict[str, float])
    kinds: Counter[str] = field(default_factory=Counter[str])
    # One may be asked for again before the answer.
    _issued: defaultdict[tuple[str, ...], deque[float]] = field(
        default_factory=lambda: defaultdict[tuple[str, ...], deque[float]](deque)
    )
    _called: dict[int, tuple[str, float]] = field(default_factory=dict[int, tuple[str, float]])
    _working: dict[int, str] = field(default_factory=dict[int, str])
    _seen: set[int] = field(default_factory=set[int])

    def take(self, line: re.Match[str]) -> None:
        thread, name, rest = plain_line(line[1].strip()), line[5], line[6]
        pid, cpu, time_s = int(line[2]), int(line[3]), float(line[4])
        self.end_s = max(self.end_s, time_s)
        match name:
            case "sched_switch" if found := _SWITCH.match(rest):
                before, old, after, new = found.groups()
                if cpu not in self._seen:  # nothing was told before
                    self._seen.add(cpu)
                    self.switches.append(Switch(0.0, cpu, self._name(before, int(old))))
                self.switches.append(Switch(time_s, cpu, self._name(after, int(new))))
            case "workqueue_execute_start" if found := _WORK.match(rest):
                self._working[pid] = plain_line(found[1])
                self.switches.append(Switch(time_s, cpu, self._name(thread, pid)))
            case "workqueue_execute_end":
                self._working.pop(pid, None)
                self.switches.append(Switch(time_s, cpu, self._name(thread, pid)))
            case "block_rq_issue" if found := _REQUEST.match(rest):
                self._issued[_identity(found)].append(time_s)
            case "block_rq_complete" if found := _REQUEST.match(rest):
                self._complete(time_s, found)
            case "cpu_frequency" if found := _FREQUENCY.match(rest):
                self.frequencies.append(Frequency(time_s, int(found[2]), 1e3 * int(found[1])))
            case "tracing_mark_write" if rest.startswith(f": {MARK} "):
                self.marks[rest.removeprefix(f": {MARK} ").strip()] = time_s
            case _ if name.startswith("sys_"):
                self._call(time_s, thread, pid, name.removeprefix("sys_"), ends=rest.lstrip().startswith(_NO_CALL))
            case _:
                pass
        self.kinds[name] += 1

    def events(self) -> KernelEvents:
        """All that was taken, by time."""
        return KernelEvents(
            switches=sorted(self.switches, key=lambda each: each.time_s),
            requests=sorted(self.requests, key=lambda each: each.begin_s),
            calls=sorted(self.calls, key=lambda each: each.begin_s),
            frequencies=self.frequencies,
            marks=self.marks,
            kinds=dict(self.kinds),
            end_s=self.end_s,
            dropped=self.dropped,
            unfinished=self.unfinished + sum(map(len, self._issued.values())),
        )

    def _name(self, thread: str, pid: int) -> str:
        """Threads of one name are one; a worker has the name of its work, because chance decides who does it."""
        if pid == 0:
            return IDLE
        return f"{WORKER} {self._working[pid]}" if pid in self._working else thread_name(plain_line(thread))

    def _complete(self, time_s: float, request: re.Match[str]) -> None:
        device, flags, sector, sectors = request[1], request[2], request[3], int(request[4])
        waiting, kind = self._issued[_identity(request)], _kind(flags)
        if waiting:
            self.requests.append(Request(waiting.popleft(), time_s, device, kind, sectors * _SECTOR_BYTES, int(sector)))
        elif sectors:  # a write that lasts (FUA) is completed once more, with no sector, after the flush that it needs
            self.unfinished += 1

    def _call(self, time_s: float, thread: str, pid: int, name: str, *, ends: bool) -> None:
        if not ends:
            self._called[pid] = name, time_s
        elif pid in self._called:
            name, begin_s = self._called.pop(pid)
            self.calls.append(Call(begin_s, time_s, self._name(thread, pid), name))


def _identity(request: re.Match[str]) -> tuple[str, ...]:
    """Device, flags, first sector and size; a flush has another sector when it ends than when it begins."""
    return (request[1], request[2]) if _kind(request[2]) is RequestKind.FLUSH else request.groups()


def _kind(flags: str) -> RequestKind:
    """`FF` is a flush; else `D`, `W` or `R` says it, with `F` for flush and FUA (blk_fill_rwbs, block/blktrace.c)."""
    if "D" in flags:
        return RequestKind.DISCARD
    if flags.startswith("FF") or not {"R", "W"} & set(flags):
        return RequestKind.FLUSH
    return RequestKind.READ if "R" in flags else RequestKind.WRITE
