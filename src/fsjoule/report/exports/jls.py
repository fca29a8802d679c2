"""A run's samples as Joulescope's file (JLS), with the marks as annotations, one measurement after the other.

pyjls ships no types: strict checking would only report their absence.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from pyjls import AnnotationType, DataType, SignalType, Writer

from fsjoule.errors import ConfigError
from fsjoule.model import Trace
from fsjoule.report.exports.timeline import Stretch, stretches_of
from fsjoule.store.reader import LoadedRun

_QUANTITIES: Final = (("current", "A"), ("voltage", "V"), ("power", "W"))
_SECOND: Final = 1 << 30  # JLS times count from 2018-01-01T00:00:00Z
_EPOCH_S: Final = 1_514_764_800


def write_jls(file: Path, loaded: LoadedRun) -> None:
    """Write the file. Raises ConfigError if the run has no trace, or traces of several rates, ResultError if damaged.

    Samples have the places of their ticks; a tick without a sample, and what the instrument does not measure, is NaN.
    """
    traces = [(each, loaded.trace(each.measurement.number)) for each in stretches_of(loaded)]
    present = [(each, trace) for each, trace in traces if trace is not None and len(trace.ticks)]
    rates = {trace.info.rate_hz for _, trace in present}
    if len(rates) != 1:
        why = "has no trace" if not rates else f"has traces of several rates: {', '.join(map(str, sorted(rates)))} Hz"
        raise ConfigError(f"the run {loaded.run.run_id} {why}", hint="export its figures with --csv")
    [rate_hz] = rates
    info = present[0][1].info
    kind = "simulated" if loaded.run.simulated else info.kind
    try:
        writer = Writer(str(file))
    except RuntimeError as error:
        raise OSError(None, str(error)) from error
    with writer:
        writer.source_def(1, f"fsjoule {loaded.run.run_id}", "fsjoule", kind, info.firmware, info.serial_number)
        for signal, (name, unit) in enumerate(_QUANTITIES, start=1):
            writer.signal_def(signal, 1, SignalType.FSR, DataType.F32, sample_rate=rate_hz, name=name, units=unit)
        begin = 0
        for stretch, trace in present:
            begin += _add(writer, stretch, trace, begin, rate_hz)


def _add(writer: Any, stretch: Stretch, trace: Trace, begin: int, rate_hz: int) -> int:  # noqa: ANN401 - pyjls has no types
    """Write a measurement's trace from sample `begin` on; returns its number of ticks."""
    places = trace.ticks - trace.ticks[0]
    length = int(places[-1]) + 1
    first_us = int(trace.times_us[0])
    utc_ns = stretch.offset_ns + 1000 * first_us
    for signal, values in enumerate((trace.current_a, trace.voltage_v, trace.power_w), start=1):
        whole = np.full(length, np.nan, dtype=np.float32)
        whole[places] = values
        writer.fsr_f32(signal, begin, whole)
        writer.utc(signal, begin, round((utc_ns / 1e9 - _EPOCH_S) * _SECOND))
    m = stretch.measurement
    for mark in trace.marks:
        place = begin + round((mark.time_us - first_us) * rate_hz / 1e6)
        if begin <= place < begin + length:
            # As `fsjoule import jls` reads them: the number in a mark's own text is that of one plan.
            text = f"{mark.text[0]}{m.slug}" if mark.text[:1] in ("S", "E") else mark.text or mark.source.value
            for signal in range(1, len(_QUANTITIES) + 1):
                writer.annotation(signal, place, float("nan"), AnnotationType.TEXT, 0, text)
    return length
