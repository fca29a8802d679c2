"""The figures of `fsjoule meter watch` and `record` from pieces of a trace, for instruments without a stream. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fsjoule.meter.tools.live import MARKS_KEPT, NOW_S, Reading
from fsjoule.model import Mark, Trace


class PieceFigures:
    """Takes the pieces of one trace in order; gives figures and the plot's values.

    Joules include the energy of lost ticks, which the instrument's sums tell. The plot reaches back `history_s`.
    """

    def __init__(self, history_s: float) -> None:
        self.marks: deque[tuple[float, Mark]] = deque(maxlen=MARKS_KEPT)
        self._history_us = history_s * 1e6
        self._recent: deque[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], Trace]] = deque()
        self._first: Trace | None = None
        self._seconds = self._joules = 0.0
        self._received = self._lost = self._missed = 0
        self._least = self._largest = float("nan")

    def take(self, piece: Trace) -> tuple[Mark, ...]:
        """Take a piece. Returns its marks."""
        self._received += len(piece.ticks)
        self._lost += piece.lost
        self._missed += piece.missed
        if len(piece.ticks):
            watts, rate_hz = piece.power_w, piece.info.rate_hz
            first = self._first = self._first or piece
            before = [last - begin for last, begin in zip(_last(piece), _start(first), strict=True)]
            self._joules = float(piece.tallied_w(*before)[0]) / rate_hz
            # Their sums reach over lost ticks at either end.
            end = max(int(piece.ticks[-1]) + 1, int(piece.checkpoint_ticks[-1]))
            self._seconds = (end - int(first.checkpoint_ticks[0])) / rate_hz
            self._least = float(np.fmin(self._least, watts.min()))
            self._largest = float(np.fmax(self._largest, watts.max()))
            self._recent.append((piece.times_us, watts, piece))
            while self._recent[-1][0][-1] - self._recent[0][0][-1] > self._history_us:
                self._recent.popleft()
        self.marks.extend((self._seconds, mark) for mark in piece.marks)
        return piece.marks

    def reading(self) -> Reading:
        known = bool(self._recent)
        now = self._now()
        watts, volts, amperes = (float(each.mean()) for each in now) if known else (None, None, None)
        return Reading(
            seconds=self._seconds,
            watts=watts,
            volts=None if volts is None or np.isnan(volts) else volts,
            amperes=None if amperes is None or np.isnan(amperes) else amperes,
            least_watts=self._least if known else None,
            mean_watts=self._joules / self._seconds if self._seconds else None,
            largest_watts=self._largest if known else None,
            joules=self._joules,
            received=self._received,
            missed=self._missed,
            lost=self._lost,
            streams=1,
        )

    def ranges(self, count: int, span_s: float) -> Sequence[tuple[float, float] | None]:
        """The least and largest power in each of `count` equal parts of the last `span_s` seconds."""
        parts: list[tuple[float, float] | None] = [None] * count
        if not self._recent:
            return parts
        times_us = np.concatenate([times for times, _, _ in self._recent])
        watts = np.concatenate([each for _, each, _ in self._recent])
        part_us = span_s * 1e6 / count
        # Parts begin at round times, so that the drawn part does not change while it moves to the left.
        at = count - 1 - (times_us[-1] // part_us - times_us // part_us).astype(np.int64)
        for part in np.unique(at[at >= 0]).tolist():
            inside = watts[at == part]
            parts[part] = float(inside.min()), float(inside.max())
        return parts

    def _now(self) -> tuple[npt.NDArray[np.float64], ...]:
        """Power, voltage and current of about the last fifth of a second."""
        if not self._recent:
            return ()
        times_us, watts, piece = self._recent[-1]
        now = times_us >= times_us[-1] - NOW_S * 1e6
        return watts[now], piece.voltage_v[now], piece.current_a[now]


def _start(piece: Trace) -> list[npt.NDArray[np.int64]]:
    """The instrument's sums before a piece."""
    return [tally[:1] for tally in piece.checkpoint_tallies]


def _last(piece: Trace) -> list[npt.NDArray[np.int64]]:
    """The instrument's sums behind a piece: its last checkpoint's, and the samples from there on."""
    late = piece.ticks >= piece.checkpoint_ticks[-1]
    return [
        told[-1:] + int(tally[late].sum()) for told, tally in zip(piece.checkpoint_tallies, piece.tallies, strict=True)
    ]
