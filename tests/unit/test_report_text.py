"""The end of a run in the terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from results_factory import LAB, MadeRun, make_run
from rich.console import Console

from fsjoule.model import RunStatus
from fsjoule.model.emmc import EmmcFacts, EmmcState
from fsjoule.model.metrics import Metric
from fsjoule.report.answer import RunAnswer, answer
from fsjoule.report.facts import run_facts
from fsjoule.report.oneline import plan_lines
from fsjoule.report.run import print_summary
from fsjoule.report.summary import Summary, summarise
from fsjoule.verdicts.filesystems import contests


@pytest.fixture(scope="module")
def made() -> MadeRun:
    return make_run()


def _text(summary: Summary, width: int = 120, *, found: RunAnswer | None = None, wide: bool = False) -> str:
    sink = io.StringIO()
    folder = Path("results") / ("a-long-name" * 12)
    page = folder / "report.html"
    print_summary(Console(file=sink, width=width), summary, found, folder=folder, page=page, wide=wide)
    return sink.getvalue()


def test_an_emmc_has_a_line_in_the_terminal_and_on_the_page(made: MadeRun) -> None:
    before = EmmcState(8, life_a=2, life_b=1, pre_eol=1, cache_kbit=4096, cache_on=True, trim=True, bkops="auto")
    worn = replace(made.run, emmcs={"card": EmmcFacts(before, replace(before, life_a=3))})
    line = "eMMC 5.1, cache of 4096 Kbit on, TRIM, BKOPS auto; up to 20 % of its life is used, reserved blocks normal"
    assert f"eMMC card: {line}" in " ".join(_text(summarise(worn, made.measurements)).split())
    assert dict(dict(run_facts(worn))["Board"])["eMMC card"].startswith(line)


@pytest.mark.parametrize("width", [64, 80, 100, 120])
def test_no_line_is_too_wide_and_no_figure_is_cut(made: MadeRun, width: int) -> None:
    summary = summarise(made.run, made.measurements)
    text = _text(summary, width, found=answer(summary, contests(made.measurements)))
    tables = text.rsplit("run folder", 1)[0]
    assert max(map(len, tables.splitlines())) <= width
    # In less than a terminal's usual room, names of operations are shortened too.
    assert width < 80 or "…" not in tables
    for heading in ("Which filesystem is better", "Throughput and energy", "Timed operations"):
        assert heading in tables


def test_all_figures_of_an_operation_stand_on_one_line(made: MadeRun) -> None:
    summary = summarise(made.run, made.measurements)
    lines = _text(summary).splitlines()
    line = next(line for line in lines if line.lstrip().startswith("write 16 KiB"))
    row = next(row for row in summary.fio if row.workload.operation.value == "write")
    speed = row.figures[Metric.THROUGHPUT]
    assert f"{speed.mean:.2f} ± {speed.sd:.2f}" in line
    assert line.count("±") == 6


def test_every_table_of_figures_says_simulated(made: MadeRun) -> None:
    """The head, and the tables: throughput, timed operations; wide also published figures."""
    for wide, tables in ((False, 2), (True, 3)):
        assert _text(summarise(made.run, made.measurements), wide=wide).count("simulated") == 1 + tables
    real = make_run(simulated=False)
    assert "simulated" not in _text(summarise(real.run, real.measurements))


def test_where_it_was_measured_and_with_what_is_said(made: MadeRun) -> None:
    assert "place " not in _text(summarise(made.run, made.measurements))
    located = replace(made.run, lab=LAB)
    assert "\nplace virtual, exporter fsjoule-virtual; meter T1\n" in _text(summarise(located, made.measurements))
    facts = dict(dict(run_facts(located))["Lab"])
    assert facts == {
        "place": "virtual",
        "coordinator": "127.0.0.1:20408",
        "exporter": "fsjoule-virtual on 127.0.0.1",
        "meter's port": "NetworkSerialPort, 127.0.0.1:40001, /dev/shm/fsjoule-virtual/meter",
        "measured by": "lab@runner",
    }


def test_what_is_left_out_is_said(made: MadeRun) -> None:
    aborted = replace(made.run, status=RunStatus.ABORTED, abort_reason="interrupted")
    text = _text(summarise(aborted, made.measurements[:5], {"07-x": "not JSON"}))
    assert "aborted: interrupted" in text
    assert "5 of 43 measurements taken, 4 valid" in text
    assert "02 ext4-read-16k" in text
    assert "differ by 10.1 %" in text
    assert "07-x" in text


def test_paths_are_whole_and_wide_text_is_about_the_run_too(made: MadeRun) -> None:
    about = ("Beside the published figures", "Where the time went", "measuring for 49 % of it")
    text = _text(summarise(made.run, made.measurements), 80)
    assert f"report      results/{'a-long-name' * 12}/report.html" in text
    assert not any(each in text for each in about)
    wide = _text(summarise(made.run, made.measurements), wide=True)
    assert all(each in wide for each in about)


def test_a_run_tells_what_is_left_out_apart_from_what_is_adjusted() -> None:
    assert plan_lines(["fsck: nilfs2 has no fsck"], ["randread: queue depth 52 instead of 128"]) == [
        "left out: fsck: nilfs2 has no fsck",
        "adjusted: randread: queue depth 52 instead of 128",
    ]
