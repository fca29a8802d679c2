"""Samples of the PPK2 become a trace. Pure.

100,000 samples a second are summed into ticks of a millisecond: each tick has the energy of all its samples, so nothing
is picked and nothing is lost by the decimation. Edges of a logic input are marks, to one sample.

Samples that the PPK2 takes while it changes its range are replaced, as Nordic's Power Profiler app does. After a change
the converter settles, and the first samples show what no load drew: a sleeping device that wakes up may
read amperes for 10 us. The app keeps two running averages of all samples, a fast one and a slow one. The sample with
the new range and the two behind it are replaced by the fast average, in the top range by the slow one. There the first
two are not taken into the averages either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.meter.protocol.ppk2 import (
    MOST_A,
    SAMPLE_HZ,
    SAMPLE_US,
    TOP_RANGE,
    Constants,
    Floats,
    FrameReader,
    Words,
    at_full_scale,
    logic,
    ranges_of,
)
from fsjoule.model import Mark, MarkSource, PlainInfo, PlainTrace
from fsjoule.model.labels import counted
from fsjoule.model.trace import BY_THE_CLOCK

# Weights of a new sample, and counts of samples (SerialDevice in the app's src/device/serialDevice.ts).
_FAST: Final = 0.18
_SLOW: Final = 0.06
_REPLACED: Final = 3
_HELD: Final = 2


class SpikeFilter:
    """Filters the samples of one stream, piece by piece."""

    def __init__(self) -> None:
        self._fast = _Average(_FAST)
        self._slow = _Average(_SLOW)
        self._range: int | None = None
        self._since = _REPLACED

    def filtered(self, amperes: Floats, ranges: Words) -> Floats:
        """The currents of the next samples with those replaced that followed a change of the range."""
        if not len(amperes):
            return amperes
        since = self._since_change(ranges)
        replaced = np.flatnonzero(since < _REPLACED)
        if not len(replaced):
            self._fast.feed(amperes)
            self._slow.feed(amperes)
            return amperes
        top = ranges >= TOP_RANGE
        fed = ~((since < _HELD) & top)
        # Of each sample, how many before it and with it were taken into the averages.
        taken = np.cumsum(fed)[replaced]
        fast, slow = (average.feed(amperes[fed])[taken] for average in (self._fast, self._slow))
        filtered = amperes.copy()
        filtered[replaced] = np.where(top[replaced], slow, fast)
        return filtered

    def _since_change(self, ranges: Words) -> npt.NDArray[np.int64]:
        """How many samples before each one the range changed; any number from `_REPLACED` on is long ago."""
        before = np.concatenate([ranges[:1] if self._range is None else [self._range], ranges[:-1]])
        numbers = np.arange(len(ranges), dtype=np.int64)
        changes = np.where(ranges != before, numbers, -1 - self._since)
        since = numbers - np.maximum.accumulate(changes)
        self._range = int(ranges[-1])
        self._since = min(int(since[-1]), _REPLACED)
        return since


class _Average:
    """A running average in which each new sample has one weight; the first sample is its beginning."""

    def __init__(self, weight: float) -> None:
        self._weight = weight
        self._now: float | None = None

    def feed(self, samples: Floats) -> Floats:
        """The average before these samples and after each of them, shape (n + 1,)."""
        if self._now is None:
            self._now = float(samples[0]) if len(samples) else 0.0
        if not len(samples):
            return np.array([self._now])
        # All benches import this module, few have a PPK2, and scipy.signal takes a second of processor time.
        from scipy.signal import lfilter  # noqa: PLC0415

        kept = 1 - self._weight
        after, _ = lfilter([self._weight], [1.0, -kept], samples, zi=[kept * self._now])
        averages = np.concatenate([[self._now], after])
        self._now = float(averages[-1])
        return averages


RATE_HZ: Final = 1000
_SAMPLES: Final = SAMPLE_HZ // RATE_HZ
_NJ_PER_J: Final = 1e9
# Over so long the least delay of what arrives tells how far the host's clock is from the instrument's.
_SPAN_US: Final = 1_000_000
# More samples are missing than the counter tells if what arrives is later than before by more than this, in so many
# spans: a busy computer is late, too, but not always by as much.
_UNSEEN_US: Final = 60_000
_SPANS: Final = 3
# So much faster or slower than the host's clock the instrument's may be.
_DRIFT: Final = 500e-6
# At a trace's end, what came last may be this much later than before, and by so many times what a busy computer has
# made good before: samples that are lost stay lost. It cannot be earlier, but for a first second that was late.
_RECENT_US: Final = 500_000
_LATE_US: Final = 5_000
_TIMES_MADE_GOOD: Final = 2
_EARLY_US: Final = 100_000


@dataclass(frozen=True, eq=False, slots=True)
class _Ticks:
    """Whole ticks: their numbers, energies in nJ, and whether one left the instrument's range."""

    numbers: npt.NDArray[np.int64]
    energy_nj: npt.NDArray[np.float64]
    clipped: npt.NDArray[np.bool_]


class Ppk2Trace:
    """Collects the bytes of one recording. `mark_input` is the logic input whose edges are marks; None: none is."""

    def __init__(self, info: PlainInfo, constants: Constants, volts: float, mark_input: int | None) -> None:
        self._info = info
        self._constants = constants
        self._volts = volts
        self._mark_input = mark_input
        self._reader = FrameReader()
        self._filter = SpikeFilter()
        self._clock = _Ppk2Clock()
        self._samples = 0  # received and lost
        self._level: bool | None = None
        self._part: _TracePart | None = None
        self._ticks: list[_Ticks] = []
        self._next_tick = 0
        self._told_nj = 0.0
        self._missed = 0
        self._marks: list[Mark] = []
        self._lost = self._losses = self._unseen = self._damaged = 0

    @property
    def end_us(self) -> int:
        """Until when samples have arrived, in the instrument's clock; 0 before the first one."""
        return self._time_us(self._samples) if self._samples else 0

    def at(self, host_us: int) -> int:
        """A moment of the host's monotonic clock in the instrument's. There must have been a sample."""
        return round(host_us - self._clock.offset_us)

    @property
    def is_late(self) -> bool:
        """Whether what came last is behind the host's clock, or before it: samples are lost, or it was busy.

        Half a second later the samples' faults say which.
        """
        return self._clock.is_odd

    def feed(self, data: bytes, host_us: int) -> None:
        """Take bytes that have arrived by this time of the host."""
        for run in self._reader.feed(data):
            self._damaged += run.damaged
            if run.lost:
                self._losses += 1
                self._lost += run.lost
                self._samples += run.lost
            self._take_samples(run.words)
        if self._samples:
            unseen = self._clock.heard(host_us, self._samples * SAMPLE_US) // SAMPLE_US
            if unseen:
                self._samples += unseen
                self._unseen += unseen

    def mark(self, mark: Mark) -> None:
        """Add a mark whose time is the host's."""
        self._marks.append(Mark(self.at(mark.time_us), mark.text, mark.source))

    def take(self) -> PlainTrace:
        """The ticks that are whole and not taken yet, with the marks since the last call; perhaps no tick."""
        nothing = _Ticks(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0, dtype=bool))
        numbers, energy_nj, clipped = (
            np.concatenate(parts)
            for parts in zip(*((t.numbers, t.energy_nj, t.clipped) for t in (nothing, *self._ticks)), strict=True)
        )
        self._ticks = []
        # Rounded sums, so that no rounding adds up.
        sums_nj = np.round(self._told_nj + np.concatenate([[0.0], np.cumsum(energy_nj)])).astype(np.int64)
        begin, end = self._next_tick, int(numbers[-1]) + 1 if len(numbers) else self._next_tick
        # A checkpoint at both ends, and at the first tick behind each gap: a gap lies behind its checkpoint's ticks.
        before = np.concatenate([[begin - 1], numbers])
        behind = np.flatnonzero(np.diff(before) > 1)
        told = np.concatenate([[begin], numbers[behind], [end]])
        at = np.concatenate([[0], behind, [len(numbers)]])
        missed = self._missed + (told - begin) - at
        trace = PlainTrace(
            info=self._info,
            ticks=numbers,
            times_us=self._start_us + numbers * (1_000_000 // RATE_HZ),
            energy_nj=np.diff(sums_nj),
            voltage_uv=np.full(len(numbers), round(self._volts * 1e6), dtype=np.int64),
            clipped_samples=clipped.astype(np.uint8),
            checkpoint_ticks=told,
            checkpoint_nj=sums_nj[at],
            checkpoint_missed=missed,
            marks=tuple(sorted(self._marks, key=lambda mark: mark.time_us)),
            missed=int(missed[-1]) - self._missed,
            lost=0,
            faults=self._faults(),
        )
        self._marks = []
        self._next_tick, self._missed = end, int(missed[-1])
        self._told_nj += float(energy_nj.sum())
        return trace

    @property
    def _start_us(self) -> int:
        return self._clock.start_us

    def _time_us(self, sample: int) -> int:
        return self._start_us + sample * SAMPLE_US

    def _faults(self) -> tuple[str, ...]:
        found: list[str] = []
        if self._losses:
            found.append(
                f"{counted(self._losses, 'loss', 'losses')} of at least {counted(self._lost, 'sample')}: the computer "
                "or its USB was too busy"
            )
        odd_us = self._unseen * SAMPLE_US + self._clock.odd_us
        if odd_us:
            found.append(
                f"{abs(odd_us) / 1e3:.0f} ms of samples {'are missing' if odd_us > 0 else 'are too many'} "
                f"{BY_THE_CLOCK}, and the instrument, which counts to 64 only, does not say where"
            )
        if self._damaged:
            found.append(f"{counted(self._damaged, 'byte')} that belong to no sample")
        return tuple(found)

    def _take_samples(self, words: Words) -> None:
        amperes = self._filter.filtered(self._constants.amperes(words, self._volts), ranges_of(words))
        self._take_edges(words)
        count, begin = len(words), self._samples
        numbers = np.arange(begin // _SAMPLES, (begin + count - 1) // _SAMPLES + 1, dtype=np.int64)
        begins = np.maximum(numbers * _SAMPLES - begin, 0)
        sums = np.add.reduceat(amperes, begins)
        counts = np.diff(np.append(begins, count))
        full = at_full_scale(words)
        over = np.logical_or.reduceat(full, begins) if full.any() else np.zeros(len(begins), dtype=bool)
        if self._part is not None and self._part.number == numbers[0]:
            sums[0] += self._part.sum_a
            counts[0] += self._part.count
            over[0] |= self._part.over
        self._part = _TracePart(int(numbers[-1]), float(sums[-1]), int(counts[-1]), bool(over[-1]))
        self._samples += count
        whole = counts == _SAMPLES
        if whole.any():
            mean_a = sums[whole] / _SAMPLES
            energy_nj = mean_a * (self._volts * _NJ_PER_J / RATE_HZ)
            self._ticks.append(_Ticks(numbers[whole], energy_nj, over[whole] | (mean_a > MOST_A)))

    def _take_edges(self, words: Words) -> None:
        if self._mark_input is None:
            return
        levels = logic(words, self._mark_input)
        before = np.concatenate([levels[:1] if self._level is None else [self._level], levels[:-1]])
        for at in np.flatnonzero(levels != before).tolist():
            source = MarkSource.RISING if levels[at] else MarkSource.FALLING
            self._marks.append(Mark(self._time_us(self._samples + at), "", source))
        self._level = bool(levels[-1])


@dataclass(frozen=True, slots=True)
class _TracePart:
    """A tick that is not whole yet."""

    number: int
    sum_a: float
    count: int
    over: bool


class _Ppk2Clock:
    """The instrument's clock, which its samples count, against the host's; it begins at the host's time.

    The instrument does not see a loss of a whole turn of its counter. But each makes all that follows later.
    """

    def __init__(self) -> None:
        self.start_us = 0
        self._begin_us: int | None = None  # of the present span
        self._end_us = 0
        self._least_us = 0
        # The least delay that is no loss, and that of the first span.
        self._usual_us: float | None = None
        self._first_us = 0
        self._late_us: list[int] = []
        # The largest of the spans' least delays, and how much less a later one was.
        self._highest_us: int | None = None
        self._made_good_us = 0
        self._recent: deque[tuple[int, int]] = deque()

    @property
    def offset_us(self) -> float:
        """How far the host's clock is ahead, less the least delay of what arrives."""
        return self._least_us if self._usual_us is None else min(self._least_us, self._usual_us)

    @property
    def odd_us(self) -> int:
        """By how much more what came last is late than before, or early (< 0); 0 if it can be a busy computer's."""
        return self._odd_us(self._recent)

    @property
    def is_odd(self) -> bool:
        """The same of the newest alone: where only a recording's end is lossy, the last half second is not all late."""
        return any(map(self._odd_us, (list(self._recent)[-1:], self._recent)))

    def _odd_us(self, heard: Collection[tuple[int, int]]) -> int:
        if not heard:
            return 0
        least_us, ran_us = min(delay for _, delay in heard), self._end_us - self.start_us
        late_us = round(least_us - self.offset_us)
        early_us = round(least_us - self._first_us + _DRIFT * ran_us)
        if late_us > _LATE_US + _TIMES_MADE_GOOD * self._made_good_us + _DRIFT * ran_us:
            return late_us
        return early_us if early_us < -_EARLY_US else 0

    def heard(self, host_us: int, counted_us: int) -> int:
        """Samples of this length have arrived by this time. Returns the length of those that are missing."""
        if self._begin_us is None:
            self.start_us = host_us - counted_us
            self._begin_us = host_us
        delay_us = host_us - self.start_us - counted_us
        self._end_us = host_us
        self._recent.append((host_us, delay_us))
        while self._recent[0][0] < host_us - _RECENT_US:
            self._recent.popleft()
        if host_us - self._begin_us < _SPAN_US:
            self._least_us = min(self._least_us, delay_us)
            return 0
        unseen_us = self._unseen_us(host_us - self._begin_us)
        self._begin_us, self._least_us = host_us, delay_us - unseen_us
        return unseen_us

    def _unseen_us(self, span_us: int) -> int:
        """At the end of a span: by how much what arrives has been late for some spans."""
        self._highest_us = self._least_us if self._highest_us is None else max(self._highest_us, self._least_us)
        self._made_good_us = max(self._made_good_us, self._highest_us - self._least_us)
        if self._usual_us is None:
            self._usual_us = self._first_us = self._least_us
            return 0
        self._late_us = [*self._late_us[1 - _SPANS :], self._least_us]
        unseen_us = int(min(self._late_us) - self._usual_us)
        if len(self._late_us) == _SPANS and unseen_us > _UNSEEN_US:
            self._late_us, self._highest_us = [], None
            self._recent = deque((host_us, delay_us - unseen_us) for host_us, delay_us in self._recent)
            return unseen_us
        if self._least_us <= self._usual_us + _UNSEEN_US:
            self._usual_us = min(self._least_us, self._usual_us + _DRIFT * span_us)
        return 0
