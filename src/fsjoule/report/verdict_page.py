"""The self-contained page of a comparison or a gate: one file, no network, no scripts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote

from fsjoule.report.explanation.section import section
from fsjoule.report.findings import TONES
from fsjoule.report.forest_chart import NOTE, Findings, forest_charts
from fsjoule.report.numbers import signed
from fsjoule.report.site import Site
from fsjoule.report.table import Table, Tone
from fsjoule.report.template import marked_up, render
from fsjoule.report.words import means
from fsjoule.store.finding import important_first
from fsjoule.store.folder import PAGE
from fsjoule.verdicts.explanation.changes import Explanation

Lines = list[tuple[str, str]]
_MOST_LINKS: Final = 100
_TILES: Final = 4  # what changed most


@dataclass(frozen=True, slots=True)
class VerdictPage:
    """What a page says. `lists` are titled lines; `folders` are those of the runs by id, `command` repeats it."""

    heading: str
    headline: str
    tone: Tone
    simulated: bool
    findings: Findings
    shown: Table
    rest: Table
    rules: str
    notes: Sequence[str]
    lists: Sequence[tuple[str, Lines]]
    folders: Mapping[str, Path] = field(default_factory=dict[str, Path])
    command: str = ""
    explanations: Sequence[Explanation] = ()

    def render(self, place: Path | Site) -> str:
        """The page as HTML: a file that links to the pages of its runs that are there, or a page of a site."""
        changed = [one for one in important_first(self.findings) if one.changed][:_TILES]
        return render(
            "verdict.html.j2",
            site=place if isinstance(place, Site) else None,
            version=version("fsjoule"),
            heading=self.heading,
            headline=self.headline,
            tone=self.tone,
            simulated=self.simulated,
            tiles=[
                (
                    f"{one.subject.name}, {one.metric.value}",
                    signed(one.ratio, one.interval),
                    means(one),
                    TONES[one.outcome],
                )
                for one in changed
            ],
            notes=self.notes,
            shown=self.shown,
            rest=self.rest,
            rules=self.rules,
            charts=marked_up(forest_charts(self.findings, simulated=self.simulated)),
            chart_note=NOTE,
            explanations=[section(each) for each in self.explanations],
            lists=self.lists,
            links=_site_links(self.folders, place) if isinstance(place, Site) else run_links(self.folders, place),
            command=self.command,
        )


def run_links(folders: Mapping[str, Path], file: Path) -> Lines:
    """Each run's name and the address of its page, as seen from `file`; runs whose page is not there are left out."""
    return [
        (f"run {run_id}", quote(os.path.relpath(folder.resolve() / PAGE, file.resolve().parent)))
        for run_id, folder in folders.items()
        if (folder / PAGE).is_file()
    ]


def _site_links(folders: Mapping[str, Path], site: Site) -> Lines:
    """Of the newest runs: a kernel may have been measured in thousands."""
    return [(f"run {run_id}", site.run(run_id)) for run_id in islice(folders, _MOST_LINKS)]
