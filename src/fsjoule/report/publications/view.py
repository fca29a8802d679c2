"""Common parts of all suites' pages: rows of a part, their columns, and published figures and charts beside them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, TypeVar

import altair as alt

from fsjoule.model import SeriesKey
from fsjoule.model.filesystem import content_of
from fsjoule.model.labels import series_labels
from fsjoule.report import style
from fsjoule.report.charts import Bar, grouped
from fsjoule.report.numbers import ABSENT, decimals_for, mean_text, ratio_text, sd_text
from fsjoule.report.summary import Summary
from fsjoule.report.svg import draw, specification
from fsjoule.report.table import Cell, Column, Filled, Table, Tone, assembled
from fsjoule.report.tables import FEWER, PUBLISHED, figures, repetitions
from fsjoule.statistics.spread import Spread
from fsjoule.suites.published.catalogue import PUBLICATIONS
from fsjoule.suites.published.cells import FigureCell, PublishedFigure, Quantity
from fsjoule.suites.published.measured import RepetitionRow, SuiteSummary

FOOTNOTE: Final = f"mean ± standard deviation of n valid repetitions; {FEWER} some of them lack this figure"

DOUBTED: Final = "‡"  # before a doubtful published figure

T = TypeVar("T", int, str)


@dataclass(frozen=True)
class View:
    """A run of a publication's suite."""

    summary: Summary
    suite: SuiteSummary

    @cached_property
    def labels(self) -> dict[SeriesKey, str]:
        """The filesystem's name by series, in the plan's order, with options if the run has several."""
        order = {content_of(name): i for i, name in enumerate(self.summary.run.plan.filesystems)}
        series = (row.series for row in self.suite.rows)
        return series_labels(sorted(series, key=lambda each: order.get(each.filesystem, len(order))))

    @cached_property
    def _published(self) -> dict[FigureCell, PublishedFigure]:
        return {figure.cell: figure for figure in PUBLICATIONS[self.suite.publication].figures}

    @property
    def simulated(self) -> bool:
        return self.summary.simulated

    @property
    def several_kernels(self) -> bool:
        return self.summary.several_kernels

    def several_storages(self, rows: Iterable[RepetitionRow]) -> bool:
        return len({row.series.storage for row in rows}) > 1

    def part(self, name: str) -> list[RepetitionRow]:
        return [row for row in self.suite.rows if row.part == name]

    def label(self, row: RepetitionRow) -> str:
        return self.labels[row.series]

    def published(self, row: RepetitionRow, quantity: Quantity) -> PublishedFigure | None:
        """The published figure of the row's cell, if there is one."""
        cells = (FigureCell(row.part, row.series.filesystem, name, quantity) for name in row.names)
        return next((self._published[cell] for cell in cells if cell in self._published), None)

    @cached_property
    def _doubted(self) -> frozenset[tuple[FigureCell, str]]:
        return frozenset((doubt.figure.cell, doubt.figure.hardware) for doubt in self.suite.doubts)

    def published_cell(self, figure: PublishedFigure | None) -> Cell:
        """The figure as printed, with its deviation if there is one, and a mark if it is doubtful."""
        if figure is None:
            return Cell(ABSENT)
        sd = "" if figure.sd is None else f"± {figure.sd:.{figure.decimals}f}"
        if (figure.cell, figure.hardware) in self._doubted:
            return Cell(f"{DOUBTED}{figure.printed}", sd, Tone.DOUBT)
        return Cell(figure.printed, sd)

    def footnote(self, part: str) -> str:
        """How to read a part's figures: deviations, sizes, doubts."""
        factor = self.size_factor(part)
        card = "throughput and energy with the card, which is projected" if self.with_card else ""
        sizes = "" if factor is None else f"size factor {factor:g}" if factor != 1 else "sizes as published"
        doubted = (
            f"{DOUBTED} does not follow from other published cells: see below"
            if any(part in ("", cell.part) for cell, _ in self._doubted)
            else ""
        )
        return "; ".join(text for text in (FOOTNOTE, card, sizes, doubted) if text)

    def size_factor(self, part: str) -> float | None:
        """The factor for the publication's sizes; None if the part is not scaled."""
        name = f"{self.suite.publication}/{part}" if part else self.summary.run.plan.suite
        return self.summary.size_factors.get(name)

    @property
    def with_card(self) -> bool:
        """Whether figures include a projected card, because the board's card takes no time."""
        return any(row.projected for row in self.summary.fio)


def label_of(row: RepetitionRow) -> str:
    return row.workload.label


def pattern_of(row: RepetitionRow) -> str:
    """`randread`, or a timed operation's name."""
    return row.workload.operation.value


def jobs_of(row: RepetitionRow) -> int:
    return row.workload.jobs


def words(rows: Sequence[RepetitionRow], name: str, text: Callable[[RepetitionRow], str], unit: str = "") -> Filled:
    """A head column of texts."""
    return Column(name, unit, is_figure=False, head=True), [Cell(text(row)) for row in rows]


def heads(
    view: View, rows: Sequence[RepetitionRow], *first: Filled, with_storage: bool = True, with_n: bool = True
) -> list[Filled]:
    """Columns: `first`, the filesystem, storage and kernel if there are several, and the repetitions."""
    filled = [*first, words(rows, "filesystem", view.label)]
    if with_storage and view.several_storages(rows):
        filled.append(words(rows, "storage", lambda row: row.series.storage))
    if view.several_kernels:
        filled.append(words(rows, "kernel", lambda row: row.kernel))
    return [*filled, repetitions(rows)] if with_n else filled


def measured(rows: Sequence[RepetitionRow], quantity: Quantity, name: str = "", *, most: int = 3) -> Filled:
    return figures(rows, Column(name or quantity.value, quantity.unit), lambda row: row.spread(quantity), most=most)


def beside(
    view: View, rows: Sequence[RepetitionRow], quantity: Quantity, name: str = "", *, most: int = 3
) -> list[Filled]:
    """Columns of a quantity: measured, published and their ratio; the last two only if a row has a published figure."""
    filled = measured(rows, quantity, name, most=most)
    published = [view.published(row, quantity) for row in rows]
    if not any(published):
        return [filled]
    return [filled, *published_columns(view, rows, published, quantity)]


def published_columns(
    view: View, rows: Sequence[RepetitionRow], published: Sequence[PublishedFigure | None], quantity: Quantity
) -> list[Filled]:
    """The columns of published figures and ratios."""
    ratios = [
        spread.mean / figure.value if figure and figure.value and (spread := row.spread(quantity)) else None
        for row, figure in zip(rows, published, strict=True)
    ]
    return [
        (
            Column(PUBLISHED, quantity.unit, joins=True, optional=True),
            [view.published_cell(figure) for figure in published],
        ),
        (Column("ratio", joins=True), [Cell(ratio_text(ratio)) for ratio in ratios]),
    ]


def table(view: View, title: str, columns: Sequence[Filled], *, groups: Sequence[str] | None = None) -> Table:
    """A table of filled columns, grouped by `groups` or by its first column."""
    first = [cell.text for cell in columns[0][1]] if groups is None else groups
    return assembled(title, columns, simulated=view.simulated, groups=first)


def pivot(
    view: View,
    title: str,
    rows: Sequence[RepetitionRow],
    quantity: Quantity,
    *,
    head: tuple[str, Callable[[RepetitionRow], str]],
    across: Callable[[RepetitionRow], T],
    name: Callable[[T], str],
    growth: str = "",
    by_storage: bool = False,
    most: int = 3,
) -> Table:
    """One quantity with a column per value of `across`; `growth` adds the last value over the first."""
    values = sorted({across(row) for row in rows})
    lines: dict[Hashable, dict[T, RepetitionRow]] = {}
    for row in rows:
        key = (head[1](row), view.label(row), "" if by_storage else row.series.storage, row.kernel)
        lines.setdefault(key, {})[across(row)] = row
    leaders = [next(iter(line.values())) for line in lines.values()]
    decimals = decimals_for([row.spread(quantity) for row in rows], most=most)
    columns = heads(view, leaders, words(leaders, *head), with_storage=not by_storage, with_n=False)
    for value in values:
        spreads = [line[value].spread(quantity) if value in line else None for line in lines.values()]
        columns.append(
            (Column(name(value), quantity.unit), [Cell(mean_text(s, decimals), sd_text(s, decimals)) for s in spreads])
        )
    if growth and len(values) > 1:
        ratios = [_growth(line.get(values[0]), line.get(values[-1]), quantity) for line in lines.values()]
        columns.append((Column(growth), [Cell(ratio_text(ratio)) for ratio in ratios]))
    return table(view, title, columns)


def _growth(first: RepetitionRow | None, last: RepetitionRow | None, quantity: Quantity) -> float | None:
    spreads: list[Spread | None] = [row.spread(quantity) if row else None for row in (first, last)]
    before, after = spreads
    return after.mean / before.mean if before and after and before.mean else None


Drawing = Callable[[], str | None]
"""A chart as SVG, drawn on request, because the terminal needs none. None if there is nothing to draw."""


@dataclass(frozen=True, slots=True)
class SuiteSection:
    """Tables and charts under one title. `notes` stand below the tables; `ticks` mark published figures in charts."""

    title: str
    anchor: str
    tables: tuple[Table, ...]
    charts: tuple[Drawing, ...] = ()
    notes: tuple[str, ...] = ()
    ticks: bool = True

    @property
    def has_published(self) -> bool:
        """Whether its charts show published figures."""
        return self.ticks and any(column.name == PUBLISHED for table in self.tables for column in table.columns)


def _colours(view: View, rows: Sequence[RepetitionRow]) -> dict[str, str]:
    """Colours by name of a line or bar; a filesystem has one colour in all charts of a run."""
    own = style.filesystem_colours(list(dict.fromkeys(view.labels.values())))
    others = style.filesystem_colours(list(dict.fromkeys(_name(view, row, rows) for row in rows)))
    return own | {name: colour for name, colour in others.items() if name not in own}


def _name(view: View, row: RepetitionRow, rows: Sequence[RepetitionRow]) -> str:
    """The filesystem, with storage and kernel if these rows have several."""
    further = [row.series.storage] if view.several_storages(rows) else []
    further += [row.kernel] if view.several_kernels else []
    return " ".join([view.label(row), *further])


def bars(
    view: View,
    title: str,
    rows: Sequence[RepetitionRow],
    quantity: Quantity,
    group: Callable[[RepetitionRow], str],
    *,
    ticks: bool = True,
) -> Drawing:
    """A quantity by group and filesystem, with `ticks` for published figures; the title names a single group."""

    def bar(row: RepetitionRow) -> Bar | None:
        spread, published = row.spread(quantity), view.published(row, quantity) if ticks else None
        if spread is None:
            return None
        return Bar(group(row), _name(view, row, rows), spread, None, published.value if published else None)

    def draw() -> str | None:
        those = [each for each in map(bar, rows) if each is not None]
        groups = {each.group for each in those}
        alone = groups.pop() if len(groups) == 1 else ""
        full = title if alone.lower() in title.lower() else f"{title}, {alone}"
        return grouped(full, quantity.unit, those, _colours(view, rows), simulated=view.simulated)

    return draw


def drawn_by(
    rows: Sequence[RepetitionRow],
    key: Callable[[RepetitionRow], str],
    draw: Callable[[str, list[RepetitionRow]], Drawing],
) -> list[Drawing]:
    """One drawing per value of `key`, of the rows with this value."""
    return [draw(name, [row for row in rows if key(row) == name]) for name in dict.fromkeys(map(key, rows))]


_WIDTH: Final = 330
_HEIGHT: Final = 190
_DATA: Final = "points"


@dataclass(frozen=True, slots=True)
class Dot:
    """A figure at `x`, on the line of its label."""

    label: str
    x: float
    figure: Spread


def _line_chart(
    title: str,
    axes: tuple[str, str],
    points: Sequence[Dot],
    colours: Mapping[str, str],
    *,
    simulated: bool,
    name: Callable[[float], str] = "{:g}".format,
) -> str | None:
    """One line per label over a logarithmic x; None for fewer than two x. `axes` are titles, `name` labels an x."""
    values = sorted({point.x for point in points})
    if len(values) < 2:  # noqa: PLR2004 - a line needs two
        return None
    present = {point.label for point in points}
    labels = [label for label in colours if label in present]
    base = alt.Chart(alt.NamedData(_DATA))
    shown = " : ".join(f"datum.value == {x:.17g} ? '{name(x)}'" for x in values)
    axis = alt.Axis(values=values, grid=False, labelOverlap=True, labelExpr=f"{shown} : ''")
    x = alt.X("x:Q", title=axes[0], scale=alt.Scale(type="log", base=2, nice=False, padding=14), axis=axis)
    y = alt.Y("mean:Q", title=axes[1], scale=alt.Scale(zero=True, nice=True), axis=alt.Axis(tickCount=5, domain=False))
    colour = alt.Color(
        "label:N",
        title=None,
        scale=alt.Scale(domain=labels, range=[colours[label] for label in labels]),
        legend=alt.Legend(orient="top", direction="horizontal", columns=4, symbolOpacity=1),
    )
    layers = (
        base.mark_rule(strokeWidth=1.5).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour),
        base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour),
        base.mark_circle(size=34, opacity=1).encode(x=x, y=y, color=colour),
    )
    rows = [_datum(point) for point in points]
    return draw(specification(*layers, width=_WIDTH, height=_HEIGHT), {_DATA: rows}, title, simulated=simulated)


def _datum(point: Dot) -> dict[str, str | float | None]:
    sd = point.figure.sd or 0.0
    mean = point.figure.mean
    return {"label": point.label, "x": point.x, "mean": mean, "low": mean - sd, "high": mean + sd}


def lines(
    view: View,
    title: str,
    rows: Sequence[RepetitionRow],
    quantity: Quantity,
    across: tuple[str, Callable[[RepetitionRow], float]],
    *,
    name: Callable[[float], str] = "{:g}".format,
) -> Drawing:
    """A quantity against a number, one line per filesystem; `across` is the number's title and its getter."""
    points = [
        Dot(_name(view, row, rows), across[1](row), spread)
        for row in sorted(rows, key=across[1])
        if (spread := row.spread(quantity)) is not None
    ]
    axes = (across[0], f"{quantity.value}, {quantity.unit}" if quantity.unit else quantity.value)
    return partial(_line_chart, title, axes, points, _colours(view, rows), simulated=view.simulated, name=name)
