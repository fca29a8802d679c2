"""The picture of a timeline: the board's power by thread, below it requests to the storage, and frequencies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import altair as alt
import numpy as np

from fsjoule.meter.energy.timeline import Timeline
from fsjoule.model.kernel_events import IDLE, RequestKind
from fsjoule.report import style
from fsjoule.report.svg import Rows, draw, specification, stacked

_HEIGHT: Final = 220
_LOW: Final = 70
_THREADS: Final = 5
_OTHERS: Final = "others"
_KINDS: Final = {
    RequestKind.READ: style.GOOD,
    RequestKind.WRITE: style.BAND,
    RequestKind.FLUSH: style.BAD,
    RequestKind.DISCARD: style.DOUBT,
}


def timeline_chart(timeline: Timeline, title: str, width: int, *, simulated: bool) -> str:
    """Draw a timeline `width` pixels wide; time counts from the window's start."""
    window, clock = timeline.window, timeline.clock
    edges_us = np.linspace(window.start_us, window.stop_us, width // 3 + 1)
    at_s = (edges_us[:-1] - window.start_us) / 1e6
    names = [name for name in timeline.power.shares() if name != IDLE]
    named, others = names[:_THREADS], names[_THREADS:]
    watts = {IDLE: timeline.power.binned_w(edges_us, [IDLE])[0]}
    watts |= {_OTHERS: timeline.power.binned_w(edges_us, others).sum(axis=0)} if others else {}
    watts |= dict(zip(named, timeline.power.binned_w(edges_us, named), strict=True))
    power: Rows = [
        {"t": round(t, 6), "W": round(w, 5), "thread": name, "order": order}
        for order, (name, row) in enumerate(watts.items())
        for t, w in zip(at_s.tolist(), row.tolist(), strict=True)
    ]
    busy: Rows = []
    for kind in _KINDS:
        shares = np.zeros(len(at_s))
        for each in timeline.events.requests:
            if each.kind is kind:
                begin, end = clock.us(each.begin_s), clock.us(each.end_s)
                overlap = np.minimum(edges_us[1:], end) - np.maximum(edges_us[:-1], begin)
                shares += np.clip(overlap, 0.0, None)
        shares /= np.diff(edges_us)
        if shares.any():
            pairs = zip(at_s.tolist(), shares.tolist(), strict=True)
            busy += [{"t": round(t, 6), "requests": round(share, 4), "kind": kind.value} for t, share in pairs]
    seconds = (window.stop_us - window.start_us) / 1e6
    calls: Rows = [{"t": (clock.us(each.end_s) - window.start_us) / 1e6} for each in timeline.events.calls]
    frequencies: Rows = [
        {"t": max(0.0, (clock.us(each.time_s) - window.start_us) / 1e6), "MHz": each.hz / 1e6, "cpu": f"{each.cpu}"}
        for each in timeline.events.frequencies
    ]
    colours = {IDLE: style.IDLE, _OTHERS: style.AXIS} | dict(zip(named, style.KERNELS, strict=False))
    kinds = {kind.value: colour for kind, colour in _KINDS.items() if any(row["kind"] == kind.value for row in busy)}
    x = alt.X(
        "t:Q",
        scale=alt.Scale(domain=[0, seconds], nice=False),
        title="s from the start of the window",
        axis=alt.Axis(tickCount=width // 80),
    )

    def stack(name: str, y: str, colour: str, scale: Mapping[str, str]) -> alt.Chart:
        legend = alt.Legend(
            orient="top",
            direction="horizontal",
            columns=max(1, width // 250),
            symbolOpacity=1,
            labelLimit=0,
            title=None,
        )
        shown = alt.Scale(domain=list(scale), range=list(scale.values()))
        return (
            alt.Chart(alt.NamedData(name))
            .mark_area(interpolate="step-after", clip=True)
            .encode(
                x=x,
                y=alt.Y(f"{y}:Q", stack="zero", title=y, axis=alt.Axis(tickCount=4, domain=False)),
                color=alt.Color(f"{colour}:N", scale=shown, legend=legend),
            )
        )

    syncs = alt.Chart(alt.NamedData("calls")).mark_rule(color=style.TEXT, strokeWidth=1, opacity=0.5, clip=True)
    above = stack("power", "W", "thread", {name: colours[name] for name in watts}).encode(order=alt.Order("order:Q"))
    drawn = [specification(above, syncs.encode(x=alt.X("t:Q")), width=width, height=_HEIGHT)]
    if busy:
        drawn.append(specification(stack("busy", "requests", "kind", kinds), width=width, height=_LOW))
    if frequencies:
        line = alt.Chart(alt.NamedData("frequencies")).mark_line(interpolate="step-after", clip=True)
        mhz = alt.Y("MHz:Q", axis=alt.Axis(tickCount=3, domain=False))
        drawn.append(specification(line.encode(x=x, y=mhz, detail="cpu:N"), width=width, height=_LOW))
    chart = {**stacked(drawn), "resolve": {"scale": {"color": "independent"}}}
    data = {"power": power, "busy": busy, "calls": calls, "frequencies": frequencies}
    return draw(chart, data, f"{title}: power by thread", simulated=simulated)
