"""Refuses frames whose checksum is right and whose numbers cannot be, by the frames before them. Pure.

A broken meter or firmware makes them; taken as they are, they would shift samples in time, or add joules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from fsjoule.meter.protocol.frames import Frame, InfoFrame, MarkFrame, SamplesFrame
from fsjoule.meter.protocol.sequence import StreamCounters

_U32_MODULUS: Final = 1 << 32
_U64_MODULUS: Final = 1 << 64
# A thousand years in microseconds, as in a stored trace.
_LATEST: Final = 1 << 55
# Time and ticks of one stream are both rounded; no oscillator is off by more than this.
_TICKS_APART: Final = 2
_DRIFT: Final = 1e-3


@dataclass(slots=True)
class Agreement:
    """Takes the frames of one line; those that it refuses count as damaged in `counters`.

    A samples frame must agree with the one before it. Where it does not, the next one decides which of the two was
    wrong.
    """

    counters: StreamCounters
    _tick_us: dict[int, float] = field(default_factory=dict[int, float])
    _last: SamplesFrame | None = None
    _doubted: SamplesFrame | None = None

    def agreed(self, frames: Iterable[Frame]) -> list[Frame]:
        """The frames that are taken, in their order."""
        return [frame for frame in frames if self._takes(frame)]

    def _takes(self, frame: Frame) -> bool:
        match frame:
            case SamplesFrame():
                taken = max(frame.first_tick, frame.first_time_us) < _LATEST and self._takes_samples(frame)
            case MarkFrame():
                taken = frame.time_us < _LATEST
            case InfoFrame():
                self._tick_us = {frame.status.stream_id: frame.info.tick_us}
                taken = True
            case _:
                taken = True
        self.counters.damaged += not taken
        return taken

    def _takes_samples(self, frame: SamplesFrame) -> bool:
        for other in (self._last, self._doubted):
            if other is not None and other.stream_id == frame.stream_id:
                if self._agree(other, frame):
                    self._last, self._doubted = max(frame, other, key=_tick), None
                    return True
            elif other is self._last:
                self._last, self._doubted = frame, None
                return True
        self._doubted = frame
        return False

    def _agree(self, one: SamplesFrame, other: SamplesFrame) -> bool:
        """Whether two frames can be of one stream: their ticks, times and sums."""
        before, after = sorted((one, other), key=_tick)
        ticks = after.first_tick - before.first_tick
        missed = (after.missed_total - before.missed_total) % _U32_MODULUS
        lost = ticks - before.count - missed
        if lost < 0 or before.wide != after.wide:
            return lost >= 0  # the builder leaves out samples of another type
        tick_us = self._tick_us.get(before.stream_id)
        if tick_us is not None:
            apart_us = abs(after.first_time_us - before.first_time_us - ticks * tick_us)
            if apart_us > (_TICKS_APART + _DRIFT * ticks) * tick_us:
                return False
        bus = before.bus_raw.astype(np.int64)
        raw = (after.energy_raw - before.energy_raw - int((before.shunt_raw * bus).sum())) % _U64_MODULUS
        most_bus, most_shunt = (0xFFFFF, 1 << 19) if before.wide else (0x1FFF, 1 << 15)
        most = lost * most_bus
        return (
            0 <= after.bus_total - before.bus_total - int(bus.sum()) <= most
            and min(raw, _U64_MODULUS - raw) <= most * most_shunt
        )


def _tick(frame: SamplesFrame) -> int:
    return frame.first_tick
