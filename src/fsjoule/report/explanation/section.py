"""An explanation as a section of another page: its sentences, its largest functions, its picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from fsjoule.report.explanation import words
from fsjoule.report.explanation.picture import draw
from fsjoule.report.explanation.table import function_table
from fsjoule.report.table import Table
from fsjoule.report.template import marked_up
from fsjoule.verdicts.explanation.changes import Explanation

_FUNCTIONS: Final = 10


@dataclass(frozen=True, slots=True)
class Section:
    headline: str
    because: str
    functions: Table
    picture: Markup


def section(explanation: Explanation) -> Section:
    functions = explanation.functions
    title = f"{min(_FUNCTIONS, len(functions))} of {len(functions)} functions, by difference"
    return Section(
        headline=words.headline(explanation),
        because=words.because(explanation),
        functions=function_table(title, explanation, functions[:_FUNCTIONS]),
        picture=marked_up([draw(explanation)])[0],
    )
