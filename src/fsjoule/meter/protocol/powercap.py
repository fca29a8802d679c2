"""Readings of an energy counter become a trace. Pure.

The kernel's powercap class (RAPL of Intel and AMD) has counters of microjoules, which a reader polls. A reading comes
when it comes; the trace has regular ticks. The energy at a tick's begin lies on the straight line between the two
readings around it, so every joule of the counter is in the trace, once.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.model import Mark, PlainInfo, PlainTrace

POWERCAP: Final = "powercap"
UPDATE_US: Final = "update_us"
RANGE_UJ: Final = "range_uj"
# Ticks between two readings with more than this many ticks are lost: their energy is known, its course is not.
_MOST_TICKS: Final = 3


class CounterTrace:
    """Collects readings and marks of one counter, which counts from 0 again behind its range."""

    def __init__(self, info: PlainInfo) -> None:
        self._info = info
        self._times_us: list[int] = []
        self._counts_uj: list[int] = []
        self._last_uj: int | None = None
        self._marks: list[Mark] = []
        self._next_tick: int | None = None
        self.wraps = 0

    @property
    def end_us(self) -> int:
        """The time of the newest reading; 0 without one."""
        return self._times_us[-1] if self._times_us else 0

    def add(self, time_us: int, energy_uj: int) -> None:
        """Take a reading. Times ascend. One wrap-around between two readings is counted; more cannot be seen."""
        if self._last_uj is None:
            self._counts_uj.append(0)
        else:
            more_uj = energy_uj - self._last_uj
            if more_uj < 0:
                self.wraps += 1
                more_uj += int(self._info.settings[RANGE_UJ])
            self._counts_uj.append(self._counts_uj[-1] + more_uj)
        self._last_uj = energy_uj
        self._times_us.append(time_us)

    def mark(self, mark: Mark) -> None:
        self._marks.append(mark)

    def take(self) -> PlainTrace:
        """The ticks that are whole and not taken yet, with the marks since the last call; perhaps no tick."""
        tick_us = round(self._info.tick_us)
        times_us = np.array(self._times_us, dtype=np.int64)
        counts_uj = np.array(self._counts_uj, dtype=np.int64)
        begin = self._next_tick
        if begin is None:
            begin = -(-int(times_us[0]) // tick_us) if len(times_us) else 0
        end = max(begin, int(times_us[-1]) // tick_us) if len(times_us) else begin
        edges = np.arange(begin, end + 1, dtype=np.int64)
        read_nj = np.interp(edges * tick_us, times_us, counts_uj * 1e3) if len(times_us) else edges * 0.0
        edge_nj = np.round(read_nj).astype(np.int64)
        kept = ~_in_gaps(edges[:-1], times_us, tick_us)
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
            voltage_uv=np.zeros(int(kept.sum()), dtype=np.int64),
            clipped_samples=np.zeros(int(kept.sum()), dtype=np.uint8),
            checkpoint_ticks=edges[told],
            checkpoint_nj=edge_nj[told],
            checkpoint_missed=np.zeros(len(told), dtype=np.int64),
            marks=marks,
            missed=0,
            lost=int(np.count_nonzero(~kept)),
        )

    def _forget(self, end: int, edges: npt.NDArray[np.int64], tick_us: int) -> None:
        """Drop what was taken; the next piece needs the last reading before its first tick."""
        self._marks = []
        if len(edges) > 1 or self._next_tick is not None:
            self._next_tick = end
            keep = max(0, int(np.searchsorted(self._times_us, end * tick_us, side="right")) - 1)
            del self._times_us[:keep], self._counts_uj[:keep]


def _in_gaps(ticks: npt.NDArray[np.int64], times_us: npt.NDArray[np.int64], tick_us: int) -> npt.NDArray[np.bool_]:
    """Which ticks have no reading near them: they touch a stretch of more than `_MOST_TICKS` ticks without one."""
    found = np.zeros(len(ticks), dtype=bool)
    for at in np.flatnonzero(np.diff(times_us) > _MOST_TICKS * tick_us).tolist():
        first, last = int(times_us[at]), int(times_us[at + 1])
        found |= ((ticks + 1) * tick_us > first) & (ticks * tick_us < last)
    return found
