"""The self-contained page of a comparison: one file, no network, no scripts."""

from __future__ import annotations

from importlib.metadata import version

from fsjoule.report.comparison import words
from fsjoule.report.comparison.chart import forest_chart, metrics_of
from fsjoule.report.findings import TONES, comparison_table, notable, rest_text
from fsjoule.report.template import marked_up, render
from fsjoule.verdicts.comparison import Compared


def render_page(compared: Compared) -> str:
    shown, rest = notable(compared.findings)
    return render(
        "comparison.html.j2",
        compared=compared,
        simulated=compared.simulated,
        version=version("fsjoule"),
        headline=words.headline(compared),
        sides=words.sides(compared.baseline, compared.candidate),
        tones=TONES,
        shown=comparison_table("What matters", shown, simulated=compared.simulated),
        rest=comparison_table(rest_text(rest), rest, simulated=compared.simulated),
        charts=marked_up([forest_chart(compared, metric) for metric in metrics_of(compared.findings)]),
        rules=words.rules(compared.criteria),
        needs=words.needs(compared),
        side_facts=words.side_facts(compared),
        unused=words.unused(compared),
    )
