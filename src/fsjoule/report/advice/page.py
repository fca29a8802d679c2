"""The self-contained page of advice: one file, no network, no scripts."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from fsjoule.report.advice import words
from fsjoule.report.advice.chart import trade_offs
from fsjoule.report.advice.tables import tables
from fsjoule.report.template import marked_up, render
from fsjoule.report.verdict_page import run_links
from fsjoule.verdicts.advice.advise import Advice


def render_page(advice: Advice, file: Path) -> str:
    """The page as HTML; `file` is its place, from which it links to its runs."""
    figures, *others = tables(advice) or [None]
    return render(
        "advice.html.j2",
        version=version("fsjoule"),
        simulated=advice.evidence.simulated,
        title=words.title(advice),
        profile=advice.profile.title,
        headline=words.headline(advice),
        figures=figures,
        others=others,
        rules=words.rules(advice),
        charts=marked_up(trade_offs(advice)),
        missing=words.missing(advice),
        notes=words.notes(advice),
        sections={
            "Ruled out": words.ruled_out(advice),
            "Which is less": words.relations(advice),
            "The question": words.facts(advice),
            "Damaged, left out": list(advice.evidence.damaged.items()),
        },
        links=run_links(advice.evidence.runs, file),
    )
