"""Traces with a known power, for tests of what is made of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from fsjoule.model import Ina219Info, Ina219Trace, Mark

INFO = Ina219Info(
    protocol=3, firmware="test", serial_number="t", rate_hz=1000, shunt_uohm=100_000, shunt_range_mv=80, simulated=True
)
FRAME = 20


def trace_of(
    shunt_raw: npt.ArrayLike,
    *,
    bus_raw: npt.ArrayLike = 1250,
    marks: Sequence[Mark] = (),
    start_tick: int = 1000,
    missed: Collection[int] = (),
    lost: Collection[int] = (),
    info: Ina219Info = INFO,
) -> Ina219Trace:
    """What arrives of a load: its ticks `missed`, counted from 0, are never sampled, its frames `lost` do not arrive.

    Each frame holds 20 samples, fewer before a missed tick. Bus 1250 is 5 V.
    """
    shunt = np.asarray(shunt_raw, dtype=np.int64)
    bus = np.broadcast_to(np.asarray(bus_raw, dtype=np.int64), shunt.shape)
    sampled = np.ones(len(shunt), dtype=bool)
    sampled[list(missed)] = False
    starts = _frame_starts(sampled)
    arrived = np.array([start for number, start in enumerate(starts) if number not in lost], dtype=np.int64)
    frame = np.searchsorted(starts, np.arange(len(shunt)), side="right") - 1
    kept = np.flatnonzero(sampled & ~np.isin(frame, list(lost)))
    ticks = start_tick + kept
    before = [np.concatenate([[0], np.cumsum(np.where(sampled, part, 0))]) for part in (shunt * bus, bus)]
    end = max(int(kept[-1]) + 1, int(arrived[-1])) if len(arrived) else 0
    missed_within = int(np.count_nonzero(~sampled[int(arrived[0]) : int(arrived[-1])])) if len(arrived) else 0
    return Ina219Trace(
        info=info,
        ticks=ticks,
        times_us=ticks * 1_000_000 // info.rate_hz,
        shunt_raw=shunt[kept].astype(np.int32),
        bus_raw=bus[kept].astype(np.int32),
        checkpoint_ticks=start_tick + arrived,
        checkpoint_raw=before[0][arrived],
        checkpoint_bus=before[1][arrived],
        checkpoint_missed=np.concatenate([[0], np.cumsum(~sampled)])[arrived],
        marks=tuple(marks),
        missed=missed_within,
        lost=end - int(arrived[0]) - len(kept) - missed_within if len(arrived) else 0,
    )


def _frame_starts(sampled: npt.NDArray[np.bool_]) -> list[int]:
    starts: list[int] = []
    for tick in np.flatnonzero(sampled).tolist():
        if not starts or tick - starts[-1] == FRAME or not sampled[tick - 1]:
            starts.append(tick)
    return starts
