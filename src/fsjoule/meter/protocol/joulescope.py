"""Streams of a Joulescope, as its driver publishes them, become a trace. Pure.

A message has `data` from `sample_id` on, one sample per `decimate_factor` counts of a clock of `sample_rate`. The power
is summed into ticks, so no sample is left out; NaN is a sample that did not arrive. Digital inputs come as bits, eight
a byte, the earliest lowest: a message is only as long as the next one's `sample_id` allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fsjoule.model import Mark, MarkSource, PlainInfo, PlainTrace

JOULESCOPE: Final = "joulescope"
POWER: Final = "p"
VOLTAGE: Final = "v"
# A tick with fewer samples than this part of them is missed: too little is known of it.
_LEAST_PART: Final = 0.5
# The ends of its largest ranges (User's Guides of JS110 and JS220).
_MOST_V: Final = 15.0
_MOST_A: Final = 10.0

Floats = npt.NDArray[np.float64]
Message = Mapping[str, Any]


@dataclass(slots=True)
class _TickSums:
    """Sums and counts of one quantity's samples in each tick from `first` on."""

    first: int | None = None
    end_count: int = 0
    chunks: list[tuple[int, Floats, Floats]] | None = None

    def add(self, message: Message, tick_us: float) -> int:
        """Add a message's samples. Returns how many of them are missing."""
        step, rate = int(message["decimate_factor"]), int(message["sample_rate"])
        values = np.asarray(message["data"], dtype=np.float64)
        begin = int(message["sample_id"])
        per_tick = _counts_per_tick(rate, tick_us)
        ticks = (begin + np.arange(len(values), dtype=np.int64) * step) // per_tick
        self.end_count = begin + len(values) * step
        valid = np.isfinite(values)
        if len(ticks):
            at = ticks - ticks[0]
            length = int(at[-1]) + 1
            sums = np.bincount(at[valid], weights=values[valid], minlength=length).astype(np.float64)
            counts = np.bincount(at[valid], minlength=length).astype(np.float64)
            if self.chunks is None:
                # A first tick that is not whole is left out.
                self.first, self.chunks = -(-begin // per_tick), []
            self.chunks.append((int(ticks[0]), sums, counts))
        return len(values) - int(np.count_nonzero(valid))

    def between(self, begin: int, end: int) -> tuple[Floats, Floats]:
        """Sums and counts of the ticks from `begin` to `end`, which are forgotten then."""
        sums, counts = np.zeros(end - begin), np.zeros(end - begin)
        kept: list[tuple[int, Floats, Floats]] = []
        for first, chunk, valid in self.chunks or ():
            low, high = max(first, begin), min(first + len(chunk), end)
            if low < high:
                sums[low - begin : high - begin] += chunk[low - first : high - first]
                counts[low - begin : high - begin] += valid[low - first : high - first]
            if first + len(chunk) > end:
                kept.append((first, chunk, valid))
        self.chunks = kept
        return sums, counts


def _counts_per_tick(rate: int, tick_us: float) -> int:
    """Counts of the instrument's clock, which has whole kHz, in a tick of a millisecond."""
    return round(rate * tick_us * 1e-6)


class StreamTrace:
    """Collects the messages of one instrument, from several threads only with a lock."""

    def __init__(self, info: PlainInfo) -> None:
        self._info = info
        self._sums = {POWER: _TickSums(), VOLTAGE: _TickSums()}
        self._per_tick = 0.0
        self._rate = 0
        self._map: Mapping[str, Any] = {}
        self._next_tick: int | None = None
        self._nj = self._missed = self._missing = 0
        self._marks: list[Mark] = []
        self._host: list[tuple[int, str]] = []
        self._bits: Message | None = None
        self._level: int | None = None

    @property
    def begun(self) -> bool:
        return self._end_tick() is not None

    def stream(self, quantity: str, message: Message) -> None:
        """Take a message of the power or the voltage."""
        self._rate, self._map = int(message["sample_rate"]), message["time_map"]
        self._per_tick = self._info.tick_us * 1e-6 * self._rate / int(message["decimate_factor"])
        missing = self._sums[quantity].add(message, self._info.tick_us)
        self._missing += missing if quantity == POWER else 0

    def bits(self, message: Message) -> None:
        """Take a message of the digital input that carries the marks."""
        before, self._bits = self._bits, message
        if before is not None:
            self._edges(before, int(message["sample_id"]))

    def mark(self, utc: int, text: str) -> None:
        """A mark of the host, at a time of the driver's: 2**30 a second."""
        self._host.append((utc, text))

    def time_us(self, utc: int) -> float:
        """A time of the driver's in the instrument's clock, by its newest comparison of both; 0 without one."""
        if not self._map:
            return 0.0
        seconds = (utc - self._map["offset_time"]) / 2**30
        return (self._map["offset_counter"] + seconds * self._map["counter_rate"]) / self._rate * 1e6

    def end_us(self) -> float:
        """Up to where ticks are whole; 0 without one."""
        end = self._end_tick()
        return 0.0 if end is None else end * self._info.tick_us

    def take(self, *, last: bool = False) -> PlainTrace:
        """The ticks that are whole and not taken yet, with their marks; `last`: nothing more will come."""
        if last and self._bits is not None:
            self._edges(self._bits, None)
            self._bits = None
        end = self._end_tick()
        begin = self._next_tick
        if begin is None:
            firsts = [each.first for each in self._sums.values() if each.first is not None]
            begin = max(firsts) if len(firsts) == len(self._sums) else 0
        end = begin if end is None else max(begin, end)
        energy, counts = self._sums[POWER].between(begin, end)
        volts, volt_counts = self._sums[VOLTAGE].between(begin, end)
        kept = np.minimum(counts, volt_counts) >= max(1.0, _LEAST_PART * self._per_tick)
        ticks = np.arange(begin, end, dtype=np.int64)
        tick_nj = np.zeros(len(ticks), dtype=np.int64)
        mean_v, mean_w = volts[kept] / volt_counts[kept], energy[kept] / counts[kept]
        tick_nj[kept] = np.round(mean_w * self._info.tick_us * 1e3)
        before_nj = self._nj + np.concatenate([[0], np.cumsum(tick_nj)])
        before_missed = self._missed + np.concatenate([[0], np.cumsum(~kept)])
        # A gap lies behind the samples of its checkpoint.
        behind = np.flatnonzero(kept & np.concatenate([[False], ~kept])[: len(kept)])
        told = np.unique(np.concatenate([[0, len(kept)], behind])).astype(np.int64)
        full = (np.abs(mean_v) >= _MOST_V) | (np.abs(mean_w) >= np.abs(mean_v) * _MOST_A) & (mean_w != 0)
        faults = (f"{self._missing} samples of the Joulescope did not arrive",) if self._missing else ()
        if end > begin:
            self._next_tick, self._nj, self._missed = end, int(before_nj[-1]), int(before_missed[-1])
        return PlainTrace(
            info=self._info,
            ticks=ticks[kept],
            times_us=ticks[kept] * round(self._info.tick_us),
            energy_nj=tick_nj[kept],
            voltage_uv=np.round(mean_v * 1e6).astype(np.int64),
            clipped_samples=full.astype(np.uint8),
            checkpoint_ticks=begin + told,
            checkpoint_nj=before_nj[told],
            checkpoint_missed=before_missed[told],
            marks=self._taken_marks(),
            missed=int(np.count_nonzero(~kept)),
            lost=0,
            faults=faults,
        )

    def _end_tick(self) -> int | None:
        if not self._rate or any(each.first is None for each in self._sums.values()):
            return None
        per_tick = _counts_per_tick(self._rate, self._info.tick_us)
        return min(each.end_count // per_tick for each in self._sums.values())

    def _edges(self, message: Message, until: int | None) -> None:
        step, rate, begin = int(message["decimate_factor"]), int(message["sample_rate"]), int(message["sample_id"])
        levels = np.unpackbits(np.asarray(message["data"], dtype=np.uint8), bitorder="little").astype(np.int8)
        if until is not None:
            levels = levels[: max(0, (until - begin) // step)]
        if not len(levels):
            return
        before = levels[0] if self._level is None else self._level
        for at in np.flatnonzero(np.diff(levels, prepend=before)).tolist():
            source = MarkSource.RISING if levels[at] else MarkSource.FALLING
            self._marks.append(Mark(round((begin + at * step) * 1e6 / rate), "", source))
        self._level = int(levels[-1])

    def _taken_marks(self) -> tuple[Mark, ...]:
        host = [Mark(round(self.time_us(utc)), text, MarkSource.HOST) for utc, text in self._host]
        marks = tuple(sorted([*self._marks, *host], key=lambda mark: mark.time_us))
        self._marks, self._host = [], []
        return marks
