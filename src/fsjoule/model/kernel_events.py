"""What a board's kernel told of one measurement: times by the board's clock, in seconds since its boot."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# Why a measurement whose events were traced is invalid.
TRACED: Final = "the kernel's events were traced, which slows the board down: its figures do not count"

IDLE: Final = "idle"
"""The thread of a processor that has nothing to do."""

WORKER: Final = "kworker"
"""What the name of a thread that does the kernel's deferred work begins with."""

MARK: Final = "fsjoule"
"""What a mark in the trace begins with."""


class RequestKind(StrEnum):
    """What a storage device is asked for. A write that is to last at once (FUA) is a write."""

    READ = "read"
    WRITE = "write"
    FLUSH = "flush"
    DISCARD = "discard"


@dataclass(frozen=True, slots=True)
class Switch:
    """From now on a processor runs this thread; `thread` is `idle`, or its name and, of a worker, its work."""

    time_s: float
    cpu: int
    thread: str


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a storage device, from its issue to its completion."""

    begin_s: float
    end_s: float
    device: str
    kind: RequestKind
    size_bytes: int
    sector: int


@dataclass(frozen=True, slots=True)
class Call:
    """A program's call of the kernel, from its begin to its end: `fsync`."""

    begin_s: float
    end_s: float
    thread: str
    name: str


@dataclass(frozen=True, slots=True)
class Frequency:
    """From now on a processor has this frequency."""

    time_s: float
    cpu: int
    hz: float


@dataclass(frozen=True, slots=True)
class KernelEvents:
    """All of one measurement. `marks` are the times of the meter's marks by their texts.

    `dropped` events, the last ones, found no room: nothing is known from `end_s` on. `unfinished` are requests that had
    no end. `kinds` has the number of events of each name.
    """

    switches: Sequence[Switch]
    requests: Sequence[Request]
    calls: Sequence[Call]
    frequencies: Sequence[Frequency]
    marks: Mapping[str, float]
    kinds: Mapping[str, int]
    end_s: float
    dropped: int = 0
    unfinished: int = 0


def thread_name(name: str) -> str:
    """A thread's name without its number; a worker has the name of its queue, as long as it shows one."""
    worker = re.fullmatch(rf"{WORKER}/[^+-]*[+-]?(.*)", name)
    if worker is not None:
        return f"{WORKER} {worker[1]}".rstrip()
    return re.sub(r"[/-]?\d+$", "", name) or name
