"""Traces survive Parquet exactly, at once and in pieces, and devlib can read what is written for it."""

from __future__ import annotations

import csv
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from results_factory import METER, make_trace

from fsjoule.errors import ConfigError, ResultError, StorageError
from fsjoule.host.inside import MOST_ENTRIES
from fsjoule.host.plaintext import is_plain
from fsjoule.model import CurrentMonitor, Ina219Trace, Mark, MarkSource, MeterCalibration, Trace
from fsjoule.store.recordings import Recording
from fsjoule.store.traces import encode_trace, read_trace

_WIDE = st.integers(-(2**63), 2**63 - 1)
_TIMES = st.integers(-(2**55), 2**55)
_TEXTS = st.text(max_size=20).filter(is_plain)
_MARKS = st.builds(Mark, st.integers(0, 2**62), _TEXTS, st.sampled_from(MarkSource))
_PPM = st.integers(-(2**31), 2**31 - 1)
_CALIBRATIONS = st.builds(MeterCalibration, _PPM, _PPM, _PPM)


@st.composite
def _traces(draw: st.DrawFn) -> Ina219Trace:
    n, k = draw(st.integers(0, 30)), draw(st.integers(0, 30))
    chip = draw(st.sampled_from([CurrentMonitor.INA219, CurrentMonitor.INA228]))
    shunt, bus = (np.int32, np.int32) if chip is CurrentMonitor.INA228 else (np.int16, np.uint16)
    return Ina219Trace(
        info=dataclasses.replace(
            METER, simulated=draw(st.booleans()), firmware=draw(_TEXTS), calibration=draw(_CALIBRATIONS), chip=chip
        ),
        ticks=np.sort(draw(hnp.arrays(np.int64, n, elements=_TIMES, unique=True))),
        times_us=draw(hnp.arrays(np.int64, n, elements=_TIMES)),
        shunt_raw=draw(hnp.arrays(shunt, n)).astype(np.int32),
        bus_raw=draw(hnp.arrays(bus, n)).astype(np.int32),
        checkpoint_ticks=draw(hnp.arrays(np.int64, k, elements=_WIDE)),
        checkpoint_raw=draw(hnp.arrays(np.int64, k, elements=_WIDE)),
        checkpoint_bus=draw(hnp.arrays(np.int64, k, elements=_WIDE)),
        checkpoint_missed=draw(hnp.arrays(np.int64, k, elements=_WIDE)),
        marks=tuple(draw(st.lists(_MARKS, max_size=4))),
        missed=draw(st.integers(0, 2**32)),
        lost=draw(st.integers(0, 2**32)),
        faults=tuple(draw(st.lists(_TEXTS, max_size=3))),
    )


def _pieces(trace: Ina219Trace, *, samples: int) -> list[Ina219Trace]:
    """A trace as it comes, some samples at a time, with the checkpoints that came with them."""
    edges = [*range(0, len(trace.ticks), samples), len(trace.ticks)]
    made: list[Ina219Trace] = []
    for low, high in itertools.pairwise(edges):
        some, ticks = slice(low, high), trace.ticks[low:high]
        told = (trace.checkpoint_ticks >= ticks[0]) & (trace.checkpoint_ticks <= ticks[-1])
        arrays: dict[str, npt.NDArray[Any]] = {
            name: getattr(trace, name)[told] for name in _names() if name.startswith("checkpoint")
        } | {name: getattr(trace, name)[some] for name in ("ticks", "times_us", "shunt_raw", "bus_raw")}
        last = high == len(trace.ticks)
        made.append(
            dataclasses.replace(
                trace,
                **arrays,
                marks=trace.marks[len(made) : len(made) + 1] if not last else trace.marks[len(made) :],
                missed=trace.missed if last else 0,
                lost=trace.lost if last else 0,
                faults=trace.faults if last else (),
            )
        )
    return made


def _record(path: Path, pieces: list[Ina219Trace]) -> None:
    with Recording(path) as recording:
        for piece in pieces:
            recording.write(piece)


def _names() -> list[str]:
    return [field.name for field in dataclasses.fields(Ina219Trace)]


def _assert_same(one: Trace, other: Trace) -> None:
    assert type(one) is type(other)
    for field in dataclasses.fields(one):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)
        else:
            assert left == right


@given(_traces())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_trace_comes_back_exactly(tmp_path: Path, trace: Ina219Trace) -> None:
    path = tmp_path / "trace.parquet"
    path.write_bytes(encode_trace(trace))
    _assert_same(trace, read_trace(path))


def test_the_file_is_zstd_over_delta_binary_packed(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    path.write_bytes(encode_trace(make_trace()))
    group = pq.read_metadata(path).row_group(0)
    for i in range(group.num_columns):
        assert group.column(i).compression == "ZSTD"
        assert "DELTA_BINARY_PACKED" in group.column(i).encodings


def test_damaged_traces_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    good = encode_trace(make_trace())
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(ResultError, match="cannot be read"):
        read_trace(path)
    pq.write_table(pa.table({"tick": [1, 2]}), path)
    with pytest.raises(ResultError, match="without the metadata of a measurement's trace"):
        read_trace(path)
    path.write_bytes(good)
    table = pq.read_table(path).replace_schema_metadata(pq.read_metadata(path).metadata)
    pq.write_table(table.slice(0, 10), path)
    with pytest.raises(ResultError, match="does not hold"):
        read_trace(path)
    pq.write_table(table.drop_columns(["bus_raw"]), path)
    with pytest.raises(ResultError, match="lacks a column"):
        read_trace(path)


def test_a_page_that_unpacks_to_gigabytes_is_refused_before_it_takes_the_memory(tmp_path: Path) -> None:
    """The footer stays as it is: the chunk of a column has the same length, and one page."""
    path = tmp_path / "trace.parquet"
    path.write_bytes(good := encode_trace(make_trace(30.0)))
    group = pq.read_metadata(path).row_group(0)
    sizes = [int(group.column(i).total_compressed_size) for i in range(group.num_columns)]
    column = group.column(sizes.index(max(sizes)))
    zeros = pa.compress(bytes(1 << 25), codec="zstd", asbytes=True)
    chunk, ending = column.total_compressed_size, b"\x15\x0a\x15\x06\x15\x06\x00\x00"
    size = chunk - 6 - 3 * 5 - len(ending)
    numbers = (
        b"\x15\x00\x15",
        _varint(2 << 25),
        b"\x15",
        _varint(2 * size),
        b"\x2c\x15",
        _varint(2 * column.num_values),
    )
    # Behind the zeros a frame of zstd's that is skipped.
    rest = size - len(zeros) - 8
    page = b"".join((*numbers, ending, zeros, b"\x50\x2a\x4d\x18", rest.to_bytes(4, "little"), bytes(rest)))
    start = column.data_page_offset
    path.write_bytes(good[:start] + page + good[start + len(page) :])
    assert len(page) == chunk
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(ResultError, match="has pages of more bytes than its rows have"):
        read_trace(path)
    assert pa.default_memory_pool().max_memory() == before


def _varint(number: int) -> bytes:
    """As Thrift writes it."""
    return bytes([*((number >> 7 * i) & 127 | 128 for i in range(4)), number >> 28])


@pytest.mark.parametrize("samples", [1000, 70_000, 1_000_000])
def test_a_trace_that_is_written_piece_by_piece(samples: int, tmp_path: Path) -> None:
    """Row groups hold a minute, whatever the pieces are."""
    trace = dataclasses.replace(make_trace(199.0), missed=3, lost=7, faults=("the INA219 did not answer",))
    _record(tmp_path / "trace.parquet", _pieces(trace, samples=samples))
    assert [path.name for path in tmp_path.iterdir()] == ["trace.parquet"]
    _assert_same(trace, read_trace(tmp_path / "trace.parquet"))
    groups = pq.read_metadata(tmp_path / "trace.parquet").num_row_groups
    assert groups == {1000: 4, 70_000: 3, 1_000_000: 1}[samples]


def test_pieces_of_two_settings_are_no_trace(tmp_path: Path) -> None:
    trace = make_trace(0.1)
    faster = dataclasses.replace(trace, info=dataclasses.replace(trace.info, rate_hz=2000))
    with Recording(tmp_path / "trace.parquet") as recording:
        recording.write(trace)
        with pytest.raises(ResultError, match="one setting"):
            recording.write(faster)
    _assert_same(trace, read_trace(tmp_path / "trace.parquet"))


def test_a_recording_of_nothing_leaves_nothing(tmp_path: Path) -> None:
    with Recording(tmp_path / "trace.csv"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["trace.parquet", "trace.csv"])
def test_a_full_disk_is_said(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.partial").symlink_to("/dev/full")
    pieces = [make_trace(5.0)] * 20
    with pytest.raises(StorageError, match="could not be written: No space left"):
        _record(tmp_path / name, pieces)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / f"{name}.partial").symlink_to("/dev/full")
    with pytest.raises(StorageError, match="could not be written: No space left"):
        _record(tmp_path / name, pieces[:1])  # at the end only
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        Recording(tmp_path / "nowhere" / "trace.csv")
    with pytest.raises(ConfigError, match=r"use one of \.parquet, \.csv"):
        Recording(tmp_path / "trace.txt")


def test_devlib_can_read_it(tmp_path: Path) -> None:
    """The headings are labels of devlib's channels: a site, and a kind that devlib knows the unit of."""
    calibration = MeterCalibration(shunt_offset_nv=20_000, current_gain_ppm=1000, bus_gain_ppm=2000)
    trace = make_trace(0.5)
    trace = dataclasses.replace(trace, info=dataclasses.replace(trace.info, calibration=calibration))
    _record(tmp_path / "trace.csv", _pieces(trace, samples=300))
    with (tmp_path / "trace.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["timestamp_time_us", "board_voltage", "board_current", "board_power"]
    figures = np.array(rows, dtype=np.float64)
    assert [int(row[0]) for row in rows] == trace.times_us.tolist()
    np.testing.assert_allclose(figures[:, 3], trace.power_w, atol=1e-7)
    np.testing.assert_allclose(figures[:, 1] * figures[:, 2], trace.power_w, atol=1e-6)
    np.testing.assert_allclose(figures[:, 1], 5.0 * 1.002, atol=1e-7)


def test_a_trace_of_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    path.write_bytes(encode_trace(make_trace(0.1)))
    metadata = pq.read_metadata(path).metadata or {}
    newer = {key: text.replace(b"fsjoule.trace/1", b"fsjoule.trace/9") for key, text in metadata.items()}
    pq.write_table(pq.read_table(path).replace_schema_metadata(newer), path)
    with pytest.raises(ResultError, match=r"of schema 'fsjoule.trace/9'; this version of fsjoule reads") as caught:
        read_trace(path)
    assert caught.value.hint == "another version of fsjoule wrote it: read it with that version"


def test_a_recording_of_days_keeps_its_marks(tmp_path: Path) -> None:
    """Two edges of the mark pin a second: more than any other document has of anything."""
    marks = tuple(Mark(500_000 * i, "", MarkSource.RISING) for i in range(2 * MOST_ENTRIES))
    with Recording(tmp_path / "long.parquet") as recording:
        recording.write(dataclasses.replace(make_trace(), marks=marks))
    assert read_trace(tmp_path / "long.parquet").marks == marks
