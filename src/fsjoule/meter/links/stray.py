"""Detects a second reader of the meter's port by the bytes that are missing, where no process can be asked. Pure.

Noise changes bytes; a second reader takes them away. So each span of 2 s compares the bytes that arrived with the bytes
of all frames that the meter sent, by their sequence numbers, less the frames that it dropped. A span is bad if at least
5 frames are lost and at least 5 % of the bytes are missing. Two bad spans in a row are a finding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fsjoule.meter.protocol.frames import Frame, InfoFrame
from fsjoule.meter.protocol.sequence import StreamCounters

_SPAN_S: Final = 2.0
_LEAST_FRAMES: Final = 5
_LEAST_FRACTION: Final = 0.05
_U32_MODULUS: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Stray:
    """Losses of the last span. `missing` is a fraction of the bytes; `bad_spans` counts consecutive bad spans."""

    lost_frames: int
    sent_frames: int
    missing: float
    bad_spans: int

    @property
    def found(self) -> bool:
        return self.bad_spans > 1

    def __str__(self) -> str:
        return f"{self.missing:.0%} of the meter's bytes are lost ({self.lost_frames} of {self.sent_frames} frames)"


@dataclass(slots=True)
class _SpanSums:
    time_s: float
    bytes: int = 0
    intact_bytes: int = 0
    lost: int = 0
    dropped: int = 0


class StrayWatch:
    """Follows one connection; each connection needs its own. `intact` counts its intact frames."""

    def __init__(self, now_s: float, counters: StreamCounters) -> None:
        self._dropped: int | None = None
        self._dropped_since = 0
        self.intact = 0
        self._begin(now_s, counters)
        self._bad_spans = 0

    def take(self, frames: Iterable[Frame], counters: StreamCounters, now_s: float) -> Stray | None:
        """Take new frames. Returns the losses of a span when it ends, else None."""
        for frame in frames:
            self.intact += 1
            if isinstance(frame, InfoFrame):
                self._note_dropped(frame.status.frames_dropped)
        if now_s - self._start.time_s < _SPAN_S:
            return None
        stray = self._judge(counters)
        self._begin(now_s, counters)
        return stray

    def _begin(self, now_s: float, counters: StreamCounters) -> None:
        self._start = _SpanSums(now_s, counters.bytes, counters.intact_bytes, counters.lost, self._dropped_since)
        self._intact_before = self.intact

    def _note_dropped(self, total: int) -> None:
        if self._dropped is not None:
            self._dropped_since += (total - self._dropped) % _U32_MODULUS
        self._dropped = total

    def _judge(self, counters: StreamCounters) -> Stray:
        lost = counters.lost - self._start.lost - (self._dropped_since - self._start.dropped)
        intact = self.intact - self._intact_before
        sent = intact + lost
        came = counters.bytes - self._start.bytes
        wanted = (counters.intact_bytes - self._start.intact_bytes) * sent / intact if intact else 0.0
        missing = max(0.0, 1.0 - came / wanted) if wanted > 0 else 0.0
        bad = lost >= _LEAST_FRAMES and missing >= _LEAST_FRACTION
        self._bad_spans = self._bad_spans + 1 if bad else 0
        return Stray(max(0, lost), max(0, sent), missing, self._bad_spans)
