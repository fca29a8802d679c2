"""A bisection as Markdown, for an issue: the answer, what it rests on, and what was asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Final

from fsjoule.report.bisection import words
from fsjoule.report.bisection.tables import commit_table, first_bad
from fsjoule.report.explanation import words as reasons
from fsjoule.report.explanation.text import function_table
from fsjoule.report.markdown import folded, named_list, plain, table_lines
from fsjoule.verdicts.bisection.answer import bisected
from fsjoule.verdicts.bisection.state import BisectionState
from fsjoule.verdicts.explanation.changes import Explanation

_KEY: Final = 12
_FUNCTIONS: Final = 10


def to_markdown(state: BisectionState, explanations: tuple[Explanation, ...] = ()) -> str:
    """GitLab's and GitHub's Markdown, ending in a newline. A hidden first line names the question."""
    return "\n".join(_lines(state, explanations)) + "\n"


def _lines(state: BisectionState, explanations: tuple[Explanation, ...]) -> Iterator[str]:
    standing, answer = words.standing_of(state)
    told = None if answer is None else bisected(state, answer)
    yield f"<!-- fsjoule bisect {_key(state)} -->"
    simulated = " (simulated)" if state.asked.simulated else ""
    yield f"**fsjoule bisect: {plain(words.lead(state, told, standing))}**{simulated}"
    yield ""
    yield from named_list(list(words.facts(state, told)))
    for each in explanations:
        functions = each.functions[:_FUNCTIONS]
        yield ""
        yield f"{plain(reasons.headline(each))}; {plain(reasons.because(each))}"
        yield from folded("Functions", list(table_lines(function_table("", each, functions))))
    yield from folded("What was asked", named_list(list(words.question(state))))
    yield from folded("Commits", list(table_lines(commit_table(state, first_bad(state)))))


def _key(state: BisectionState) -> str:
    """The same for the same question, on whatever machine."""
    asked = state.asked
    parts = (sorted(asked.good), sorted(asked.bad), asked.board, asked.suite, sorted(asked.figures))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_KEY]
