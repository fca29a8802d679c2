"""Pictures of a recorded run: writes by order and place, flushes, promises, and epochs in which a cut can lose.

And of its states: how long their mounts and checks took.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import altair as alt

from fsjoule.model import MIB
from fsjoule.model.write_log import DISCARD, FLUSH, FUA, MARK, SECTOR_BYTES, WriteLog
from fsjoule.report import style
from fsjoule.report.svg import Rows, draw, specification

_HEIGHT: Final = 260
_TIMES_HEIGHT: Final = 150


def crash_chart(log: WriteLog, losses: Collection[int], *, width: int, simulated: bool) -> str:
    """`losses` are the numbers of epochs with a state that is a loss."""
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
