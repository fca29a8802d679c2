"""The verdicts as a table, for the terminal, Markdown and the page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from fsjoule.model.metrics import Figure, Metric
from fsjoule.report.comparison.words import subject_text, verdict_text
from fsjoule.report.numbers import ABSENT
from fsjoule.report.tables import Cell, Column, Table, Tone
from fsjoule.statistics.comparison import Outcome, Verdict
from fsjoule.statistics.ratios import Interval, Ratio
from fsjoule.verdicts.comparison import Compared, Judged, Subject

_SIGNIFICANT: Final = 4
# Percent: without decimals from here on, and no less than this is told.
_WHOLE: Final = 10
_TINY: Final = 0.001
TONES: Final = {
    Outcome.IMPROVED: Tone.GOOD,
    Outcome.UNCHANGED: Tone.PLAIN,
    Outcome.REGRESSED: Tone.BAD,
    Outcome.NOT_REPRODUCIBLE: Tone.DOUBT,
    Outcome.TOO_FEW: Tone.DOUBT,
}
_COLUMNS: Final = (
    Column("series", is_figure=False, head=True),
    Column("figure", is_figure=False, head=True),
    Column("verdict", is_figure=False),
    Column("ratio"),
    Column("95 % interval", joins=True),
    Column("n", joins=True),
    Column("baseline"),
    Column("candidate", joins=True),
    Column("unit", joins=True),
    Column("p"),
    Column("q", joins=True),
    Column("detectable", joins=True),
)


def comparison_table(compared: Compared, *, only_changes: bool = False) -> Table:
    """A row for each series and metric, or for those alone that changed."""
    shown = [one for one in compared.judged if one.changed or not only_changes]
    names = [subject_text(one) for one in shown]
    breaks = frozenset(i for i, (above, below) in enumerate(pairwise(names), start=1) if above != below)
    title = "Changes" if only_changes else "Verdicts"
    return Table(title, compared.simulated, _COLUMNS, tuple(map(_row, shown)), breaks)


def metrics_of(judged: Sequence[Judged]) -> list[Metric]:
    """The metrics that there are, in their own order."""
    found = {one.verdict.metric for one in judged}
    return [metric for metric in Metric if metric in found]


def ratio_text(ratio: Ratio | None) -> str:
    return ABSENT if ratio is None else f"{ratio.value:.{_SIGNIFICANT - 1}f}"


def interval_text(interval: Interval | None) -> str:
    if interval is None:
        return ABSENT
    return f"{interval.low:.{_SIGNIFICANT - 1}f} to {interval.high:.{_SIGNIFICANT - 1}f}"


def figure_text(figure: Figure) -> str:
    """Four significant digits, without exponents where they can be avoided."""
    return ABSENT if figure is None else f"{figure:#.{_SIGNIFICANT}g}".rstrip(".")


def share_text(share: float | None) -> str:
    """A fraction as a percentage of two significant digits, down to a thousandth of a percent."""
    if share is None:
        return ABSENT
    percent = 100 * share
    if percent >= _WHOLE:
        return f"{percent:.0f} %"
    return f"{percent:.2g} %" if percent >= _TINY else f"< {_TINY:g} %"


def _row(one: Judged) -> tuple[Cell, ...]:
    verdict = one.verdict
    return (
        Cell(subject_text(one)),
        Cell(verdict.metric.value),
        Cell(verdict_text(one), tone=TONES[verdict.outcome]),
        Cell(ratio_text(verdict.ratio)),
        Cell(interval_text(one.interval)),
        Cell(_counts(verdict)),
        Cell(figure_text(one.baseline)),
        Cell(figure_text(one.candidate)),
        Cell(verdict.metric.unit),
        Cell(share_text(verdict.p)),
        Cell(share_text(verdict.q)),
        Cell(share_text(verdict.detectable)),
    )


def _counts(verdict: Verdict[Subject]) -> str:
    same = verdict.n_baseline == verdict.n_candidate
    return str(verdict.n_baseline) if same else f"{verdict.n_baseline}, {verdict.n_candidate}"
