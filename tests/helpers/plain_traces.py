"""Traces of an instrument that is not fsjoule's own, for tests of what every instrument has in common."""

from __future__ import annotations

import numpy as np

from fsjoule.model import Ina219Trace, PlainInfo, PlainTrace

PLAIN = PlainInfo(
    instrument="heliometer",
    firmware="7",
    serial_number="H1",
    rate_hz=1000,
    measures_voltage=True,
    simulated=True,
    settings={"update_us": 976.5},
)


def plain_trace_of(trace: Ina219Trace) -> PlainTrace:
    """The load and the losses of an uncalibrated trace of 0.1 Ohm and 1 kHz, whose bus is a multiple of 20 mV.

    A count of shunt times bus is 0.4 uW times 1 ms.
    """
    assert not (trace.bus_raw % 5).any()
    return PlainTrace(
        info=PLAIN,
        ticks=trace.ticks,
        times_us=trace.times_us,
        energy_nj=trace.tallies[0] * 2 // 5,
        voltage_uv=trace.bus_raw.astype(np.int64) * 4000,
        clipped_samples=np.zeros(len(trace.ticks), dtype=np.uint8),
        checkpoint_ticks=trace.checkpoint_ticks,
        checkpoint_nj=trace.checkpoint_raw * 2 // 5,
        checkpoint_missed=trace.checkpoint_missed,
        marks=trace.marks,
        missed=trace.missed,
        lost=trace.lost,
        faults=trace.faults,
    )
