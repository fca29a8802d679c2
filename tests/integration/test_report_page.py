"""Charts and the page: self-contained, well formed, and honest about what was simulated."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from results_factory import MadeRun, make_run, make_trace

from fsjoule.errors import ResultError
from fsjoule.model import Projection, RunStatus, Trace
from fsjoule.report import style
from fsjoule.report.charts import energy_chart, throughput_chart, timed_charts
from fsjoule.report.facts import measurement_facts
from fsjoule.report.numbers import ABSENT
from fsjoule.report.page import render_page
from fsjoule.report.summary import summarise
from fsjoule.report.tables import fio_table
from fsjoule.report.trace_chart import binned, trace_chart

_VOID = {"meta", "link", "br", "img", "input", "hr"}


class _WellFormed(HTMLParser):
    """Collects elements, and fails on one that is closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def made() -> MadeRun:
    return make_run(repeat=1)


@pytest.fixture(scope="module")
def page(made: MadeRun) -> str:
    return render_page(summarise(made.run, made.measurements, {"99-x": "damaged"}), made.measurements, made.traces.get)


def _parsed(page: str) -> _WellFormed:
    parser = _WellFormed()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def test_the_page_is_well_formed_and_needs_no_network(page: str) -> None:
    elements = _parsed(page).seen
    assert not [tag for tag, _ in elements if tag in ("script", "img", "iframe", "object")]
    assert not [
        attrs for _, attrs in elements if "src" in attrs or not (attrs.get("href") or "#").startswith(("#", "data:"))
    ]
    assert "@import" not in page
    assert "url(" not in page


def test_each_measurement_is_on_the_page_once_and_links_lead_somewhere(page: str, made: MadeRun) -> None:
    elements = _parsed(page).seen
    ids = [attrs["id"] for tag, attrs in elements if tag == "details" and "id" in attrs]
    assert sorted(ids, key=str) == sorted(f"m{m.number}" for m in made.measurements)
    links = {(attrs["href"] or "")[1:] for tag, attrs in elements if tag == "a"}
    assert links
    assert links <= set(ids)


def test_the_page_holds_what_is_needed_to_repeat_the_run(page: str, made: MadeRun) -> None:
    image = made.run.image
    assert image is not None
    for fact in (*image.checksums.values(), image.card_sha256, image.kernel_package, "pytest tests/bench", "7.2.19"):
        assert fact in page
    assert "Jacomelli, Bruschi" in page


def test_what_was_adjusted_stands_apart_from_what_was_left_out(made: MadeRun) -> None:
    plan = replace(made.run.plan, left_out=("no fsck",), adjusted=("queue depth 52 instead of 128",))
    page = render_page(summarise(replace(made.run, plan=plan), []), [], made.traces.get)
    facts = re.findall(r"<dt>(left out|adjusted)</dt>\s*<dd[^>]*>([^<]*)</dd>", page)
    assert facts == [("left out", "no fsck"), ("adjusted", "queue depth 52 instead of 128")]


def test_every_chart_and_heading_with_figures_says_simulated(page: str) -> None:
    titles = re.findall(r'<text[^>]*font-size="13px"[^>]*>([^<]*)</text>', page)
    assert titles
    assert all(title.endswith("(simulated)") for title in titles)
    real = make_run(filesystems=("ext4",), repeat=1, simulated=False)
    shown = render_page(summarise(real.run, real.measurements), real.measurements, real.traces.get)
    assert "simulated" not in re.sub(r"(?s)<style>.*?</style>", "", shown)


def test_text_from_a_run_cannot_become_markup(made: MadeRun) -> None:
    hostile = "<script>alert(1)</script>"
    measurement = replace(made.measurements[0], invalid_reasons=(hostile,), slug=hostile, notes=(hostile,))
    run = replace(made.run, status=RunStatus.ABORTED, abort_reason=hostile, command=(hostile,))
    page = render_page(summarise(run, [measurement], {hostile: hostile}), [measurement], made.traces.get)
    assert hostile not in page
    assert "was not completed" in page
    _parsed(page)


def test_a_trace_that_is_missing_or_damaged_costs_only_itself(made: MadeRun) -> None:
    def trace_of(number: int) -> Trace | None:
        if number == 1:
            raise ResultError("trace.parquet cannot be read")
        return None

    page = render_page(summarise(made.run, made.measurements), made.measurements, trace_of)
    assert "trace.parquet cannot be read" in page
    assert "the meter recorded nothing: there is no trace and no energy" in page
    assert "its trace was not pulled with the run" in page, "it counted samples"


def test_an_empty_run_has_a_page(made: MadeRun) -> None:
    run = replace(made.run, boards={}, images=(), meter=None, phases_s={}, versions={}, command=())
    _parsed(render_page(summarise(run, []), [], made.traces.get))


def test_a_run_of_forty_measurements_stays_below_five_megabytes(page: str, made: MadeRun) -> None:
    assert len(page.encode()) / len(made.measurements) < 5e6 / 40


def test_charts_are_svg_and_use_only_colours_that_have_a_dark_partner(made: MadeRun) -> None:
    summary = summarise(made.run, made.measurements)
    charts = [throughput_chart(summary), energy_chart(summary)]
    charts += [chart for _, drawn in timed_charts(summary) for chart in drawn]
    charts += [trace_chart(made.measurements[0], made.traces[1], width=300)]
    for chart in charts:
        assert chart is not None
        assert ET.fromstring(chart).tag.endswith("svg")
        used = set(re.findall(r'(?:fill|stroke)="(#[^"]*)"', chart))
        assert used <= set(style.DARK)


def test_nothing_to_draw_is_no_chart(made: MadeRun) -> None:
    summary = summarise(made.run, [])
    assert throughput_chart(summary) is None
    assert energy_chart(summary) is None
    assert timed_charts(summary) == []


def test_every_colour_has_one_meaning_and_a_dark_partner() -> None:
    labels = [*style.FILESYSTEMS, "btrfs (compress=zstd)", "reiserfs"]
    colours = style.filesystem_colours(labels)
    assert colours["ext4"] == style.FILESYSTEMS["ext4"]
    assert len(set(colours.values())) == len(labels)
    assert set(colours.values()) <= set(style.DARK)


def test_bins_keep_extremes_means_and_gaps() -> None:
    seconds = np.concatenate((np.arange(0, 1, 0.001), np.arange(2, 3, 0.001)))
    power_w = np.ones_like(seconds)
    power_w[500] = 3.0
    rows = binned(seconds, power_w, 30)
    assert rows.shape == (30, 4)
    assert np.nanmax(rows[:, 3]) == 3.0
    assert np.nanmin(rows[:, 2]) == 1.0
    empty = np.isnan(rows[:, 1])
    assert set(np.flatnonzero(empty)) <= set(range(9, 21))
    assert 9 <= empty.sum() <= 11
    assert binned(np.array([]), np.array([]), 30).shape == (0, 4)
    assert binned(np.array([1.0]), np.array([2.0]), 30).tolist() == [[1.0, 2.0, 2.0, 2.0]]


def test_a_trace_without_marks_is_drawn(made: MadeRun) -> None:
    bare = replace(made.measurements[0], window=None, idle_window=None, energy=None)
    trace = replace(make_trace(), marks=())
    assert "power (simulated)" in trace_chart(bare, trace, width=300)


def test_bars_and_table_show_the_same_figure(made: MadeRun) -> None:
    measurements = [
        replace(m, projected=Projection("emmc", 0.1, 10.0, 40.0, 2.0, 0.5, 100.0, m.throughput_mib_per_s / 2, 4.0))
        if m.throughput_mib_per_s
        else m
        for m in made.measurements
    ]
    summary = summarise(made.run, measurements)
    table = {row[3].text for row in fio_table(summary).rows if row[3].text != ABSENT}
    for with_card in (False, True):
        chart = throughput_chart(summary, card=with_card)
        assert chart is not None
        bars = re.findall(r'aria-label="MiB/s: ([\d.]+);[^"]*"[^>]*aria-roledescription="bar"', chart)
        assert len(bars) == len(table)
        assert ({f"{float(bar):.2f}" for bar in bars} == {f"{float(text):.2f}" for text in table}) is with_card
        assert ("Throughput with card" in chart) is with_card


def test_facts_of_a_measurement_say_what_they_mean(made: MadeRun) -> None:
    measurement = next(m for m in made.measurements if m.fio is not None and m.energy is not None)
    assert measurement.fio is not None
    assert measurement.energy is not None
    late = replace(
        measurement,
        # The largest percentile is the middle of a bin of fio's histogram, which may lie above the exact maximum.
        fio=replace(
            measurement.fio, latency_max_ns=5_000_000, latency_percentiles_ns={"50.0": 1_000_000, "99.99": 5_070_000}
        ),
        energy=replace(measurement.energy, lost_ticks=3, missed_ticks=0),
    )
    facts = dict(measurement_facts(late))
    assert "p50 1.000, p99.99 5.000, max 5.000" in facts["completion latency, ms"]
    assert facts["device reads"] == "120 requests, 480 KiB in all"
    assert facts["samples that did not arrive"] == "3, bridged by the meter's own sums"
    assert "samples that were not taken" not in facts
    assert "slack" not in " ".join((*facts, *facts.values()))
