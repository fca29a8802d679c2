"""A trace as a CSV file for ARM's devlib and workload-automation, written piece by piece.

Every heading is a channel's label, `<site>_<kind>`; the kind is one of devlib's measurement types with its unit. The
time is a channel too: devlib's DerivedEnergyMeasurements finds it by the site `timestamp` and the kinds `time` (s),
`time_ms`, `time_us` and `time_ns`. Source: github.com/ARM-software/devlib, commit 8e898a6c,
devlib/instrument/__init__.py (MeasurementsCsv, InstrumentChannel) and devlib/derived/energy.py.
"""

# pyarrow ships no types: strict checking would only report their absence.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa
from pyarrow import csv

from fsjoule.model import Trace

_DECIMALS: Final = 7  # a tenth of a microwatt


class DevlibCsv:
    """Writes `timestamp_time_us` (the meter's clock), voltage, current and power of one site, without buffering."""

    def __init__(self, sink: BinaryIO, *, site: str = "board") -> None:
        self._schema = pa.schema(
            [
                ("timestamp_time_us", pa.int64()),
                (f"{site}_voltage", pa.float64()),
                (f"{site}_current", pa.float64()),
                (f"{site}_power", pa.float64()),
            ]
        )
        self._writer = csv.CSVWriter(sink, self._schema, write_options=csv.WriteOptions(quoting_style="none"))

    def write(self, piece: Trace) -> None:
        """Add a piece; pieces come in order."""
        figures = [np.round(values, _DECIMALS) for values in (piece.voltage_v, piece.current_a, piece.power_w)]
        columns = [pa.array(piece.times_us), *(pa.array(values) for values in figures)]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))

    def finish(self) -> None:
        """Write the rest. The sink stays open."""
        self._writer.close()
