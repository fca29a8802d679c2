"""Verdicts in words and on charts: directions, decimals, and charts that stand on their own."""

from __future__ import annotations

import json
import re

import pytest

from fsjoule.model import Provision, SeriesKey
from fsjoule.model.metrics import Metric
from fsjoule.report.comparison.as_json import to_document
from fsjoule.report.comparison.chart import forest_chart
from fsjoule.report.comparison.markdown import to_markdown
from fsjoule.report.comparison.table import comparison_table, figure_text, share_text
from fsjoule.report.comparison.words import change_text, headline, range_text
from fsjoule.statistics.comparison import Outcome, Verdict
from fsjoule.statistics.criteria import Criteria
from fsjoule.statistics.ratios import Interval, Ratio
from fsjoule.verdicts.comparison import Compared, ComparedSide, Judged, Subject


def judged(
    outcome: Outcome = Outcome.REGRESSED,
    metric: Metric = Metric.THROUGHPUT,
    ratio: tuple[float, float, float] | None = (0.929, 0.918, 0.941),
    label: str = "btrfs randwrite-16k",
    boots: int = 12,
) -> Judged:
    key = SeriesKey("quick", "board", "mmc", "btrfs", (), (), Provision.SCRATCH, "randwrite-16k")
    verdict = Verdict(
        subject=Subject("0" * 16, key, simulated=False, label=label),
        metric=metric,
        outcome=outcome,
        ratio=None if ratio is None else Ratio(ratio[0], Interval(*ratio[1:])),
        p=0.001,
        q=0.002,
        detectable=0.02,
        n_baseline=boots,
        n_candidate=12,
    )
    return Judged(verdict, 1.0, None if ratio is None else ratio[0])


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
        "kernel 6.12 against 6.1: btrfs randwrite-16k 7.1 % slower (5.9 to 8.2 %), 5.0 % hungrier (4.1 to 6.0 %); "
        "38 unchanged"
    )


def test_many_changes_are_counted_and_the_largest_named() -> None:
    found = compared(*(judged(ratio=(1 - n / 100, 0.5, 0.99), label=f"ext4 read-{n}k") for n in range(5, 10)))
    assert headline(found).startswith("kernel 6.12 against 6.1: ext4 read-9k 9.0 % slower")
    assert headline(found).endswith("2 more changes of 2 series")


@pytest.mark.parametrize(
    ("metric", "less", "more"),
    [
        (Metric.THROUGHPUT, "slower", "faster"),
        (Metric.OPERATION_ENERGY, "thriftier", "hungrier"),
        (Metric.DURATION, "quicker", "longer"),
        (Metric.P99_LATENCY, "lower p99", "higher p99"),
    ],
)
def test_words_say_the_direction(metric: Metric, less: str, more: str) -> None:
    assert change_text(judged(metric=metric, ratio=(0.9, 0.88, 0.92))) == f"10.0 % {less}"
    assert change_text(judged(metric=metric, ratio=(1.25, 1.2, 1.3))) == f"25.0 % {more}"
    assert all(change_text(judged(metric=each, ratio=(0.9, 0.8, 0.95))) for each in Metric)


def test_decimals_are_those_of_the_interval() -> None:
    assert range_text(Ratio(0.929, Interval(0.918, 0.941))) == "5.9 to 8.2 %"
    assert range_text(Ratio(1.01, Interval(1.0095, 1.0105))) == "0.95 to 1.05 %"
    assert range_text(Ratio(1.01, Interval(1.01, 1.01))) == "1.0 %"
    assert range_text(Ratio(1.01, Interval(0.99, 1.03))) == "-1.0 to 3.0 %"


def test_figures_keep_four_digits_and_shares_are_never_zero() -> None:
    assert [figure_text(x) for x in (None, 0.0123456, 12.3, 1234.5)] == ["–", "0.01235", "12.30", "1234"]  # noqa: RUF001
    assert [share_text(x) for x in (None, 1.0, 0.0022, 1e-9)] == ["–", "100 %", "0.22 %", "< 0.001 %"]  # noqa: RUF001


def test_a_chart_draws_verdicts_filled_and_the_rest_hollow() -> None:
    found = compared(
        judged(), judged(Outcome.TOO_FEW, label="hollow <b>"), judged(Outcome.IMPROVED, Metric.ENERGY, (0.9, 0.8, 0.95))
    )
    drawn = forest_chart(found, Metric.THROUGHPUT)
    assert drawn is not None
    assert "Throughput: change, more is better" in drawn
    assert "simulated" not in drawn
    assert "hollow &lt;b&gt;" in drawn
    assert len(re.findall(r'aria-roledescription="point"', drawn)) == 2
    assert forest_chart(found, Metric.CPU) is None
    both = forest_chart(found)
    assert both is not None
    assert "throughput, change in %" in both
    assert "energy, change in %" in both


def test_without_any_ratio_there_is_no_chart_but_all_else() -> None:
    found = compared(judged(Outcome.TOO_FEW, ratio=None))
    assert forest_chart(found) is None
    assert "no change shown; 1 too few" in to_markdown(found)


def test_markdown_takes_names_as_they_are() -> None:
    text = to_markdown(compared(judged(label="ext4 (a_b|*c*) <x>")))
    assert "ext4 (a\\_b\\|\\*c\\*) &lt;x&gt;" in text


def test_one_boot_has_no_interval() -> None:
    assert judged(boots=2).interval == Interval(0.918, 0.941)
    one = judged(Outcome.TOO_FEW, boots=1)
    assert one.interval is None
    row = comparison_table(compared(one)).rows[0]
    assert [cell.text for cell in row[3:6]] == ["0.929", "–", "1, 12"]  # noqa: RUF001
    (verdict,) = json.loads(json.dumps(to_document(compared(one))))["verdicts"]
    assert (verdict["ratio"], verdict["interval"]) == (0.929, None)
