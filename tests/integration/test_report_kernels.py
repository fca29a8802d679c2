"""Reports of runs with several kernels: every figure beside its like of the other kernels."""

from __future__ import annotations

import io
import json
import re
from xml.etree import ElementTree as ET

import pytest
from results_factory import MadeRun, make_run
from rich.console import Console

from fsjoule.model import IoPattern
from fsjoule.model.metrics import Metric
from fsjoule.report import style
from fsjoule.report.charts import throughput_chart, timed_charts
from fsjoule.report.oneline import one_line
from fsjoule.report.page import render_page
from fsjoule.report.run import print_summary, to_json
from fsjoule.report.summary import summarise
from fsjoule.report.tables import fio_table, kernel_tables, timed_table

KERNELS = ("6.1", "v6.1.192-3-g0123456789ab", "6.12")


@pytest.fixture(scope="module")
def made() -> MadeRun:
    return make_run(kernels=KERNELS, repeat=2)


def test_rows_of_one_series_stand_together_in_the_plans_order_of_kernels(made: MadeRun) -> None:
    summary = summarise(made.run, made.measurements)
    assert [(row.workload.operation.value, row.label, row.kernel) for row in summary.fio[:6]] == [
        *(("read", "ext4", kernel) for kernel in KERNELS),
        *(("read", "btrfs", kernel) for kernel in KERNELS),
    ]
    for row in (*summary.fio, *summary.timed):
        of_it = [m for m in made.measurements if (m.series, m.kernel) == (row.series, row.kernel)]
        assert row.valid + row.invalid == len(of_it)


@pytest.mark.parametrize("kernels", [("6.1",), KERNELS], ids=["one", "several"])
def test_kernels_have_a_column_where_there_are_several(kernels: tuple[str, ...]) -> None:
    made = make_run(kernels=kernels, repeat=1)
    summary = summarise(made.run, made.measurements)
    for table in (fio_table(summary), timed_table(summary)):
        assert ("kernel" in [column.name for column in table.columns]) == (len(kernels) > 1)
    assert bool(kernel_tables(summary)) == (len(kernels) > 1)


def test_kernels_stand_side_by_side(made: MadeRun) -> None:
    summary = summarise(made.run, made.measurements)
    throughput = kernel_tables(summary)[0]
    assert [column.name for column in throughput.columns] == ["operation", "filesystem", *KERNELS]
    first = throughput.rows[0]
    rows = [row for row in summary.fio if (row.workload.operation.value, row.label) == ("read", "ext4")]
    for cell, row in zip(first[2:], rows, strict=True):
        assert float(cell.text.removeprefix("†")) == pytest.approx(row.figures[Metric.THROUGHPUT].mean, abs=0.01)
    assert all(len(row) == len(throughput.columns) for row in throughput.rows)


def test_a_kernel_without_a_figure_has_a_dash(made: MadeRun) -> None:
    without = [m for m in made.measurements if m.kernel != "6.12" or m.workload.kind != "fio"]
    throughput = kernel_tables(summarise(made.run, without))[0]
    assert {row[-1].text for row in throughput.rows} == {"–"}  # noqa: RUF001 - the report's own dash


def test_tables_by_kernel_are_in_one_piece_and_name_what_they_leave_out(made: MadeRun) -> None:
    for width, wide in ((64, False), (80, False), (120, False), (64, True)):
        sink = io.StringIO()
        print_summary(Console(file=sink, width=width), summarise(made.run, made.measurements), wide=wide)
        text = sink.getvalue()
        tables = [line for line in text.splitlines() if "│" in line or "─" in line or "±" in line]
        assert wide or max(map(len, tables)) <= width
        assert text.count("Throughput by kernel") == 1
        assert ("--wide" in text) != wide or width == 120
        assert not wide or all(kernel in text for kernel in KERNELS)


def test_the_page_shows_each_kernel_with_all_that_is_needed_to_get_it_again() -> None:
    made = make_run(filesystems=("ext4",), kernels=KERNELS, repeat=1)
    measurements = [m for m in made.measurements if m.workload.operation is IoPattern.READ]
    page = render_page(summarise(made.run, measurements), measurements, made.traces.get)
    for kernel in made.run.kernels:
        assert f"Kernel {kernel.label}" in page
        assert kernel.digest in page
        assert f"read 16 KiB · ext4 · {kernel.label}" in page
    assert "Kernels side by side" in page
    ids = re.findall(r'<details id="m(\d+)">', page)
    assert sorted(map(int, ids)) == [m.number for m in measurements]


def test_charts_tell_kernels_apart_by_colours_that_no_filesystem_has(made: MadeRun) -> None:
    summary = summarise(made.run, made.measurements)
    colours = style.kernel_colours(KERNELS)
    assert len(set(colours.values())) == len(KERNELS)
    assert not set(colours.values()) & set(style.FILESYSTEMS.values())
    for chart in (throughput_chart(summary), *(chart for _, drawn in timed_charts(summary) for chart in drawn)):
        assert chart is not None
        ET.fromstring(chart)
        used = set(re.findall(r'fill="(#[^"]*)"', chart))
        assert set(colours.values()) <= used <= set(style.DARK)


def test_scripts_are_told_the_kernel(made: MadeRun) -> None:
    document = json.loads(to_json(summarise(made.run, made.measurements), made.measurements))
    assert {row["kernel"] for row in document["summary"]["fio"]} == set(KERNELS)
    assert {m["kernel"] for m in document["measurements"]} == set(KERNELS)


def test_the_line_of_a_measurement_names_its_kernel_if_asked(made: MadeRun) -> None:
    measurement = made.measurements[0]
    assert one_line(measurement, kernel=True) == f"{measurement.kernel} {one_line(measurement)}"
