"""The self-contained page of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fsjoule.report.comparison import words
from fsjoule.report.findings import comparison_table, notable, rest_text
from fsjoule.report.site import Site
from fsjoule.report.table import Tone
from fsjoule.report.verdict_page import VerdictPage
from fsjoule.statistics.outcome import Outcome
from fsjoule.verdicts.comparison import Compared
from fsjoule.verdicts.explanation.changes import Explanation


def render_page(compared: Compared, place: Path | Site, explanations: Sequence[Explanation] = ()) -> str:
    """The page as HTML; `place` is its file, or the site whose page it is, from which it links to its runs."""
    shown, rest = notable(compared.findings)
    needs = words.needs(compared)
    return VerdictPage(
        heading=words.sides(compared.baseline, compared.candidate),
        headline=words.answer(compared),
        tone=Tone.BAD if Outcome.REGRESSED in compared.counts else Tone.PLAIN,
        simulated=compared.simulated,
        findings=compared.findings,
        shown=comparison_table("What matters", shown, simulated=compared.simulated),
        rest=comparison_table(rest_text(rest), rest, simulated=compared.simulated),
        rules=words.rules(compared),
        notes=[*map(str, compared.kernel_warnings), *compared.notes],
        lists=[
            ("What would decide the rest", needs),
            ("What was compared", words.side_facts(compared)),
            *words.unused(compared),
        ],
        folders=compared.folders,
        explanations=explanations,
    ).render(place)
