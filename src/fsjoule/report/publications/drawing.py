"""Charts of a suite's rows, drawn on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fsjoule.report import style
from fsjoule.report.charts import Bar, grouped
from fsjoule.report.line_chart import Dot, line_chart
from fsjoule.report.publications.sections import Drawing
from fsjoule.report.publications.view import View
from fsjoule.suites.published.cells import Quantity
from fsjoule.suites.published.measured import Row


def _colours(view: View, rows: Sequence[Row]) -> dict[str, str]:
    """Colours by name of a line or bar; a filesystem has one colour in all charts of a run."""
    own = style.filesystem_colours(list(dict.fromkeys(view.labels.values())))
    others = style.filesystem_colours(list(dict.fromkeys(_name(view, row, rows) for row in rows)))
    return own | {name: colour for name, colour in others.items() if name not in own}


def _name(view: View, row: Row, rows: Sequence[Row]) -> str:
    """The filesystem, with storage and kernel if these rows have several."""
    further = [row.series.storage] if view.several_storages(rows) else []
    further += [row.kernel] if view.several_kernels else []
    return " ".join([view.label(row), *further])


def bars(
    view: View, title: str, rows: Sequence[Row], quantity: Quantity, group: Callable[[Row], str], *, ticks: bool = True
) -> Drawing:
    """A quantity by group and filesystem, with `ticks` for published figures; the title names a single group."""

    def bar(row: Row) -> Bar | None:
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
    rows: Sequence[Row], key: Callable[[Row], str], draw: Callable[[str, list[Row]], Drawing]
) -> list[Drawing]:
    """One drawing per value of `key`, of the rows with this value."""
    return [draw(name, [row for row in rows if key(row) == name]) for name in dict.fromkeys(map(key, rows))]


def lines(
    view: View,
    title: str,
    rows: Sequence[Row],
    quantity: Quantity,
    across: tuple[str, Callable[[Row], float]],
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
    return partial(line_chart, title, axes, points, _colours(view, rows), simulated=view.simulated, name=name)
