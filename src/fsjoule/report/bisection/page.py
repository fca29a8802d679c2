"""The self-contained page of a bisection: one file, no network, no scripts."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

import altair as alt

from fsjoule.report import style
from fsjoule.report.bisection import words
from fsjoule.report.bisection.words import boot_table, commit_table, first_bad
from fsjoule.report.explanation.section import section
from fsjoule.report.svg import Rows, draw, specification
from fsjoule.report.template import marked_up, render
from fsjoule.statistics.ratios import Floats
from fsjoule.verdicts.bisection.answer import bisected
from fsjoule.verdicts.bisection.figures import metric_of
from fsjoule.verdicts.bisection.state import BisectionState
from fsjoule.verdicts.explanation.changes import Explanation

# A table that one still reads.
_ALL: Final = 50


def render_page(state: BisectionState, explanations: Sequence[Explanation] = ()) -> str:
    """The page as HTML, of a bisection that is done or under way."""
    standing, answer = words.standing_of(state)
    told = None if answer is None else bisected(state, answer)
    probable = first_bad(state)
    return render(
        "bisection.html.j2",
        version=version("fsjoule"),
        simulated=state.asked.simulated,
        lead=words.lead(state, told, standing),
        facts=list(words.facts(state, told)),
        question=words.question(state),
        explanations=[section(each) for each in explanations],
        commits=commit_table(state, probable, everything=len(probable) <= _ALL),
        boots=boot_table(state),
        charts=marked_up(
            [_posterior_chart(state, probable), *(_boot_chart(state, each) for each in state.asked.figures)]
        ),
    )


_WIDTH: Final = 640
_HEIGHT: Final = 160
# A thousand bars would be thinner than a pixel, and most commits have no chance.
_LEAST: Final = 1e-4


def _posterior_chart(state: BisectionState, probable: Floats) -> str:
    """How probable each position is the first bad one, in percent."""
    rows: Rows = [
        {"position": float(position), "percent": 100 * float(each), "commit": words.short(state.commit(position))}
        for position, each in enumerate(probable)
        if each > _LEAST
    ]
    base = alt.Chart(alt.NamedData("commits"))
    x = alt.X("position:Q", title="position in the range", scale=_scale(state), axis=alt.Axis(format="d"))
    y = alt.Y("percent:Q", title="first bad commit, %", scale=alt.Scale(domain=[0, 100]))
    bars = base.mark_rule(color=style.BAD, strokeWidth=4).encode(x=x, y=y, y2=alt.datum(0))
    plot = specification(bars, width=_WIDTH, height=_HEIGHT)
    return draw(plot, {"commits": rows}, "Where the first bad commit is", simulated=state.asked.simulated)


def _boot_chart(state: BisectionState, figure: str) -> str | None:
    """The figure of every boot by its commit's position; hollow points ran a variant. None without boots."""
    place = {commit: number for number, commit in enumerate(state.line.commits)}
    rows: Rows = [
        {
            "position": float(place[boot.kernel.commit]),
            "value": value,
            "variant": "yes" if boot.kernel.without or boot.kernel.aligned else "no",
        }
        for boot in state.booted
        if boot.kernel.commit in place and (value := boot.figures.get(figure)) is not None
    ]
    if not rows:
        return None
    base = alt.Chart(alt.NamedData("boots"))
    x = alt.X("position:Q", title="position in the range", scale=_scale(state), axis=alt.Axis(format="d"))
    y = alt.Y("value:Q", title=f"{metric_of(figure).unit}", scale=alt.Scale(zero=False))
    plain = alt.datum.variant == "no"
    filled = base.transform_filter(plain).mark_point(filled=True, size=50, color=style.BAND, opacity=0.8)
    hollow = base.transform_filter(~plain).mark_point(filled=False, size=50, color=style.DOUBT)
    plot = specification(*(mark.encode(x=x, y=y) for mark in (filled, hollow)), width=_WIDTH, height=_HEIGHT)
    return draw(plot, {"boots": rows}, figure, simulated=state.asked.simulated)


def _scale(state: BisectionState) -> alt.Scale:
    return alt.Scale(domain=[0, len(state.line.commits) - 1], nice=False, padding=10)
