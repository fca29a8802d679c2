"""The figures that `fsjoule meter watch` shows, updated frame by frame. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fsjoule.meter.protocol.frames import Frame, InfoFrame, MarkFrame, SamplesFrame
from fsjoule.model import Ina219Info, Mark, MeterStatus

MARKS_KEPT: Final = 5
NOW_S: Final = 0.2  # "now" is the mean over about this time
_U32_MODULUS: Final = 1 << 32
_I64_HALF: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Reading:
    """Figures since the watch began; powers in W, times in the meter's clock. None until there is a sample."""

    seconds: float
    watts: float | None
    volts: float | None
    amperes: float | None
    least_watts: float | None
    mean_watts: float | None
    largest_watts: float | None
    joules: float
    received: int
    missed: int
    lost: int
    streams: int


@dataclass(slots=True)
class _Moment:
    """A frame's samples: their sums, and their extremes in watts. `time_us` continues when the meter restarts."""

    time_us: float
    count: int
    shunt: int
    bus: int
    watts: float
    least: float
    largest: float


@dataclass(slots=True)
class _Stream:
    """One stream of the meter, from its first frame seen to its last."""

    info: Ina219Info
    first: SamplesFrame | None = None
    last: SamplesFrame | None = None
    energy_raw: int = 0  # from the first frame to the last one
    received: int = 0
    missed: int = 0
    lost: int = 0
    joules: float = 0.0
    seconds: float = 0.0

    def take(self, frame: SamplesFrame, raw: int, bus: int) -> None:
        """`raw` and `bus` are the sums over the frame's samples."""
        first = self.first = self.first or frame
        self.received += frame.count
        if frame.first_tick < first.first_tick:
            return  # a late frame
        # The meter's sum wraps: with an INA228 after months, or at its full scale after hours.
        self.energy_raw += _difference(frame.energy_raw, (self.last or first).energy_raw)
        self.last = frame
        sums = (np.array([float(self.energy_raw + raw)]), np.array([float(frame.bus_total - first.bus_total + bus)]))
        self.joules = float(self.info.power_w(*sums)[0]) / self.info.rate_hz
        ticks = frame.first_tick + frame.count - first.first_tick
        self.missed = (frame.missed_total - first.missed_total) % _U32_MODULUS
        self.lost = max(0, ticks - self.received - self.missed)
        self.seconds = (frame.first_time_us - first.first_time_us) / 1e6 + frame.count / self.info.rate_hz


def _difference(later: int, earlier: int) -> int:
    """Of a signed sum of 64 bits that wraps."""
    return (later - earlier + _I64_HALF) % (2 * _I64_HALF) - _I64_HALF


class Live:
    """Takes frames; gives figures and the plot's values. The plot reaches back at most `history_s`."""

    def __init__(self, info: InfoFrame, history_s: float) -> None:
        self.status: MeterStatus = info.status
        self.marks: deque[tuple[float, Mark]] = deque(maxlen=MARKS_KEPT)
        self._streams = [_Stream(info.info)]
        self._history_us = history_s * 1e6
        self._moments: deque[_Moment] = deque()
        self._least: float | None = None
        self._largest: float | None = None

    @property
    def info(self) -> Ina219Info:
        return self._streams[-1].info

    def take(self, frames: Iterable[Frame]) -> list[Mark]:
        """Take frames in order of arrival. Returns the marks among them."""
        marks: list[Mark] = []
        for frame in frames:
            if isinstance(frame, InfoFrame):
                if frame.status.stream_id != self.status.stream_id:
                    self._streams.append(_Stream(frame.info))
                self.status = frame.status
            elif isinstance(frame, SamplesFrame):
                if frame.stream_id == self.status.stream_id:  # else what explains it is still to come
                    self._take_samples(frame)
            elif isinstance(frame, MarkFrame) and not frame.damaged:
                marks.append(Mark(frame.time_us, frame.text, frame.source, frame.checked))
        self.marks.extend((self.reading().seconds, mark) for mark in marks)
        return marks

    def reading(self) -> Reading:
        seconds = sum(stream.seconds for stream in self._streams)
        joules = sum(stream.joules for stream in self._streams)
        now = self._now()
        count = sum(moment.count for moment in now)
        info = self.info
        return Reading(
            seconds=seconds,
            watts=sum(moment.watts for moment in now) / count if count else None,
            volts=_volts(sum(moment.bus for moment in now) / count, info) if count else None,
            amperes=_amperes(sum(moment.shunt for moment in now) / count, info) if count else None,
            least_watts=self._least,
            mean_watts=joules / sampled_s if (sampled_s := self._sampled_s()) else None,
            largest_watts=self._largest,
            joules=joules,
            received=sum(stream.received for stream in self._streams),
            missed=sum(stream.missed for stream in self._streams),
            lost=sum(stream.lost for stream in self._streams),
            streams=len(self._streams),
        )

    def ranges(self, count: int, span_s: float) -> Sequence[tuple[float, float] | None]:
        """The least and largest power in each of `count` equal parts of the last `span_s` seconds."""
        if not self._moments:
            return [None] * count
        end_us = self._moments[-1].time_us
        part_us = span_s * 1e6 / count
        # Parts begin at round times, so that the drawn part does not change while it moves to the left.
        last = int(end_us // part_us)
        parts: list[tuple[float, float] | None] = [None] * count
        for moment in self._moments:
            at = count - 1 - (last - int(moment.time_us // part_us))
            if at >= 0 and moment.count:
                before = parts[at]
                least, largest = before or (moment.least, moment.largest)
                parts[at] = min(least, moment.least), max(largest, moment.largest)
        return parts

    def _take_samples(self, frame: SamplesFrame) -> None:
        stream = self._streams[-1]
        bus = frame.bus_raw.astype(np.int64)
        raw = frame.shunt_raw * bus
        watts = stream.info.power_w(raw, bus)
        stream.take(frame, int(raw.sum()), int(bus.sum()))
        if not frame.count:
            return
        least, largest = float(watts.min()), float(watts.max())
        self._least = least if self._least is None else min(self._least, least)
        self._largest = largest if self._largest is None else max(self._largest, largest)
        self._moments.append(
            _Moment(
                sum(each.seconds for each in self._streams) * 1e6,
                frame.count,
                int(frame.shunt_raw.sum(dtype=np.int64)),
                int(bus.sum()),
                float(watts.sum()),
                least,
                largest,
            )
        )
        while self._moments[-1].time_us - self._moments[0].time_us > self._history_us:
            self._moments.popleft()

    def _now(self) -> list[_Moment]:
        if not self._moments:
            return []
        begin_us = self._moments[-1].time_us - NOW_S * 1e6
        found: list[_Moment] = []
        for moment in reversed(self._moments):
            if moment.time_us < begin_us:
                break
            found.append(moment)
        return found

    def _sampled_s(self) -> float:
        """The time in which the joules were drawn: all samples, lost ones included."""
        return sum((stream.received + stream.lost) / stream.info.rate_hz for stream in self._streams)


def _volts(bus: float, info: Ina219Info) -> float:
    return bus * info.bus_lsb_mv * 1e-3 * (1 + info.calibration.bus_gain_ppm * 1e-6)


def _amperes(shunt: float, info: Ina219Info) -> float:
    volts = (shunt - info.shunt_offset_raw) * info.shunt_lsb_uv * 1e-6
    return volts / (info.shunt_uohm * 1e-6) * (1 + info.calibration.current_gain_ppm * 1e-6)
