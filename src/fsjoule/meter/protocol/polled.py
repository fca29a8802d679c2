"""Readings of an instrument that is asked again and again become a trace. Pure.

A reading comes when it comes; the trace has regular ticks. The energy at a tick's begin lies on the straight line
between the two readings around it, so every joule of the readings is in the trace, once.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.model import Mark, PlainInfo, PlainTrace

# Ticks between two readings with more than this many ticks are lost: their energy is known, its course is not.
_MOST_TICKS: Final = 3


class PolledTrace:
    """Collects readings and marks of one instrument. With `gaps` ticks far from any reading are lost."""

    def __init__(self, info: PlainInfo, *, gaps: bool = True) -> None:
        self._info = info
        self._gaps = gaps
        self._times_us: list[int] = []
        self._totals_nj: list[float] = []
        self._volts: list[float] = []
        self._clipped: list[float] = []
        self._marks: list[Mark] = []
        self._next_tick: int | None = None
        self.faults: tuple[str, ...] = ()

    @property
    def end_us(self) -> int:
        """The time of the newest reading; 0 without one."""
        return self._times_us[-1] if self._times_us else 0

    @property
    def total_nj(self) -> float:
        """The energy up to the newest reading; 0 without one."""
        return self._totals_nj[-1] if self._totals_nj else 0.0

    def read(self, time_us: int, total_nj: float, volts: float = 0.0, *, clipped: bool = False) -> None:
        """Take a reading: the energy since the first one, the voltage, and whether it left a range. Times ascend."""
        self._times_us.append(time_us)
        self._totals_nj.append(total_nj)
        self._volts.append(volts)
        self._clipped.append(float(clipped))

    def mark(self, mark: Mark) -> None:
        self._marks.append(mark)

    def take(self) -> PlainTrace:
        """The ticks that are whole and not taken yet, with the marks since the last call; perhaps no tick."""
        tick_us = round(self._info.tick_us)
        times_us = np.array(self._times_us, dtype=np.int64)
        begin = self._next_tick
        if begin is None:
            begin = -(-int(times_us[0]) // tick_us) if len(times_us) else 0
        end = max(begin, int(times_us[-1]) // tick_us) if len(times_us) else begin
        edges = np.arange(begin, end + 1, dtype=np.int64)
        edge_nj = np.round(self._between(edges * tick_us, times_us, self._totals_nj)).astype(np.int64)
        volts = self._between(edges[:-1] * tick_us + tick_us // 2, times_us, self._volts)
        # A tick between two readings is of both.
        clipped = self._between(edges * tick_us, times_us, self._clipped) > 0
        kept = ~_in_gaps(edges[:-1], times_us, tick_us) if self._gaps else np.ones(len(edges) - 1, dtype=bool)
        # At both ends, and behind each gap: a gap lies behind the samples of its checkpoint.
        behind = kept & np.concatenate([[False], ~kept])[: len(kept)]
        told: npt.NDArray[np.int64] = np.unique(np.concatenate([[0, len(kept)], np.flatnonzero(behind)]))
        marks = tuple(sorted(self._marks, key=lambda mark: mark.time_us))
        self._forget(end, edges, tick_us)
        return PlainTrace(
            info=self._info,
            ticks=edges[:-1][kept],
            times_us=edges[:-1][kept] * tick_us,
            energy_nj=np.diff(edge_nj)[kept],
            voltage_uv=np.round(volts[kept] * 1e6).astype(np.int64),
            clipped_samples=(clipped[:-1] | clipped[1:])[kept].astype(np.uint8),
            checkpoint_ticks=edges[told],
            checkpoint_nj=edge_nj[told],
            checkpoint_missed=np.zeros(len(told), dtype=np.int64),
            marks=marks,
            missed=0,
            lost=int(np.count_nonzero(~kept)),
            faults=self.faults,
        )

    @staticmethod
    def _between(
        at_us: npt.NDArray[np.int64], times_us: npt.NDArray[np.int64], values: list[float]
    ) -> npt.NDArray[np.float64]:
        return np.interp(at_us, times_us, values) if len(times_us) else np.zeros(len(at_us))

    def _forget(self, end: int, edges: npt.NDArray[np.int64], tick_us: int) -> None:
        """Drop what was taken; the next piece needs the last reading before its first tick."""
        self._marks = []
        if len(edges) > 1 or self._next_tick is not None:
            self._next_tick = end
            keep = max(0, int(np.searchsorted(self._times_us, end * tick_us, side="right")) - 1)
            for values in (self._times_us, self._totals_nj, self._volts, self._clipped):
                del values[:keep]


class SampleTrace(PolledTrace):
    """Readings of voltage and current. Between two of them the power is taken as a straight line."""

    def __init__(self, info: PlainInfo) -> None:
        super().__init__(info)
        self._last_w: float | None = None

    def add(self, time_us: int, volts: float, amperes: float, *, clipped: bool = False) -> None:
        """Take a reading. Times ascend."""
        watts = volts * amperes
        more_nj = 0.0 if self._last_w is None else (self._last_w + watts) / 2 * (time_us - self.end_us) * 1e3
        self._last_w = watts
        self.read(time_us, self.total_nj + more_nj, volts, clipped=clipped)


def _in_gaps(ticks: npt.NDArray[np.int64], times_us: npt.NDArray[np.int64], tick_us: int) -> npt.NDArray[np.bool_]:
    """Which ticks have no reading near them: they touch a stretch of more than `_MOST_TICKS` ticks without one."""
    far = np.zeros(len(ticks), dtype=bool)
    for at in np.flatnonzero(np.diff(times_us) > _MOST_TICKS * tick_us).tolist():
        first, last = int(times_us[at]), int(times_us[at + 1])
        far |= ((ticks + 1) * tick_us > first) & (ticks * tick_us < last)
    return far
