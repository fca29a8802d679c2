"""The tests of a gate as a table, for the terminal and Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from fsjoule.report.comparison.table import figure_text
from fsjoule.report.gating import words
from fsjoule.report.numbers import ABSENT
from fsjoule.report.tables import Cell, Column, Table, Tone
from fsjoule.verdicts.gated import Gated, GateVerdict, Tested

_COLUMNS: Final = (
    Column("series", is_figure=False, head=True),
    Column("figure", is_figure=False, head=True),
    Column("", is_figure=False),
    Column("ratio"),
    Column("95 % interval", joins=True),
    Column("matters", joins=True),
    Column("evidence", joins=True),
    Column("pairs", joins=True),
    Column("baseline"),
    Column("candidate", joins=True),
    Column("unit", is_figure=False, joins=True),
    Column("noise", joins=True),
)


def changes(gated: Gated) -> list[Tested]:
    """What a reader must see: what is worse or better; if nothing was decided, what was not."""
    wanted = gated.verdict is GateVerdict.UNDECIDED
    found = [one for one in gated.tested if one.regressed or one.better or (wanted and one.undecided)]
    return sorted(found, key=lambda one: (not one.regressed, one.better))


def the_rest(gated: Gated) -> list[Tested]:
    shown = changes(gated)
    return [one for one in gated.tested if one not in shown]


def gate_table(title: str, tested: Iterable[Tested], *, simulated: bool) -> Table:
    """A row for each test."""
    shown = list(tested)
    names = [one.subject.label for one in shown]
    breaks = frozenset(i for i, (above, below) in enumerate(pairwise(names), start=1) if above != below)
    return Table(title, simulated, _COLUMNS, tuple(map(_row, shown)), breaks)


def _row(one: Tested) -> tuple[Cell, ...]:
    state, interval = one.state, one.interval
    return (
        Cell(one.subject.label),
        Cell(one.metric.value),
        Cell(words.outcome(one), tone=_tone(one)),
        Cell(ABSENT if state.ratio is None else f"{state.ratio:.4f}"),
        Cell(ABSENT if interval is None else f"{interval.low:.4f} to {interval.high:.4f}"),
        Cell(f"{100 * one.effect:g} %"),
        Cell(words.evidence(one) if state.pairs else ABSENT),
        Cell(str(state.pairs)),
        Cell(figure_text(one.baseline)),
        Cell(figure_text(one.candidate)),
        Cell(one.metric.unit),
        Cell(ABSENT if state.relative_noise is None else f"{100 * state.relative_noise:.2g} %"),
    )


def _tone(one: Tested) -> Tone:
    if one.regressed:
        return Tone.BAD
    return Tone.DOUBT if one.undecided else Tone.GOOD if one.better else Tone.PLAIN
