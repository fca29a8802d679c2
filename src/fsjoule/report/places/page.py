"""The self-contained page of a lab: one file, no network, no scripts."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote

from fsjoule.model.places import Lab, PlaceHealth
from fsjoule.report.numbers import share_text
from fsjoule.report.places import tables, words
from fsjoule.report.places.chart import timeline
from fsjoule.report.run import PAGE
from fsjoule.report.site import Site
from fsjoule.report.template import marked_up, render


def render_page(lab: Lab, place: Path | Site) -> str:
    """The page as HTML: a file that links to the pages of its runs that are there, or a page of a site."""
    day, week = (share_text(lab.used(window)) for window in ("day", "week"))
    return render(
        "lab.html.j2",
        site=place if isinstance(place, Site) else None,
        version=version("fsjoule"),
        simulated=lab.simulated,
        title="The lab",
        coordinator=lab.coordinator,
        looked=words.moment(lab.looked_s),
        headline=words.headline(lab),
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
        notes=words.notes(lab),
        damaged=list(lab.damaged.items()),
        links=_site_links(lab, place) if isinstance(place, Site) else _links(lab, place),
    )


def _links(lab: Lab, file: Path) -> list[tuple[str, str]]:
    here = file.resolve().parent
    pages = [Path(run.folder) / PAGE for place in lab.places for run in place.last_runs]
    return [(page.parent.name, quote(os.path.relpath(page, here))) for page in pages if page.exists()]


def _site_links(lab: Lab, site: Site) -> list[tuple[str, str]]:
    return [
        (f"run {run.run_id}", site.run(run.run_id)) for place in lab.places for run in place.last_runs if run.run_id
    ]
