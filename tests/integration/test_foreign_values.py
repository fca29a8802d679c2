"""Values that cannot be, and damaged traces: named, left out, and of no harm to other runs."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import CommandLine
from hypothesis import given
from hypothesis import strategies as st
from reported_runs import write_run
from results_factory import make_run, make_trace

from fsjoule.errors import ResultError
from fsjoule.report.trace_chart import trace_chart
from fsjoule.store.checks import wrong_time
from fsjoule.store.folder import RunFolder
from fsjoule.store.reader import load_run
from fsjoule.store.schemas import decode_steps
from fsjoule.store.traces import MOST_ROWS, decode_trace, encode_trace


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, beside one that is whole."""
    results = tmp_path_factory.mktemp("results")
    whole = RunFolder(results)
    made = replace(make_run(repeat=1).run, run_id="another", started_utc="2026-03-10T10:00:00Z", measurements=())
    whole.begin(made)
    whole.finish(made)
    return write_run(results).path


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """The same in a folder of its own, to be changed."""
    return shutil.copytree(written.parent, tmp_path / "results") / written.name


def first(folder: Path) -> Path:
    return min((folder / "measurements").iterdir())


def put(file: Path, way: tuple[str | int, ...], value: object) -> None:
    """Change one value of a document."""
    document = json.loads(file.read_text())
    at: Any = document
    for step in way[:-1]:
        at = at[step]
    at[way[-1]] = value
    file.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (("started_utc",), "yesterday"),
        (("started_utc",), "9999-12-31T23:59:59Z"),
        (("finished_utc",), "2026-03-09T10:00:00"),
        (("faults", 0, "ended_utc"), ""),
        (("faults", 0, "steps", 0, "level"), 10**9),
        (("faults", 0, "steps", 0, "started_utc_ms"), 2**62),
        (("run_id",), ""),
        (("run_id",), "a\nb"),
        (("plan", "kernels"), []),
        (("plan", "suite"), "x" * 5000),
        (("plan", "entries", 0, "number"), -1),
        (("plan", "entries", 0, "workload", "size_bytes"), -1),
        (("meter", "rate_hz"), 0),
        (("meter", "shunt_uohm"), 0),
        (("meter", "shunt_lsb_uv"), 0.0),
        (("meter", "calibration", "zero_date"), 2**62),
        (("boards", "6.1", "cpus"), -1),
        (("schema",), "fsjoule.run/2"),
    ],
)
def test_a_run_that_cannot_be_costs_no_other(
    fsjoule: CommandLine, folder: Path, tmp_path: Path, way: tuple[str | int, ...], value: object
) -> None:
    put(folder / "run.json", way, value)
    assert fsjoule("show", folder).code == 2
    assert fsjoule("report", "page", folder).code == 2
    done = fsjoule("report", "allure", tmp_path / "results", "--output", tmp_path / "allure")
    assert done.code == 0
    assert f"missing: {folder.name}: " in done.err
    assert "another" in (tmp_path / "allure" / "environment.properties").read_text()


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (("started_utc",), "now"),
        (("number",), -1),
        (("slug",), "x" * 5000),
        (("series", "workload"), "x" * 5000),
        (("workload", "size_bytes"), -1),
        (("duration_s",), 1e300),
        (("throughput_mib_per_s",), float("nan")),
        (("boot",), 2**70),
    ],
)
def test_a_measurement_that_cannot_be_is_named_and_left_out(
    fsjoule: CommandLine, folder: Path, way: tuple[str | int, ...], value: object
) -> None:
    put(first(folder) / "measurement.json", way, value)
    assert first(folder).name in load_run(folder).damaged
    shown = fsjoule("show", folder)
    assert shown.code == 2
    assert "damaged and left out" in " ".join(shown.out.split())


@pytest.mark.parametrize("kind", ["latency", "fsync"])
@pytest.mark.parametrize("name", ["p99", "-1", "1e5", "nan", "²", "1.2.3", ""])
def test_a_percentile_is_a_number(folder: Path, kind: str, name: str) -> None:
    file = next(f for f in folder.glob("measurements/*/measurement.json") if '"latency_perc' in f.read_text())
    put(file, ("fio", f"{kind}_percentiles_ns"), {name: 1})
    assert "not a percentile" in load_run(folder).damaged[file.parent.name]


@given(st.text() | st.datetimes().map(str) | st.datetimes(timezones=st.timezones()).map(lambda time: time.isoformat()))
def test_a_text_is_a_time_or_it_is_told_why_not(text: str) -> None:
    why = wrong_time(text)
    assert why is None or why.endswith(("is not a time", "has no time zone"))


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 100_000, b'[{"title": "a\\ud800"}]'])
def test_damaged_steps_are_told(content: bytes) -> None:
    with pytest.raises(ResultError, match="labgrid's steps"):
        decode_steps(content)


# ------------------------------------------------------------------------------------------------------------- traces


def rewritten(**columns: object) -> bytes:
    """A trace with some of its columns replaced."""
    source = pa.BufferReader(encode_trace(make_trace()))
    file = pq.ParquetFile(source)
    table = file.read()
    for name, values in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, values)
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(file.metadata.metadata), sink)
    return bytes(sink.getvalue())


ROWS = len(make_trace().ticks)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"bus_raw": pa.array(["x"] * ROWS)}, "is of type string"),
        ({"tick": pa.array([{"a": 1}] * ROWS)}, "is of type struct"),
        ({"tick": pa.array([1.5] * ROWS)}, "is of type double"),
        ({"shunt_raw": pa.nulls(ROWS, pa.int32())}, "does not hold"),
        ({"tick": pa.array(np.zeros(ROWS, dtype=np.int64))}, "does not ascend"),
        ({"tick": pa.array(np.arange(ROWS, 0, -1))}, "does not ascend"),
        ({"time_us": pa.array(np.full(ROWS, 2**63 - 1))}, "impossible"),
    ],
)
def test_columns_that_are_none_of_a_trace_are_refused(columns: dict[str, object], why: str) -> None:
    with pytest.raises(ResultError, match=why):
        decode_trace(rewritten(**columns), Path("trace.parquet"))


@cache
def of_nulls(rows: int) -> bytes:
    """One value, again and again: some kilobytes, in one row group."""
    kinds = {"tick": pa.int64(), "time_us": pa.int64(), "shunt_raw": pa.int32(), "bus_raw": pa.int32()}
    kinds |= {f"checkpoint_{name}": pa.int64() for name in ("tick", "raw", "bus", "missed")}
    table = pa.table({name: pa.nulls(rows, kind) for name, kind in kinds.items()})
    metadata = pq.ParquetFile(pa.BufferReader(encode_trace(make_trace()))).metadata.metadata
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(metadata), sink, row_group_size=rows, write_statistics=False)
    return bytes(sink.getvalue())


def count(number: int) -> bytes:
    """As Parquet's footer has it (Thrift's compact protocol): the next field, 64 bits."""
    left, parts = 2 * number, [0x16]
    while left:
        parts.append(left & 0x7F | 0x80 * (left > 0x7F))
        left >>= 7
    return bytes(parts)


def test_a_few_bytes_cannot_claim_all_memory() -> None:
    rows = MOST_ROWS + 1
    with pytest.raises(ResultError, match=f"has {rows} rows"):
        decode_trace(of_nulls(rows), Path("trace.parquet"))


@pytest.mark.parametrize("changed", [slice(0, 1), slice(0, 10, 9), slice(1, 9), slice(9, 10), slice(3, 4)])
def test_all_that_a_trace_says_of_its_rows_must_agree(changed: slice) -> None:
    """The file says it, then each of eight columns, then their group: any of them may claim less than comes."""
    rows = MOST_ROWS + 1_000_000
    content = of_nulls(rows)
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    parts = content[footer:].split(count(rows))
    told = [count(rows)] * 10
    told[changed] = [count(rows - 2_000_000)] * len(told[changed])
    assert len(parts) == len(told) + 1
    forged = content[:footer] + b"".join(a + b for a, b in zip(parts, [*told, b""], strict=True))
    assert len(forged) == len(content)
    with pytest.raises(ResultError, match=r"contradicts itself|a measurement's trace has at most"):
        decode_trace(forged, Path("trace.parquet"))


@given(st.data())
def test_a_trace_with_wrong_bytes_is_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(encode_trace(make_trace()))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ResultError):
        trace = decode_trace(bytes(content), Path("trace.parquet"))
        assert len(trace.ticks) == len(trace.power_w)


def test_no_wrong_byte_of_its_footers_beginning_ends_the_process() -> None:
    """Whoever asks pyarrow for the metadata of a column whose histograms have another size has no process any more."""
    content = encode_trace(make_trace())
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for at in range(footer, footer + 200):
        changed = bytearray(content)
        changed[at] = (changed[at] + 1) % 256
        with suppress(ResultError):
            decode_trace(bytes(changed), Path("trace.parquet"))


def test_a_time_that_steps_back_between_frames_is_drawn() -> None:
    trace = make_trace()
    times = trace.times_us.copy()
    times[20:] -= 1500
    assert "<svg" in trace_chart(make_run(repeat=1).measurements[0], replace(trace, times_us=times), width=300)
