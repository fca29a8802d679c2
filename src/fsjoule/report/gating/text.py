"""A gate in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Console, ConsoleRenderable
from rich.text import Text

from fsjoule.report.gating import words
from fsjoule.report.gating.table import changes, gate_table, the_rest
from fsjoule.report.text import footnote, named_lines, rich_table
from fsjoule.verdicts.gated import Gated, GateVerdict

_STYLES: Final = {
    GateVerdict.REGRESSED: "bold red",
    GateVerdict.PASSED: "bold green",
    GateVerdict.IDENTICAL: "bold green",
    GateVerdict.UNDECIDED: "bold yellow",
    GateVerdict.NO_BASELINE: "bold yellow",
}


def print_gate(console: Console, gated: Gated) -> None:
    """Print the answer, all tests, and what the test looked past."""
    for renderable in _renderables(gated, console.width):
        console.print(renderable, crop=False)


def _renderables(gated: Gated, width: int) -> Iterator[ConsoleRenderable]:
    for title, tested in (("What changed", changes(gated)), ("The rest", the_rest(gated))):
        if tested:
            name = "Not decided" if title == "What changed" and gated.verdict is GateVerdict.UNDECIDED else title
            yield from rich_table(gate_table(name, tested, simulated=gated.simulated), width)
    if gated.tested:
        yield footnote(words.rules(gated))
    for title, lines in (
        ("Notes", [("-", note) for note in gated.notes]),
        ("Stalled boots, which the test looks past", words.stalls(gated)),
        ("Figures that could not be used", words.unusable(gated)),
        ("Faults of the lab", [("-", fault) for fault in gated.faults]),
    ):
        if lines:
            yield named_lines(title, lines, "yellow")
    yield Text("")
    for name, text in words.facts(gated):
        yield Text(f"{name:<10} {text}")
    if gated.command:
        yield Text(f"{'again':<10} {words.command(gated)}")
    yield Text(words.headline(gated), style=_STYLES[gated.verdict])
