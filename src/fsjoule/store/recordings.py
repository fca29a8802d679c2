"""Recordings of hours: a trace is written to a file piece by piece; the file appears when it is whole."""

# pyarrow ships no types: strict checking would only report their absence.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Protocol, Self

import numpy as np
import pyarrow as pa
from pyarrow import csv

from fsjoule.errors import ConfigError, StorageError
from fsjoule.host.files import PARTIAL_SUFFIX, flush_folder
from fsjoule.model import Trace
from fsjoule.store.traces import TraceEncoder

_DECIMALS: Final = 7  # a tenth of a microwatt


class DevlibCsv:
    """A trace as a CSV file for ARM's devlib and workload-automation, without buffering.

    It has `timestamp_time_us` (the meter's clock), voltage, current and power of one site. Every heading is a channel's
    label, `<site>_<kind>`; the kind is one of devlib's measurement types with its unit. The time is a channel too:
    devlib's DerivedEnergyMeasurements finds it by the site `timestamp` and the kinds `time` (s), `time_ms`, `time_us`
    and `time_ns`. Source: github.com/ARM-software/devlib, commit 8e898a6c, devlib/instrument/__init__.py
    (MeasurementsCsv, InstrumentChannel) and devlib/derived/energy.py.
    """

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


class _Encoder(Protocol):
    def write(self, piece: Trace) -> None: ...

    def finish(self) -> None: ...


_ENCODERS: Final[dict[str, type[TraceEncoder | DevlibCsv]]] = {".parquet": TraceEncoder, ".csv": DevlibCsv}


class Recording:
    """A file of one trace, `.parquet` or `.csv` by its name, for a `with` statement.

    It has a temporary name until the end. After an exception the recording is kept too, unless the disk fails.
    """

    def __init__(self, path: Path) -> None:
        """Raises ConfigError for a name with another ending, StorageError if the file cannot be made."""
        encoder = _ENCODERS.get(path.suffix)
        if encoder is None:
            raise ConfigError(f"{path.name}: unknown kind of file", hint=f"use one of {', '.join(_ENCODERS)}")
        self._path = path
        self._partial = path.with_name(path.name + PARTIAL_SUFFIX)
        self._pieces = 0
        try:
            self._file: BinaryIO = self._partial.open("wb")
        except OSError as error:
            raise self._failed(error) from error
        self._encoder: _Encoder = encoder(self._file)

    def write(self, piece: Trace) -> None:
        """Add a piece, as TraceBuilder.take returns it. Raises StorageError if the disk is full."""
        try:
            self._encoder.write(piece)
        except OSError as error:
            raise self._failed(error) from error
        self._pieces += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, StorageError) or not self._pieces:
            self._discard()
            return
        try:
            self._encoder.finish()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._partial.replace(self._path)
            flush_folder(self._path.parent)
        except OSError as failure:
            self._discard()
            raise self._failed(failure) from failure

    def _discard(self) -> None:
        with suppress(OSError):  # it flushes to a disk that may be full
            self._file.close()
        self._partial.unlink(missing_ok=True)

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(
            f"{self._path} could not be written: {error.strerror or error}",
            hint="make room on that disk, or choose another file",
        )
