"""Verdicts in words and on charts: directions, decimals, and charts that stand on their own."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from fsjoule.model import Provision, SeriesKey
from fsjoule.model.metrics import Metric
from fsjoule.report.comparison import ComparisonView, headline
from fsjoule.report.findings import comparison_table, figure_text, share_text
from fsjoule.report.forest_chart import forest_chart, forest_charts
from fsjoule.report.numbers import change_text, percent, range_text, signed
from fsjoule.report.words import means
from fsjoule.statistics.comparison import Verdict
from fsjoule.statistics.outcome import Criteria, Outcome
from fsjoule.statistics.ratios import Interval, Ratio
from fsjoule.store.finding import Finding, Subject, important_first
from fsjoule.verdicts.comparison import Compared, ComparedSide, Judged
from fsjoule.verdicts.remarks import single_notes


def judged(
    outcome: Outcome = Outcome.REGRESSED,
    metric: Metric = Metric.THROUGHPUT,
    ratio: tuple[float, float, float] | None = (0.929, 0.918, 0.941),
    label: str = "btrfs randwrite-16k",
    *,
    boots: int = 12,
    matters: float = 0.05,
    guest_time: bool = False,
) -> Judged:
    key = SeriesKey("quick", "board", "mmc", "btrfs", (), (), Provision.SCRATCH, "randwrite-16k")
    subject = Subject("0" * 16, key, simulated=False, label=label)
    verdict = Verdict(
        subject=subject,
        metric=metric,
        outcome=outcome,
        ratio=None if ratio is None else Ratio(ratio[0], Interval(*ratio[1:])),
        p=0.001,
        q=0.002,
        detectable=0.02,
        n_baseline=boots,
        n_candidate=boots,
    )
    return Finding(
        subject=subject,
        metric=metric,
        outcome=outcome,
        ratio=None if ratio is None else ratio[0],
        interval=None if ratio is None or boots == 1 else Interval(*ratio[1:]),
        matters=matters,
        baseline=1.0,
        candidate=None if ratio is None else ratio[0],
        boots=(boots, boots),
        basis=verdict,
        guest_time=guest_time,
    )


def compared(*judged: Judged) -> Compared:
    time = "2026-03-09T10:00:00Z"

    def side(name: str) -> ComparedSide:
        return ComparedSide("kernel", name, f"kernel {name}", (name,), ("a",), (), 12, 12, time, time, (), ())

    return Compared(side("6.1"), side("6.12"), Criteria(), judged, 0.5, interleaved=True, notes=(), damaged={})


def test_the_headline_reads_as_a_sentence() -> None:
    energy = judged(metric=Metric.ENERGY, ratio=(1.05, 1.041, 1.06))
    quiet = [judged(Outcome.UNCHANGED, ratio=(1.0, 0.99, 1.01), label=f"ext4 read-{n}k") for n in range(38)]
    found = compared(judged(), energy, *quiet)
    assert headline(found) == (
        "kernel 6.12 against 6.1: btrfs randwrite-16k 7.1 % slower (95 %: 5.9 to 8.2 %), "
        "5.0 % more energy (95 %: 4.1 to 6.0 %); 38 equal within 5 %"
    )


def test_many_changes_are_counted_and_the_largest_named() -> None:
    found = compared(*(judged(ratio=(1 - n / 100, 0.5, 0.99), label=f"ext4 read-{n}k") for n in range(5, 10)))
    assert headline(found).startswith("kernel 6.12 against 6.1: ext4 read-9k 9.0 % slower")
    assert headline(found).endswith("and 2 more")


def test_the_tiles_of_a_page_are_what_changed_most(tmp_path: Path) -> None:
    quiet = judged(Outcome.UNCHANGED, ratio=(1.0, 0.99, 1.01), label="ext4 read-1k")
    changed = [judged(ratio=(1 - n / 100, 0.5, 0.99), label=f"ext4 read-{n}k") for n in range(5, 10)]
    page = ComparisonView(compared(quiet, *changed)).page(tmp_path / "page.html")
    tiles = re.findall(r'<dt>(.*?)</dt><dd class="bad">(.*?)<small>regressed</small>', page)
    assert tiles == [(f"ext4 read-{n}k, throughput", f"-{n}.0 %") for n in (9, 8, 7, 6)]
    assert "9.0\u00a0% slower" in page
    assert 'class="tiles"' not in ComparisonView(compared(quiet)).page(tmp_path / "page.html")


def test_losses_come_first_in_units_of_what_matters() -> None:
    unchanged = judged(Outcome.UNCHANGED, ratio=(0.99, 0.98, 1.0), label="unchanged")
    gain = judged(Outcome.IMPROVED, ratio=(1.5, 1.4, 1.6), label="gain")
    noisy = judged(Outcome.NOT_REPRODUCIBLE, ratio=(0.66, 0.3, 1.2), label="noisy")
    quiet = judged(Outcome.TOO_FEW, ratio=(0.99, 0.9, 1.1), label="quiet")
    large = judged(metric=Metric.ENERGY, ratio=(1.34, 1.3, 1.4), label="large", matters=0.1)
    dear = judged(ratio=(0.92, 0.91, 0.93), label="dear", matters=0.01)
    none = judged(Outcome.UNDECIDED, ratio=None, label="none")
    ordered = important_first([unchanged, none, quiet, gain, noisy, large, dear])
    assert [one.subject.label for one in ordered] == ["dear", "large", "noisy", "gain", "quiet", "none", "unchanged"]
    assert dear.lost == pytest.approx(8.3, abs=0.1)
    assert large.lost == pytest.approx(3.07, abs=0.01)
    assert gain.lost < -7


def test_ten_of_fifty_are_shown_and_the_rest_is_counted() -> None:
    quiet = [judged(Outcome.UNCHANGED, ratio=(1.0, 0.99, 1.01), label=f"ext4 read-{n}k 32768KiB") for n in range(30)]
    open_ones = [judged(Outcome.TOO_FEW, label=f"a{n}", ratio=(0.98, 0.5, 1.2)) for n in range(19)]
    found = compared(*open_ones, *quiet, judged(ratio=(0.66, 0.6, 0.7), label="ext4 write-16k 32768KiB"))
    for width, columns in ((80, "detectable"), (160, "")):
        shown = terminal(found, width)
        lines = shown.splitlines()
        assert max(map(len, map(str.rstrip, lines))) <= width
        rows = [line.split() for line in lines if " %" in line and ("not yet decided" in line or "regressed" in line)]
        assert "ext4 write-16k 32768KiB 34 % slower (95 %: 30 to 40 %);" in lines[0]
        assert [row[:7] for row in rows if row[0] == "ext4"] == [
            ["ext4", "write-16k", "throughput", "-34.0", "%", "-40.0", "to"],
        ]
        assert "10 of 50 figures, the largest loss first, files of 32 MiB" in shown
        assert "and 40 more figures: 30 equal within 5 %, 10 not yet decided (--all shows them)" in shown
        assert ("left out at this width: " in shown, columns in shown) == (width == 80, True)
        assert "read-29k" not in shown
        assert "read-29k" in terminal(found, width, everything=True)
        assert len(json.loads(json.dumps(ComparisonView(found).document()))["verdicts"]) == 50
    before, _, folded = ComparisonView(found).markdown().partition("<details><summary>49 more figures: ")
    assert "files of 32 MiB" in before
    assert "write-16k" in before
    assert "read-29k" not in before
    assert "read-29k" in folded


def terminal(found: Compared, width: int, *, everything: bool = False) -> str:
    console = Console(width=width, file=io.StringIO())
    ComparisonView(found, everything=everything).print(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_single_boots_in_guest_time_are_no_verdict_but_tell_what_is_beyond_the_spread() -> None:
    def single(metric: Metric, ratio: float, *, guest_time: bool = True) -> Judged:
        return judged(Outcome.TOO_FEW, metric, (ratio, ratio, ratio), boots=1, guest_time=guest_time)

    far, near, latency = (single(Metric.ENERGY, 1.34), single(Metric.CPU, 0.97), single(Metric.P99_LATENCY, 1.5))
    assert [means(one) for one in (far, near, latency)] == ["far apart", "within 5 %", "not yet decided"]
    assert means(single(Metric.ENERGY, 1.34, guest_time=False)) == "not yet decided"
    assert not any(one.changed for one in (far, near, latency))
    found = compared(latency, near, far)
    assert headline(found) == (
        "kernel 6.12 against 6.1: no verdict on one boot of each side, but far beyond the board's own spread: "
        "btrfs randwrite-16k 34 % more energy; 1 not yet decided, 1 within 5 %"
    )
    assert found.counts == {Outcome.TOO_FEW: 3}
    assert important_first(found.findings)[0].metric is Metric.ENERGY
    (note,) = single_notes(found.findings)
    assert "1 of 2 figures differ by more than 5 %" in note
    assert single_notes([latency]) == []


@pytest.mark.parametrize(
    ("metric", "less", "more"),
    [
        (Metric.THROUGHPUT, "slower", "faster"),
        (Metric.OPERATION_ENERGY, "less energy", "more energy"),
        (Metric.DURATION, "less time", "more time"),
        (Metric.P99_LATENCY, "lower p99", "higher p99"),
    ],
)
def test_words_say_the_direction(metric: Metric, less: str, more: str) -> None:
    assert change_text(metric, 0.9) == f"10.0 % {less}"
    assert change_text(metric, 1.25) == f"25.0 % {more}"
    assert all(change_text(each, 0.9) != change_text(each, 1.1) for each in Metric)


def test_decimals_are_those_of_the_interval() -> None:
    assert range_text(Interval(0.918, 0.941)) == "-8.2 to -5.9 %"
    assert range_text(Interval(1.0095, 1.0105)) == "+0.95 to +1.05 %"
    assert range_text(Interval(0.99, 1.03)) == "-1.0 to +3.0 %"
    assert (signed(1.01, Interval(1.0095, 1.0105)), signed(0.66), signed(None)) == ("+1.00 %", "-34.0 %", "–")  # noqa: RUF001
    assert [percent(share) for share in (0.0034, 0.011, 0.34)] == ["0.34 %", "1.1 %", "34.0 %"]


def test_figures_keep_four_digits_and_shares_are_never_zero() -> None:
    assert [figure_text(x) for x in (None, 0.0123456, 12.3, 1234.5)] == ["–", "0.01235", "12.30", "1234"]  # noqa: RUF001
    assert [share_text(x) for x in (None, 1.0, 0.0022, 1e-9)] == ["–", "100 %", "0.22 %", "< 0.001 %"]  # noqa: RUF001


def test_a_chart_draws_verdicts_filled_and_the_rest_hollow() -> None:
    found = compared(
        judged(), judged(Outcome.TOO_FEW, label="hollow <b>"), judged(Outcome.IMPROVED, Metric.ENERGY, (0.9, 0.8, 0.95))
    )
    drawn, energy = forest_charts(found.findings, simulated=False)
    assert "Throughput: change, more is better" in drawn
    assert "simulated" not in drawn
    assert "hollow &lt;b&gt;" in drawn
    assert len(re.findall(r'aria-roledescription="point"', drawn)) == 2
    assert "Energy: change, less is better" in energy
    both = forest_chart(found.findings, "Change", simulated=True)
    assert both is not None
    assert "Change (simulated)" in both
    assert "throughput, change in %" in both
    assert "energy, change in %" in both


def test_without_any_ratio_there_is_no_chart_but_all_else() -> None:
    found = compared(judged(Outcome.TOO_FEW, ratio=None))
    assert forest_chart(found.findings, "Change", simulated=False) is None
    assert forest_charts(found.findings, simulated=False) == []
    assert "6.12 against 6.1: 1 not yet decided" in ComparisonView(found).markdown()


def test_markdown_takes_names_as_they_are() -> None:
    text = ComparisonView(compared(judged(label="ext4 (a_b|*c*) <x>"))).markdown()
    assert "ext4 (a\\_b\\|\\*c\\*) &lt;x&gt;" in text


def test_one_boot_has_no_interval() -> None:
    one = judged(Outcome.TOO_FEW, boots=1)
    row = comparison_table("", [one], simulated=False).rows[0]
    assert [cell.text for cell in row[2:4]] == ["-7.1 %", "–"]  # noqa: RUF001
    (verdict,) = json.loads(json.dumps(ComparisonView(compared(one)).document()))["verdicts"]
    assert (verdict["ratio"], verdict["interval"]) == (0.929, None)


def test_all_figures_have_one_scale() -> None:
    """A change is as long in one plot as in another; an interval that decides nothing does not stretch them."""
    open_one = judged(Outcome.TOO_FEW, Metric.CPU, (1.0, 0.2, 9.0))
    found = compared(judged(), judged(Outcome.UNCHANGED, Metric.ENERGY, (1.0, 0.99, 1.01)), open_one)
    ticks = [re.findall(r">([−\d]+)</text>", drawn) for drawn in forest_charts(found.findings, simulated=False)]  # noqa: RUF001
    assert len(ticks) == 3
    assert ticks[0] == ticks[1] == ticks[2] != []
