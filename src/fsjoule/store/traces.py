"""A trace as Parquet and back, exactly.

One row a sample: `tick`, `time_us`, `shunt_raw`, `bus_raw`. The meter's checkpoints are a list of their own: they stand
in `checkpoint_tick` and `checkpoint_raw` of the first rows, one a row, and nulls fill whichever of the two lists is
shorter. All else (meter, marks, counts) is JSON in the file's metadata under `fsjoule.trace`. Power in watts is
`shunt_raw * bus_raw * shunt_lsb_uv * 1e-6 * bus_lsb_mv * 1e-3 / (shunt_uohm * 1e-6)`, those three from the metadata.
"""

# pyarrow ships no types: strict checking would only report their absence.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, with_config

from fsjoule.errors import ResultError
from fsjoule.model import Mark, MeterInfo, Trace
from fsjoule.store.schemas import STRICT, decode, encode

TRACE_SCHEMA: Final = "fsjoule.trace/2"
_METADATA_KEY: Final = b"fsjoule.trace"
_SAMPLE_COLUMNS: Final = {"tick": pa.int64(), "time_us": pa.int64(), "shunt_raw": pa.int16(), "bus_raw": pa.uint16()}
_CHECKPOINT_COLUMNS: Final = {
    "checkpoint_tick": pa.int64(),
    "checkpoint_raw": pa.int64(),
    "checkpoint_bus": pa.int64(),
    "checkpoint_missed": pa.int64(),
}
_HINT: Final = "the trace is damaged; the measurement's figures do not depend on it"


@dataclass(frozen=True, slots=True)
class _Header:
    samples: int
    checkpoints: int
    missed: int
    lost: int
    info: MeterInfo
    marks: tuple[Mark, ...]
    faults: tuple[str, ...]
    schema: Literal["fsjoule.trace/2"] = TRACE_SCHEMA


_HEADER: Final = TypeAdapter(with_config(STRICT)(_Header))


def encode_trace(trace: Trace) -> bytes:
    """The trace as a Parquet file: zstd over DELTA_BINARY_PACKED, some 4 bytes a sample."""
    header = _Header(
        samples=len(trace.ticks),
        checkpoints=len(trace.checkpoint_ticks),
        missed=trace.missed,
        lost=trace.lost,
        info=trace.info,
        marks=trace.marks,
        faults=trace.faults,
    )
    rows = max(header.samples, header.checkpoints)
    samples = (trace.ticks, trace.times_us, trace.shunt_raw, trace.bus_raw)
    checkpoints = (trace.checkpoint_ticks, trace.checkpoint_raw, trace.checkpoint_bus, trace.checkpoint_missed)
    types = _SAMPLE_COLUMNS | _CHECKPOINT_COLUMNS
    arrays = [_padded(values, kind, rows) for values, kind in zip(samples + checkpoints, types.values(), strict=True)]
    schema = pa.schema(list(types.items()), metadata={_METADATA_KEY: encode(_HEADER, header, "the trace")})
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_arrays(arrays, schema=schema),
        sink,
        compression="zstd",
        use_dictionary=False,
        column_encoding=dict.fromkeys(types, "DELTA_BINARY_PACKED"),
    )
    return sink.getvalue().to_pybytes()


def _padded(values: npt.NDArray[Any], kind: pa.DataType, rows: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, type=kind), pa.nulls(rows - len(values), type=kind)])


def read_trace(path: Path) -> Trace:
    """Read a trace as it was recorded. Raises ResultError for a file that is missing, damaged or of another schema."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ResultError(f"{path} cannot be read: {error}", hint=_HINT) from error
    metadata = (table.schema.metadata or {}).get(_METADATA_KEY)
    if metadata is None:
        raise ResultError(f"{path} is a Parquet file without a trace's metadata", hint=_HINT)
    header = decode(_HEADER, metadata, TRACE_SCHEMA, path)

    def column(name: str, length: int, kind: type[np.generic]) -> npt.NDArray[Any]:
        values = table.column(name).slice(0, length)
        if len(values) != length or values.null_count:
            raise ResultError(f"{path}: column {name!r} does not hold {length} values", hint=_HINT)
        return values.to_numpy().astype(kind, copy=False)

    try:
        return Trace(
            info=header.info,
            ticks=column("tick", header.samples, np.int64),
            times_us=column("time_us", header.samples, np.int64),
            shunt_raw=column("shunt_raw", header.samples, np.int16),
            bus_raw=column("bus_raw", header.samples, np.uint16),
            checkpoint_ticks=column("checkpoint_tick", header.checkpoints, np.int64),
            checkpoint_raw=column("checkpoint_raw", header.checkpoints, np.int64),
            checkpoint_bus=column("checkpoint_bus", header.checkpoints, np.int64),
            checkpoint_missed=column("checkpoint_missed", header.checkpoints, np.int64),
            marks=header.marks,
            missed=header.missed,
            lost=header.lost,
            faults=header.faults,
        )
    except KeyError as error:
        raise ResultError(f"{path} lacks a column: {error}", hint=_HINT) from error
