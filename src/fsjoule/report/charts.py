"""Charts of a run as SVG: throughput and energy of fio jobs, time and energy of timed operations, and crash states.

Bars are horizontal, so that a chart keeps its width and its letters their size on a phone and on a desk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import altair as alt

from fsjoule.model import MIB
from fsjoule.model.metrics import Metric
from fsjoule.model.write_log import DISCARD, FLUSH, FUA, MARK, SECTOR_BYTES, WriteLog
from fsjoule.report import style
from fsjoule.report.summary import Summary
from fsjoule.report.svg import Rows, draw, specification
from fsjoule.statistics.spread import Spread

# Widths of the bars. A chart of one group has short labels on its axis, so all charts become about equally wide.
_WIDTH: Final = 300
_WIDTH_OF_ONE_GROUP: Final = 355
_BAR: Final = 15
_GROUP_GAP: Final = 12
_DATA: Final = "bars"
_HEIGHT: Final = 260
_TIMES_HEIGHT: Final = 150


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its group, its label, its figure, net and published figure.

    A group is an operation and a label a filesystem. In a run of several kernels a group is an operation on a
    filesystem, and a label a kernel.
    """

    group: str
    label: str
    figure: Spread
    net: Spread | None = None
    published: float | None = None


def throughput_chart(summary: Summary, *, card: bool = False) -> str | None:
    """MiB/s by operation and filesystem; None without a figure.

    `card` adds a card's projected time, as published figures have it; without a projection both are the same. The
    published figure is a tick where it can be compared.
    """
    projected = any(row.projected for row in summary.fio)
    bars = _bars(
        summary,
        summary.fio,
        lambda row: row.with_card(Metric.THROUGHPUT) if card else row.figures.get(Metric.THROUGHPUT),
        published=lambda row: row.published.throughput_mib_per_s if row.published and (card or not projected) else None,
    )
    return _of_summary("Throughput with card" if card and projected else "Throughput", "MiB/s", bars, summary)


def energy_chart(summary: Summary, *, card: bool = False) -> str | None:
    """Gross mJ/MiB by operation and filesystem, its share above idle darker; otherwise as `throughput_chart`."""
    projected = any(row.projected for row in summary.fio)
    bars = _bars(
        summary,
        summary.fio,
        lambda row: row.with_card(Metric.ENERGY) if card else row.figures.get(Metric.ENERGY),
        # A projection has no energy above idle.
        net=lambda row: None if card and row.projected else row.figures.get(Metric.NET_ENERGY),
        published=lambda row: row.published.energy_mj_per_mib if row.published and (card or not projected) else None,
    )
    return _of_summary("Energy with card" if card and projected else "Energy", "mJ/MiB", bars, summary)


def timed_charts(summary: Summary) -> list[tuple[str, list[str]]]:
    """Each timed operation's name and its charts of time and of energy, each with its own scale."""
    charts: list[tuple[str, list[str]]] = []
    for operation in dict.fromkeys(row.workload.label for row in summary.timed):
        rows = [row for row in summary.timed if row.workload.label == operation]
        times = _bars(summary, rows, lambda row: row.with_card(Metric.DURATION))
        energies = _bars(
            summary,
            rows,
            lambda row: row.with_card(Metric.OPERATION_ENERGY),
            net=lambda row: None if row.projected else row.figures.get(Metric.OPERATION_NET_ENERGY),
        )
        drawn = [
            _of_summary(f"{operation}: time", "s", times, summary),
            _of_summary(f"{operation}: energy", "mJ", energies, summary),
        ]
        charts.append((operation, [chart for chart in drawn if chart is not None]))
    return charts


def _bars(
    summary: Summary,
    rows: Sequence[Any],
    figure: Callable[[Any], Spread | None],
    *,
    net: Callable[[Any], Spread | None] | None = None,
    published: Callable[[Any], float | None] | None = None,
) -> list[Bar]:
    bars: list[Bar] = []
    for row in rows:
        spread = figure(row)
        if spread is not None:
            operation = row.workload.label
            kernels = summary.several_kernels
            bars.append(
                Bar(
                    f"{operation}, {row.label}" if kernels else operation,
                    row.kernel if kernels else row.label,
                    spread,
                    net(row) if net else None,
                    published(row) if published else None,
                )
            )
    return bars


def _of_summary(title: str, unit: str, bars: Sequence[Bar], summary: Summary) -> str | None:
    if summary.several_kernels:
        colours = style.kernel_colours(summary.run.plan.kernels)
    else:
        colours = style.filesystem_colours(list(dict.fromkeys(row.label for row in (*summary.fio, *summary.timed))))
    return grouped(title, unit, bars, colours, simulated=summary.simulated)


def grouped(title: str, unit: str, bars: Sequence[Bar], colours: Mapping[str, str], *, simulated: bool) -> str | None:
    """An SVG of bars in groups, with a colour per label; None without a bar."""
    if not bars:
        return None
    groups = list(dict.fromkeys(bar.group for bar in bars))
    present = {bar.label for bar in bars}
    labels = [label for label in colours if label in present]
    base = _base(groups, labels)
    colour = alt.Color(
        "label:N",
        title=None,
        scale=alt.Scale(domain=labels, range=[colours[label] for label in labels]),
        # A chart of one group has its labels on the axis.
        legend=alt.Legend(orient="top", direction="horizontal", columns=4, symbolOpacity=1)
        if len(groups) > 1
        else None,
    )
    x_title = alt.X(
        "mean:Q",
        title=unit,
        scale=alt.Scale(zero=True, nice=True),
        axis=alt.Axis(tickCount=4, domain=False, labelFlush=False),
    )
    has_net = any(bar.net for bar in bars)
    layers = [base.mark_bar(opacity=0.45 if has_net else 1).encode(x=x_title, color=colour)]
    if has_net:
        layers.append(base.mark_bar().encode(x="net:Q", color=colour))
    layers.append(base.mark_rule(color=style.TEXT, strokeWidth=1.5).encode(x="low:Q", x2="high:Q"))
    if any(bar.published for bar in bars):
        layers.append(
            base.transform_filter("isValid(datum.published)")
            .mark_tick(color=style.TEXT, thickness=2.5, size=_BAR, opacity=1)
            .encode(x="published:Q")
        )
    width = _WIDTH if len(groups) > 1 else _WIDTH_OF_ONE_GROUP
    height = len(groups) * (len(labels) * _BAR + _GROUP_GAP)
    data = {_DATA: [_datum(bar) for bar in bars]}
    return draw(specification(*layers, width=width, height=height), data, title, simulated=simulated)


def _base(groups: list[str], labels: list[str]) -> alt.Chart:
    """The chart's rows: groups of labels; the chart's title names a single group."""
    base = alt.Chart(alt.NamedData(_DATA))
    if len(groups) == 1:
        return base.encode(y=alt.Y("label:N", sort=labels, title=None))
    return base.encode(
        y=alt.Y("group:N", sort=groups, title=None, scale=alt.Scale(paddingInner=0.25, paddingOuter=0.1)),
        yOffset=alt.YOffset("label:N", sort=labels),
    )


def _datum(bar: Bar) -> dict[str, str | float | None]:
    sd = bar.figure.sd or 0.0
    return {
        "group": bar.group,
        "label": bar.label,
        "mean": bar.figure.mean,
        "low": bar.figure.mean - sd,
        "high": bar.figure.mean + sd,
        "net": bar.net.mean if bar.net else None,
        "published": bar.published,
    }


def crash_chart(log: WriteLog, losses: Collection[int], *, width: int, simulated: bool) -> str:
    """Writes by order and place, flushes, promises, and the epochs in which a cut can lose: those of `losses`."""
    first = log.made + 1
    writes: Rows = []
    rules: Rows = []
    for number, entry in enumerate(log.entries[first:]):
        if entry.writes:
            kind = "discard" if entry.flags & DISCARD else "lasting write (FUA)" if entry.flags & FUA else "write"
            writes.append({"order": number, "place": entry.sector * SECTOR_BYTES / MIB, "kind": kind})
        elif entry.flags & FLUSH:
            rules.append({"order": number, "kind": "flush"})
        elif entry.flags & MARK and entry.content.isdigit():
            rules.append({"order": number, "kind": "promise"})
    bounds = [*(epoch.begins - first for epoch in log.epochs), len(log.entries) - first]
    bands: Rows = [{"from": bounds[i], "to": max(bounds[i + 1], bounds[i] + 1)} for i in sorted(losses)]
    x = alt.X("order:Q", title="writes, flushes and promises, in order", axis=alt.Axis(domain=False, grid=False))
    y = alt.Y("place:Q", title="place on the device, MiB", axis=alt.Axis(tickCount=5, domain=False))
    drawn, ruled = alt.Chart(alt.NamedData("writes")), alt.Chart(alt.NamedData("rules"))
    layers = [
        alt.Chart(alt.NamedData("bands")).mark_rect(color=style.BAD, opacity=0.18).encode(x=alt.X("from:Q"), x2="to:Q")
    ]
    for kind, colour, dash in (("flush", style.AXIS, [1, 0]), ("promise", style.GOOD, [4, 2])):
        some = ruled.transform_filter(f"datum.kind == '{kind}'")
        layers.append(some.mark_rule(color=colour, strokeDash=dash, strokeWidth=1).encode(x=x))
    for kind, colour in (("write", style.BAND), ("lasting write (FUA)", style.TEXT), ("discard", style.MUTED)):
        some = drawn.transform_filter(f"datum.kind == '{kind}'")
        layers.append(some.mark_point(filled=True, opacity=1, color=colour, size=14, shape="square").encode(x=x, y=y))
    spec = specification(*layers, width=width, height=_HEIGHT)
    named = {"writes": writes, "rules": rules, "bands": bands}
    return draw(spec, named, "Writes, flushes and promises of the recorded run", simulated=simulated)


def times_chart(times_s: Mapping[str, Sequence[float]], *, width: int, simulated: bool) -> str:
    """The share of states whose mount, and whose check, took at most so long."""
    rows: Rows = []
    for what, seconds in times_s.items():
        for i, each in enumerate(sorted(seconds), 1):
            rows.append({"ms": 1e3 * each, "share": 100 * i / len(seconds), "what": what})
    x = alt.X("ms:Q", title="ms at most", scale=alt.Scale(type="log"), axis=alt.Axis(domain=False, tickCount=5))
    y = alt.Y("share:Q", title="% of states", axis=alt.Axis(tickCount=5, domain=False))
    drawn = alt.Chart(alt.NamedData("times"))
    layers = [
        drawn.transform_filter(f"datum.what == '{what}'")
        .mark_line(interpolate="step-after", color=colour, strokeWidth=1.5)
        .encode(x=x, y=y)
        for what, colour in (("mount", style.BAND), ("check", style.TEXT))
    ]
    spec = specification(*layers, width=width, height=_TIMES_HEIGHT)
    return draw(spec, {"times": rows}, "Mounts and checks of the states", simulated=simulated)
