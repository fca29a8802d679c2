"""The self-contained page of a bisection: one file, no network, no scripts."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

from fsjoule.report.bisection import words
from fsjoule.report.bisection.chart import boot_chart, posterior_chart
from fsjoule.report.bisection.tables import boot_table, commit_table, first_bad
from fsjoule.report.explanation.section import section
from fsjoule.report.template import marked_up, render
from fsjoule.verdicts.bisection.answer import bisected
from fsjoule.verdicts.bisection.state import State
from fsjoule.verdicts.explanation.changes import Explanation

# A table that one still reads.
_ALL: Final = 50


def render_page(state: State, explanations: Sequence[Explanation] = ()) -> str:
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
            [posterior_chart(state, probable), *(boot_chart(state, each) for each in state.asked.figures)]
        ),
    )
