"""Traces survive Parquet exactly."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from results_factory import METER, make_trace

from fsjoule.errors import ResultError
from fsjoule.model import Mark, Trace
from fsjoule.store import read_trace
from fsjoule.store.traces import encode_trace

_WIDE = st.integers(-(2**63), 2**63 - 1)


@st.composite
def _traces(draw: st.DrawFn) -> Trace:
    n, k = draw(st.integers(0, 30)), draw(st.integers(0, 30))
    return Trace(
        info=dataclasses.replace(METER, simulated=draw(st.booleans()), firmware=draw(st.text(max_size=16))),
        ticks=draw(hnp.arrays(np.int64, n, elements=_WIDE)),
        times_us=draw(hnp.arrays(np.int64, n, elements=_WIDE)),
        shunt_raw=draw(hnp.arrays(np.int16, n)),
        bus_raw=draw(hnp.arrays(np.uint16, n)),
        checkpoint_ticks=draw(hnp.arrays(np.int64, k, elements=_WIDE)),
        checkpoint_raw=draw(hnp.arrays(np.int64, k, elements=_WIDE)),
        checkpoint_bus=draw(hnp.arrays(np.int64, k, elements=_WIDE)),
        checkpoint_missed=draw(hnp.arrays(np.int64, k, elements=_WIDE)),
        marks=tuple(draw(st.lists(st.builds(Mark, st.integers(0, 2**63), st.text(max_size=16)), max_size=4))),
        missed=draw(st.integers(0, 2**32)),
        lost=draw(st.integers(0, 2**32)),
        faults=tuple(draw(st.lists(st.text(max_size=20), max_size=3))),
    )


def _assert_same(one: Trace, other: Trace) -> None:
    for field in dataclasses.fields(Trace):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)
        else:
            assert left == right


@given(_traces())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_trace_comes_back_exactly(tmp_path: Path, trace: Trace) -> None:
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
    with pytest.raises(ResultError, match="without a trace's metadata"):
        read_trace(path)
    path.write_bytes(good)
    table = pq.read_table(path)
    pq.write_table(table.slice(0, 10), path)
    with pytest.raises(ResultError, match="does not hold"):
        read_trace(path)
    pq.write_table(table.drop_columns(["bus_raw"]), path)
    with pytest.raises(ResultError, match="lacks a column"):
        read_trace(path)
