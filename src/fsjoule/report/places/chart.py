"""When each place was held by runs in the last day, and how they ended, as SVG."""

from __future__ import annotations

from typing import Final

import altair as alt

from fsjoule.model import RunStatus
from fsjoule.model.places import DAY_S, Lab, PlaceRun
from fsjoule.report import style
from fsjoule.report.svg import Rows, draw, specification

_WIDTH: Final = 560
_ROW: Final = 22
_HOUR_S: Final = 3600.0
_OUTCOMES: Final = {
    "complete": style.GOOD,
    "complete, with faults": style.DOUBT,
    "aborted": style.BAD,
    "running": style.BAND,
}


def timeline(lab: Lab) -> str | None:
    """The last day, a row for each place with runs; None if there were none."""
    rows: Rows = []
    for place in lab.places:
        for run in place.day_runs:
            end_s = run.ended_s if run.ended_s is not None else lab.looked_s
            if run.ended_s is None and run.status is not RunStatus.RUNNING:
                continue  # nobody knows when it ended
            begin_h, end_h = ((each - lab.looked_s) / _HOUR_S for each in (run.began_s, end_s))
            if end_h > -DAY_S / _HOUR_S:
                begin_h = max(begin_h, -DAY_S / _HOUR_S)
                rows.append({"place": place.name, "begin": begin_h, "end": end_h, "outcome": _outcome(run)})
    if not rows:
        return None
    names = list(dict.fromkeys(str(row["place"]) for row in rows))
    spec = specification(_bars(), width=_WIDTH, height=_ROW * len(names))
    return draw(spec, {"runs": rows}, "Runs of the last day", simulated=lab.simulated)


def _outcome(run: PlaceRun) -> str:
    if run.status is RunStatus.COMPLETE:
        return "complete, with faults" if run.faults else "complete"
    return str(run.status)


def _bars() -> alt.Chart:
    scale = alt.Scale(domain=list(_OUTCOMES), range=list(_OUTCOMES.values()))
    return (
        alt.Chart(alt.NamedData("runs"))
        .mark_bar(height=_ROW // 2, minBandSize=1)
        .encode(
            x=alt.X("begin:Q", title="hours before now", scale=alt.Scale(domain=[-24, 0])),
            x2="end:Q",
            y=alt.Y("place:N", title=None),
            color=alt.Color("outcome:N", scale=scale, legend=alt.Legend(title=None, orient="bottom")),
        )
    )
