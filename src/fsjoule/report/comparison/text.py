"""A comparison in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, ConsoleRenderable
from rich.text import Text

from fsjoule.report.comparison import words
from fsjoule.report.findings import comparison_table, more_text, most_important, shown_text
from fsjoule.report.terminal import footnote, named_lines, room_of, table_lines
from fsjoule.statistics.outcome import Outcome
from fsjoule.verdicts.comparison import Compared

_LISTED: Final = 20


def print_comparison(
    console: Console, compared: Compared, *, only_changes: bool = False, everything: bool = False, wide: bool = False
) -> None:
    """Print the answer, the most important figures, the boots that would decide the rest, and the figures left out."""
    for renderable in _renderables(
        compared, room_of(console, wide=wide), only_changes=only_changes, everything=everything
    ):
        console.print(renderable, crop=False)


def _renderables(
    compared: Compared, room: int | None, *, only_changes: bool, everything: bool
) -> Iterator[ConsoleRenderable]:
    yield Text(words.headline(compared), style="bold red" if Outcome.REGRESSED in compared.counts else "bold")
    wanted = [one for one in compared.findings if one.changed or not only_changes]
    shown, rest = most_important(wanted, everything=everything)
    if shown:
        table = comparison_table(shown_text(shown, rest), shown, simulated=compared.simulated)
        yield from table_lines(table, room, more_text(rest))
        yield footnote(words.rules(compared))
    yield Text("")
    for name, text in words.side_facts(compared):
        yield Text(f"{name:<10}{text}")
    if not only_changes:
        needs = words.needs(compared, everything=everything)
        yield from _paragraphs("To decide the rest", [f"{need}: {names}" for need, names in needs])
    yield from _paragraphs("What the kernels reported", [str(each) for each in compared.kernel_warnings])
    yield from _paragraphs("To know", compared.notes)
    for title, lines in words.unused(compared):
        listed = lines if everything else lines[:_LISTED]
        yield named_lines(title, listed + _more(len(lines) - len(listed)), "yellow")


def _paragraphs(title: str, texts: Sequence[str]) -> Iterator[ConsoleRenderable]:
    if texts:
        yield Text(f"\n{title}", style="bold yellow")
        yield from map(Text, texts)


def _more(count: int) -> list[tuple[str, str]]:
    return [(f"and {count} more", "--all lists them")] if count > 0 else []
