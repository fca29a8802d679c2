"""A gate in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Console, ConsoleRenderable
from rich.text import Text

from fsjoule.report.findings import gate_table, more_text, most_important, shown_text
from fsjoule.report.gating import words
from fsjoule.report.terminal import footnote, named_lines, room_of, table_lines
from fsjoule.store.gate import Gated, GateVerdict

_STYLES: Final = {
    GateVerdict.REGRESSED: "bold red",
    GateVerdict.PASSED: "bold green",
    GateVerdict.IDENTICAL: "bold green",
    GateVerdict.UNDECIDED: "bold yellow",
    GateVerdict.NO_BASELINE: "bold yellow",
}


def print_gate(console: Console, gated: Gated, *, everything: bool = False, wide: bool = False) -> None:
    """Print the answer, the most important figures, and the boots and figures that the test left out."""
    for renderable in _renderables(gated, room_of(console, wide=wide), everything=everything):
        console.print(renderable, crop=False)


def _renderables(gated: Gated, room: int | None, *, everything: bool) -> Iterator[ConsoleRenderable]:
    yield Text(words.headline(gated), style=_STYLES[gated.verdict])
    if gated.findings:
        shown, rest = most_important(gated.findings, everything=everything)
        table = gate_table(shown_text(shown, rest), shown, simulated=gated.simulated)
        yield from table_lines(table, room, more_text(rest))
        yield footnote(words.rules(gated))
    warned, notes, faults = (
        [("-", str(text)) for text in texts] for texts in (gated.kernel_warnings, gated.notes, gated.faults)
    )
    for title, lines in (
        ("What the kernels reported", warned),
        ("Notes", notes),
        *words.unused(gated),
        ("Faults of the lab", faults),
    ):
        if lines:
            yield named_lines(title, lines, "yellow")
    yield Text("")
    for name, text in words.facts(gated):
        yield Text(f"{name:<10} {text}")
    if gated.command:
        yield Text(f"{'again':<10} {words.command(gated)}")
