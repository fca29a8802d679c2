"""A trend as a view: text, Markdown, cases; its document and its page are in modules of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from rich.console import Console
from rich.text import Text

from fsjoule.model.series import Order
from fsjoule.report.markdown import folded, plain
from fsjoule.report.renderers import CaseState, VerdictCase, VerdictView
from fsjoule.report.trend import words
from fsjoule.report.trend.cards import CauseCard, cards, headline, lately, left_out, lines, past_words
from fsjoule.report.trend.document import document
from fsjoule.verdicts.trend.causes import Fate
from fsjoule.verdicts.trend.trend import Trend

if TYPE_CHECKING:
    from fsjoule.report.forge import Forge

_COLOURS: Final = {"open": "bold red", "gain": "bold green", "over": "dim", "closed": "dim"}
# So many causes that are still so are shown unless all are asked for.
_FEW: Final = 5


@dataclass(frozen=True)
class TrendView(VerdictView):
    """A trend. `other` is the same over kernels, or over time: the page shows both. `index` stands in its commands."""

    trend: Trend
    other: Trend | None = None
    index: str | None = None
    everything: bool = False
    forge: Forge | None = None
    command: ClassVar[str] = "trend"

    @property
    def headline(self) -> str:
        return headline(cards(self.trend, self.index), self.trend)[0]

    @property
    def simulated(self) -> bool:
        series = {history.series for history in self.trend.histories}
        return bool(series) and all(one.simulated for one in series)

    @property
    def cases(self) -> Sequence[VerdictCase]:
        """A case for each cause: a loss that is still there has failed."""
        cases = [
            VerdictCase(
                ", ".join(card.cause.boards),
                card.title,
                CaseState.FAILED if card.cause.fate is Fate.OPEN else CaseState.PASSED,
                "\n".join(lines(card)),
            )
            for card in cards(self.trend, self.index)
        ]
        enough = len(self.trend.histories) - self.trend.too_short
        state = CaseState.PASSED if enough else CaseState.SKIPPED
        return cases or [VerdictCase("trend", "open losses", state, self.headline)]

    @property
    def notes(self) -> Sequence[str]:
        return list(words.closing_lines(self.trend))

    def document(self) -> dict[str, object]:
        return document(self.trend)

    def markdown(self) -> str:
        return "\n".join(_markdown(self.trend, self.index, everything=self.everything)) + "\n"

    def page(self, place: Path) -> str:
        from fsjoule.report.trend.page import link_from, trend_page  # noqa: PLC0415 - only a page needs it

        trends = (self.trend, self.trend if self.other is None else self.other)
        by_time, by_kernel = sorted(trends, key=lambda each: each.order is Order.KERNEL)
        return trend_page(by_time, by_kernel, forge=self.forge, link=link_from(place.parent))

    def print(self, console: Console) -> None:
        """Print what the newest nights have, the causes that are still so, and counts of the rest."""
        every = cards(self.trend, self.index)
        present = [card for card in every if card.cause.present]
        shown = every if self.everything else present[:_FEW]
        for when, moved in lately(self.trend):
            _print(console, f"{when}, a change if it lasts:")
            for line in moved:
                _print(console, f"  {line}")
            console.print()
        for card in shown:
            word, rest = card.title.split(" ", 1)
            console.print(Text.assemble((word, _COLOURS[card.cause.fate.value]), f" {rest}"), soft_wrap=True)
            for line in lines(card):
                _print(console, f"  {line}")
            _print(console, f"  {words.sparkline(card.cause.lead.history)}\n")
        past = [] if self.everything else [card for card in every if not card.cause.present]
        for line in (*left_out(present[len(shown) :], past), *words.closing_lines(self.trend)):
            _print(console, line)


def _markdown(trend: Trend, index: str | None, *, everything: bool) -> Iterator[str]:
    every = cards(trend, index)
    yield f"**fsjoule trend: {plain(headline(every, trend)[0])}**"
    for when, moved in lately(trend):
        yield from ("", f"{plain(when)}, a change if it lasts:", "", *(f"- {plain(line)}" for line in moved))
    for card in every:
        if everything or card.cause.present:
            yield from _card(card)
    if past := [] if everything else [card for card in every if not card.cause.present]:
        yield from folded(past_words(past), [line for card in past for line in _card(card)])
    yield ""
    yield from (f"- {plain(line)}" for line in words.closing_lines(trend))


def _card(card: CauseCard) -> Iterator[str]:
    yield ""
    yield f"**{plain(card.title)}**"
    yield ""
    for line in lines(card):
        yield f"- `{line}`" if line == card.command else f"- {plain(line)}"


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
