"""A trend as Markdown, for an issue or a note: the answer, the losses that are open, the rest folded."""

from __future__ import annotations

from collections.abc import Iterator

from fsjoule.report.markdown import folded, plain
from fsjoule.report.trend import words
from fsjoule.report.trend.cards import CauseCard, cards, headline, lately, lines, past_words
from fsjoule.verdicts.trend.trend import Trend


def to_markdown(trend: Trend, index: str | None = None, *, everything: bool = False) -> str:
    """GitLab's and GitHub's Markdown, ending in a newline; `everything` unfolds what is over or closed."""
    return "\n".join(_lines(trend, index, everything=everything)) + "\n"


def _lines(trend: Trend, index: str | None, *, everything: bool) -> Iterator[str]:
    told = cards(trend, index)
    yield f"**fsjoule trend: {plain(headline(told, trend)[0])}**"
    for when, moved in lately(trend):
        yield from ("", f"{plain(when)}, a change if it lasts:", "", *(f"- {plain(line)}" for line in moved))
    for card in told:
        if everything or card.cause.present:
            yield from _card(card)
    if past := [] if everything else [card for card in told if not card.cause.present]:
        yield from folded(past_words(past), [line for card in past for line in _card(card)])
    yield ""
    yield from (f"- {plain(line)}" for line in words.closing_lines(trend))


def _card(card: CauseCard) -> Iterator[str]:
    yield ""
    yield f"**{plain(card.title)}**"
    yield ""
    for line in lines(card):
        yield f"- `{line}`" if line == card.command else f"- {plain(line)}"
