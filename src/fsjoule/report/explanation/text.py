"""An explanation in the terminal, the answer first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Console, ConsoleRenderable
from rich.text import Text

from fsjoule.report.explanation import words
from fsjoule.report.explanation.table import function_table, group_table
from fsjoule.report.terminal import footnote, named_lines, room_of, table_lines
from fsjoule.verdicts.explanation.changes import Explanation

_SHOWN: Final = 10


def print_explanation(
    console: Console, explanation: Explanation, *, everything: bool = False, wide: bool = False
) -> None:
    """Print what changed, and which functions, modules and parts of the kernel it was."""
    for renderable in _renderables(explanation, room_of(console, wide=wide), everything=everything):
        console.print(renderable, crop=False)


def _renderables(explanation: Explanation, room: int | None, *, everything: bool) -> Iterator[ConsoleRenderable]:
    yield Text(words.headline(explanation), style="bold")
    yield Text(words.because(explanation))
    count = None if everything else _SHOWN
    functions, modules, subsystems = explanation.functions, explanation.modules, explanation.subsystems
    shown = f"{len(functions[:count])} of {len(functions)} functions, by difference"
    yield from table_lines(function_table(shown, explanation, functions[:count]), room)
    remarks = [(each.name, remark) for each in functions[:count] if (remark := words.remark(each, explanation))]
    if remarks:
        yield named_lines("Names", remarks)
    yield from table_lines(group_table("Modules", "module", explanation, modules[:count]), room)
    yield from table_lines(group_table("Parts of the kernel", "from", explanation, subsystems[:count]), room)
    yield footnote(words.method(explanation))
    yield Text("")
    for name, text in words.facts(explanation):
        yield Text(f"{name:<10}{text}")
