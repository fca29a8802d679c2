"""The figures that `fsjoule meter watch` shows, updated frame by frame. Pure.

The plot of power over time is of braille characters of two by four dots, with an axis that fits the data.
"""

from __future__ import annotations

import math
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
class LiveReading:
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
class _LiveStream:
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
        self._streams = [_LiveStream(info.info)]
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
                    self._streams.append(_LiveStream(frame.info))
                self.status = frame.status
            elif isinstance(frame, SamplesFrame):
                if frame.stream_id == self.status.stream_id:  # else what explains it is still to come
                    self._take_samples(frame)
            elif isinstance(frame, MarkFrame) and not frame.damaged:
                marks.append(Mark(frame.time_us, frame.text, frame.source, frame.checked))
        self.marks.extend((self.reading().seconds, mark) for mark in marks)
        return marks

    def reading(self) -> LiveReading:
        seconds = sum(stream.seconds for stream in self._streams)
        joules = sum(stream.joules for stream in self._streams)
        now = self._now()
        count = sum(moment.count for moment in now)
        info = self.info
        return LiveReading(
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


Range = tuple[float, float]

_ACROSS: Final = 2
_DOWN: Final = 4
_BRAILLE: Final = 0x2800
# Bits of the dots in a character (Unicode, Braille Patterns), by row from the top and column.
_DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
# "-0.0025 W" is the longest label, because of _LEAST_SPAN_W.
_LABEL_WIDTH: Final = 9
# Smallest span, so that quantisation does not fill the plot: as a fraction of the largest value, and in watts.
_LEAST_SPAN: Final = 0.01
_LEAST_SPAN_W: Final = 0.002
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)


def dots_across(width: int) -> int:
    return max(1, width - _LABEL_WIDTH - 1) * _ACROSS


def plot(values: Sequence[Range | None], width: int, height: int) -> list[str]:
    """`height` lines of text, `width` wide. A value is (least, largest), None for a gap; the last is at the right."""
    shown = list(values[-dots_across(width) :])
    known = [value for value in shown if value is not None]
    low, high, step = axis(min((a for a, _ in known), default=0.0), max((b for _, b in known), default=1.0), height)
    columns = dots_across(width) // _ACROSS
    cells = [[0] * columns for _ in range(height)]
    first = columns * _ACROSS - len(shown)
    for at, value in enumerate(shown, start=first):
        if value is not None:
            bottom, top = (_row(v, low, high, height) for v in value)
            for row in range(top, bottom + 1):
                cells[row // _DOWN][at // _ACROSS] |= _DOTS[row % _DOWN][at % _ACROSS]
    labels = _labels(low, high, step, height)
    drawn = ["".join(chr(_BRAILLE + cell) for cell in line) for line in cells]
    return [
        f"{labels.get(row, ''):>{_LABEL_WIDTH}}{'┤' if row in labels else '│'}{line}" for row, line in enumerate(drawn)
    ]


def axis(low: float, high: float, height: int) -> tuple[float, float, float]:
    """(begin, end, step between labels): round numbers around the data."""
    span = max(high - low, _LEAST_SPAN * max(abs(low), abs(high)), _LEAST_SPAN_W)
    rough = span / max(1, min(height - 1, 4))
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * s for s in _STEPS if power * s >= rough * (1 - 1e-9))
    begin = math.floor(low / step + 1e-9) * step
    end = math.ceil(high / step - 1e-9) * step
    return begin, max(end, begin + step), step


def _row(value: float, low: float, high: float, height: int) -> int:
    rows = height * _DOWN - 1
    return rows - round(min(1.0, max(0.0, (value - low) / (high - low))) * rows)


def _labels(low: float, high: float, step: float, height: int) -> dict[int, str]:
    decimals = max(0, -math.floor(math.log10(step) + 1e-9) + (1 if _has_half(step) else 0))
    count = round((high - low) / step)
    return {
        _row(low + number * step, low, high, height) // _DOWN: f"{low + number * step:.{decimals}f} W"
        for number in range(count + 1)
    }


def _has_half(step: float) -> bool:
    digit = step / 10.0 ** math.floor(math.log10(step) + 1e-9)
    return abs(digit - 2.5) < 1e-6  # noqa: PLR2004 - the one step with two digits
