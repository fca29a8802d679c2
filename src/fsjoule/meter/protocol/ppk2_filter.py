"""Replaces the samples that the PPK2 takes while it changes its range, as Nordic's Power Profiler app does. Pure.

After a change the converter settles, and the first samples show what no load drew: a sleeping device that wakes up may
read amperes for 10 us. The app keeps two running averages of all samples, a fast one and a slow one. The sample with
the new range and the two behind it are replaced by the fast average, in the top range by the slow one. There the first
two are not taken into the averages either.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.meter.protocol.ppk2 import TOP_RANGE, Floats, Words

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
