"""A trace as Parquet and back without loss; written at once or piece by piece.

One row per sample: `tick`, `time_us`, and the instrument's own columns (`shunt_raw` and `bus_raw`, or `energy_nj`,
`voltage_uv` and `clipped`). The meter's checkpoints are a separate list in the columns `checkpoint_...`, in the first
rows of each row group; nulls fill the shorter of the two lists. The rest (meter, calibration, marks, counts) is JSON in
the file's metadata under `fsjoule.trace`. docs/results.md explains its use.
"""

# pyarrow ships no types: strict checking would only report their absence.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, with_config

from fsjoule.errors import ResultError
from fsjoule.host.inside import ATTACHMENT_BYTES
from fsjoule.host.plaintext import plain_line
from fsjoule.model import Ina219Trace, Mark, MeterInfo, PlainInfo, PlainTrace, Trace
from fsjoule.store.checks import check_meter
from fsjoule.store.parquet import read_table
from fsjoule.store.schemas import STRICT, DocumentKind, decode, encode

TRACE_SCHEMA: Final = "fsjoule.trace/1"
_METADATA_KEY: Final = b"fsjoule.trace"
_GROUP_ROWS: Final = 60_000  # a minute at 1 kHz: enough for good compression, and little memory
_ROW_BYTES: Final = 128  # far more than a row takes before compression
MOST_ROWS: Final = 10_000_000  # two and a half hours at 1 kHz
_WHAT: Final = "a measurement's trace"
_LATEST: Final = 1 << 55  # a thousand years in microseconds
_HINT: Final = "the trace is damaged; the measurement's figures do not depend on it"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    samples: int
    checkpoints: int
    missed: int
    lost: int
    info: MeterInfo
    marks: tuple[Mark, ...]
    faults: tuple[str, ...]
    schema: Literal["fsjoule.trace/1"] = TRACE_SCHEMA


# A recording may have an edge of the mark pin in every second of a week.
_HEADER: Final = DocumentKind(
    TypeAdapter(with_config(STRICT)(_Header)),
    lambda header: check_meter(header.info),
    at_most=ATTACHMENT_BYTES,
    most_entries=1 << 20,
)


@dataclass(frozen=True, slots=True)
class _TraceLayout:
    """The columns of one kind of trace: each with the field of the trace that it holds, and its type."""

    trace: type[Trace]
    samples: dict[str, tuple[str, pa.DataType]]
    checkpoints: dict[str, tuple[str, pa.DataType]]

    @property
    def columns(self) -> dict[str, tuple[str, pa.DataType]]:
        return self.samples | self.checkpoints

    @property
    def types(self) -> dict[str, pa.DataType]:
        return {name: kind for name, (_, kind) in self.columns.items()}


_TIMES: Final = {"tick": ("ticks", pa.int64()), "time_us": ("times_us", pa.int64())}
# Raw samples have 16 bits (INA219) or 20 (INA228).
_INA219: Final = _TraceLayout(
    Ina219Trace,
    {**_TIMES, "shunt_raw": ("shunt_raw", pa.int32()), "bus_raw": ("bus_raw", pa.int32())},
    {
        "checkpoint_tick": ("checkpoint_ticks", pa.int64()),
        "checkpoint_raw": ("checkpoint_raw", pa.int64()),
        "checkpoint_bus": ("checkpoint_bus", pa.int64()),
        "checkpoint_missed": ("checkpoint_missed", pa.int64()),
    },
)
_PLAIN: Final = _TraceLayout(
    PlainTrace,
    {
        **_TIMES,
        "energy_nj": ("energy_nj", pa.int64()),
        "voltage_uv": ("voltage_uv", pa.int64()),
        "clipped": ("clipped_samples", pa.uint8()),
    },
    {
        "checkpoint_tick": ("checkpoint_ticks", pa.int64()),
        "checkpoint_nj": ("checkpoint_nj", pa.int64()),
        "checkpoint_missed": ("checkpoint_missed", pa.int64()),
    },
)


def _layout_of(info: MeterInfo) -> _TraceLayout:
    return _PLAIN if isinstance(info, PlainInfo) else _INA219


class TraceEncoder:
    """Writes one trace in any number of pieces as a Parquet file: zstd over DELTA_BINARY_PACKED.

    It keeps at most one row group and the marks in memory. The file is valid only after `finish`.
    """

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[Trace] = []
        self._last: Trace | None = None
        self._samples = self._checkpoints = self._missed = self._lost = 0
        self._marks: list[Mark] = []

    def write(self, piece: Trace) -> None:
        """Add a piece; pieces come in order. Raises ResultError if its meter or a setting differs."""
        if self._last is not None and piece.info != self._last.info:
            raise ResultError("a trace has samples of one meter with one setting; these pieces differ")
        self._last = piece
        self._samples += len(piece.ticks)
        self._checkpoints += len(piece.checkpoint_ticks)
        self._missed += piece.missed
        self._lost += piece.lost
        self._marks += piece.marks
        self._waiting.append(piece)
        if sum(len(waiting.ticks) for waiting in self._waiting) >= _GROUP_ROWS:
            self._write_group(piece.info)

    def finish(self) -> None:
        """Write the rest and the metadata. Raises ResultError if there was no piece."""
        if self._last is None:
            raise ResultError("nothing was recorded: there is no trace to store")
        writer = self._write_group(self._last.info)
        header = _Header(
            samples=self._samples,
            checkpoints=self._checkpoints,
            missed=self._missed,
            lost=self._lost,
            info=self._last.info,
            marks=tuple(self._marks),
            faults=self._last.faults,
        )
        writer.add_key_value_metadata({_METADATA_KEY: encode(_HEADER, header, "the trace")})
        writer.close()

    def _write_group(self, info: MeterInfo) -> pq.ParquetWriter:
        layout = _layout_of(info)
        types = layout.types
        writer = self._writer = self._writer or pq.ParquetWriter(
            self._sink,
            pa.schema(list(types.items())),
            compression="zstd",
            use_dictionary=False,
            column_encoding=dict.fromkeys(types, "DELTA_BINARY_PACKED"),
        )
        pieces, self._waiting = self._waiting, []
        arrays = {name: _joined(pieces, field) for name, (field, _) in layout.columns.items()}
        rows = max(map(len, arrays.values()))
        if rows:
            padded = [_padded(values, types[name], rows) for name, values in arrays.items()]
            writer.write_table(pa.Table.from_arrays(padded, names=list(arrays)), row_group_size=rows)
        return writer


def _joined(pieces: list[Trace], name: str) -> npt.NDArray[Any]:
    return np.concatenate([getattr(piece, name) for piece in pieces]) if pieces else np.empty(0, dtype=np.int64)


def _padded(values: npt.NDArray[Any], kind: pa.DataType, rows: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, type=kind), pa.nulls(rows - len(values), type=kind)])


def encode_trace(trace: Trace) -> bytes:
    """The trace as a Parquet file, some 4 bytes per sample."""
    sink = io.BytesIO()
    encoder = TraceEncoder(sink)
    encoder.write(trace)
    encoder.finish()
    return sink.getvalue()


def read_trace(path: Path) -> Trace:
    """Read a recorded trace of any length from a user's file. Raises ResultError if it cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ResultError(f"{path} cannot be read: {error.strerror or error}", hint=_HINT) from error
    return decode_trace(content, path, most_rows=None)


def decode_trace(content: bytes, path: Path, *, most_rows: int | None = MOST_ROWS) -> Trace:
    """Read the output of `encode_trace`. Raises ResultError, which names `path`, if it is damaged or too long."""
    shown = plain_line(str(path))

    def header_of(metadata: bytes) -> tuple[_Header, Mapping[str, pa.DataType]]:
        header = decode(_HEADER, metadata, TRACE_SCHEMA, path)
        return header, _layout_of(header.info).types

    table, header = read_table(
        content,
        path,
        key=_METADATA_KEY,
        header=header_of,
        row_bytes=_ROW_BYTES,
        most_rows=most_rows,
        what=_WHAT,
        hint=_HINT,
    )
    layout = _layout_of(header.info)

    def column(name: str, length: int, kind: pa.DataType) -> npt.NDArray[Any]:
        values = table.column(name).drop_null()
        if len(values) != length:
            raise ResultError(f"{shown}: column {name!r} does not hold {length} values", hint=_HINT)
        return values.to_numpy().astype(kind.to_pandas_dtype(), copy=False)

    arrays = {field: column(name, header.samples, kind) for name, (field, kind) in layout.samples.items()}
    arrays |= {field: column(name, header.checkpoints, kind) for name, (field, kind) in layout.checkpoints.items()}
    told = {name: getattr(header, name) for name in ("info", "marks", "missed", "lost", "faults")}
    trace = layout.trace(**arrays, **told)
    _check_order(trace, shown)
    return trace


def _check_order(trace: Trace, shown: str) -> None:
    """Raise ResultError unless ticks ascend and times are possible; times may step back between frames."""
    for name, values in (("tick", trace.ticks), ("time_us", trace.times_us)):
        if len(values) and (int(values.min()) < -_LATEST or int(values.max()) > _LATEST):
            raise ResultError(f"{shown}: column {name!r} has an impossible time", hint=_HINT)
    if bool((trace.ticks[1:] <= trace.ticks[:-1]).any()):
        raise ResultError(f"{shown}: column 'tick' does not ascend", hint=_HINT)
