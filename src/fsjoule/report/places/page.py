"""The self-contained page of a lab: one file, no network, no scripts. Its chart shows the last day."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Final
from urllib.parse import quote

import altair as alt

from fsjoule.model import RunStatus
from fsjoule.model.places import DAY_S, Lab, PlaceHealth, PlaceRun
from fsjoule.report import style
from fsjoule.report.numbers import share_text
from fsjoule.report.places import tables
from fsjoule.report.site import Site
from fsjoule.report.svg import Rows, draw, specification
from fsjoule.report.template import marked_up, render
from fsjoule.store.folder import PAGE


def render_page(lab: Lab, place: Path | Site) -> str:
    """The page as HTML: a file that links to the pages of its runs that are there, or a page of a site."""
    day, week = (share_text(lab.used(window)) for window in ("day", "week"))
    runs = [run for each in lab.places for run in each.last_runs]
    if isinstance(place, Site):
        links = [(f"run {run.run_id}", place.run(run.run_id)) for run in runs if run.run_id]
    else:
        here = place.resolve().parent
        pages = [Path(run.folder) / PAGE for run in runs]
        links = [(page.parent.name, quote(os.path.relpath(page, here))) for page in pages if page.exists()]
    return render(
        "lab.html.j2",
        site=place if isinstance(place, Site) else None,
        version=version("fsjoule"),
        simulated=lab.simulated,
        title="The lab",
        coordinator=lab.coordinator,
        looked=tables.moment(lab.looked_s),
        headline=tables.headline(lab),
        tone="bad" if lab.count(PlaceHealth.BAD) else "good" if lab.places else "",
        tiles=[
            *((f"{each.value}", str(lab.count(each)), "") for each in PlaceHealth),
            ("held", str(sum(bool(place.holder) for place in lab.places)), f"of {len(lab.places)}"),
            ("waiting", str(len(lab.queue)), ""),
            ("used in the last day", day, f"in the week: {week}"),
            ("efficiency in the week", share_text(lab.efficiency("week")), "measuring while held"),
        ],
        places=tables.places(lab),
        queue=tables.queue(lab),
        faults=tables.faults(lab),
        runs=tables.last_runs(lab),
        charts=marked_up([timeline(lab)]),
        notes=tables.notes(lab),
        damaged=list(lab.damaged.items()),
        links=links,
    )


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
