"""A comparison in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, ConsoleRenderable
from rich.text import Text

from fsjoule.report.comparison import words
from fsjoule.report.comparison.table import comparison_table
from fsjoule.report.text import footnote, named_lines, rich_table
from fsjoule.statistics.comparison import Outcome
from fsjoule.verdicts.comparison import Compared

_SHOWN: Final = 20


def print_comparison(console: Console, compared: Compared, *, only_changes: bool = False) -> None:
    """Print the headline, the table, what is undecided and what would decide it, and what was left out and why."""
    for renderable in _renderables(compared, console.width, only_changes=only_changes):
        console.print(renderable, crop=False)


def _renderables(compared: Compared, width: int, *, only_changes: bool) -> Iterator[ConsoleRenderable]:
    colour = "bold red" if Outcome.REGRESSED in compared.counts else "bold"
    yield Text(words.headline(compared), style=colour)
    for name, text in words.side_facts(compared):
        yield Text(f"{name:<10}{text}")
    table = comparison_table(compared, only_changes=only_changes)
    if table.rows:
        yield from rich_table(table, width)
        yield footnote(words.rules(compared.criteria))
    if not only_changes:
        yield from _paragraphs("To decide the rest", [f"{need}:\n  {names}" for need, names in words.needs(compared)])
    yield from _paragraphs("To know", compared.notes)
    for title, lines in (
        ("Not compared", words.only_here(compared)),
        ("Figures that could not be used", words.left_out(compared)),
        (f"{len(words.invalid(compared))} invalid measurements, not used", words.invalid(compared)),
        (f"{len(compared.damaged)} damaged, left out", list(compared.damaged.items())),
    ):
        if lines:
            yield named_lines(title, lines[:_SHOWN] + _more(len(lines) - _SHOWN), "yellow")


def _paragraphs(title: str, texts: Sequence[str]) -> Iterator[ConsoleRenderable]:
    if texts:
        yield Text(f"\n{title}", style="bold yellow")
        yield from map(Text, texts)


def _more(count: int) -> list[tuple[str, str]]:
    return [(f"and {count} more", "--json lists all")] if count > 0 else []
