"""Traces with a known power, for tests of what is made of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fsjoule.model import Mark, MeterInfo, Trace

INFO = MeterInfo(
    protocol=2, firmware="test", serial_number="t", rate_hz=1000, shunt_uohm=100_000, shunt_range_mv=80, simulated=True
)
FRAME = 20


def trace_of(
    shunt_raw: npt.ArrayLike, *, bus_raw: int = 1250, marks: Sequence[Mark] = (), start_tick: int = 1000
) -> Trace:
    """A gapless trace at 1 kHz with 20 samples a frame; bus 1250 is 5 V."""
    shunt = np.asarray(shunt_raw, dtype=np.int16)
    ticks = np.arange(start_tick, start_tick + len(shunt), dtype=np.int64)
    bus = np.full(len(shunt), bus_raw, dtype=np.uint16)
    raw = np.cumsum(shunt.astype(np.int64) * bus) - shunt.astype(np.int64) * bus
    return Trace(
        info=INFO,
        ticks=ticks,
        times_us=ticks * 1000,
        shunt_raw=shunt,
        bus_raw=bus,
        checkpoint_ticks=ticks[::FRAME],
        checkpoint_raw=raw[::FRAME],
        checkpoint_bus=bus_raw * np.arange(0, len(shunt), FRAME, dtype=np.int64),
        checkpoint_missed=np.zeros(len(raw[::FRAME]), dtype=np.int64),
        marks=tuple(marks),
        missed=0,
        lost=0,
    )
