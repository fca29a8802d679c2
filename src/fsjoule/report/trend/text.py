"""A trend in the terminal."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.text import Text

from fsjoule.report.trend import words
from fsjoule.report.trend.cards import CauseCard, cards, lately, left_out, lines
from fsjoule.verdicts.trend.trend import Trend

_COLOURS: Final = {"open": "bold red", "gain": "bold green", "over": "dim", "closed": "dim"}
# So many causes that are still so are shown unless all are asked for.
_FEW: Final = 5


def print_trend(console: Console, trend: Trend, index: str | None, *, everything: bool = False) -> None:
    """Print what the newest nights have, the causes that are still so, and counts of the rest."""
    told = cards(trend, index)
    present = [card for card in told if card.cause.present]
    shown = told if everything else present[:_FEW]
    for when, moved in lately(trend):
        _print(console, f"{when}, a change if it lasts:")
        for line in moved:
            _print(console, f"  {line}")
        console.print()
    for card in shown:
        _print_card(console, card)
    past = [] if everything else [card for card in told if not card.cause.present]
    for line in (*left_out(present[len(shown) :], past), *words.closing_lines(trend)):
        _print(console, line)


def _print_card(console: Console, card: CauseCard) -> None:
    word, rest = card.title.split(" ", 1)
    console.print(Text.assemble((word, _COLOURS[card.cause.fate.value]), f" {rest}"), soft_wrap=True)
    for line in lines(card):
        _print(console, f"  {line}")
    _print(console, f"  {words.sparkline(card.cause.lead.history)}\n")


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
