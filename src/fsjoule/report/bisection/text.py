"""A bisection on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich import box
from rich.console import Console, ConsoleRenderable
from rich.table import Table
from rich.text import Text

from fsjoule.report.bisection import words
from fsjoule.statistics.bisection.answer import Kind
from fsjoule.statistics.bisection.posterior import gathered, possible_positions
from fsjoule.statistics.ratios import Floats
from fsjoule.verdicts.bisection.answer import bisected
from fsjoule.verdicts.bisection.state import State

_STYLES = {
    Kind.CULPRIT: "bold red",
    Kind.SET: "bold red",
    Kind.NO_REGRESSION: "bold green",
    Kind.UNDECIDED: "bold yellow",
    Kind.UNTESTABLE: "bold yellow",
}
_COMMITS = 10
_BAR = 20


def print_bisection(console: Console, state: State, *, everything: bool = False) -> None:
    """Print the answer or how far the search is, the most probable commits, the boots and the cost."""
    for renderable in _renderables(state, everything=everything):
        console.print(renderable, crop=False)


def _renderables(state: State, *, everything: bool) -> Iterator[ConsoleRenderable]:
    standing, answer = words.standing_of(state)
    told = None if answer is None else bisected(state, answer)
    yield Text(words.lead(state, told, standing), style=_STYLES[told.kind] if told else "bold")
    if told is not None:
        for commit in told.commits if told.kind is Kind.SET else ():
            yield Text(f"  {words.named(state, commit)}")
        for name, text in words.details(state, told):
            yield Text(f"{name:<10} {text}")
        yield Text(f"{'cost':<10} {words.cost(told)}")
    yield Text("")
    yield _commits(state, everything=everything)
    if everything:
        yield _boots(state)


def first_bad(state: State) -> Floats:
    """How probable each position is the first bad one, shape (positions,); even before the first boot."""
    question, evidence = state.question(), state.evidence()
    if not state.booted:
        return np.full(question.positions, 1 / question.positions)
    return gathered(question, evidence).posterior(possible_positions(question, evidence.pools)).first_bad


def _commits(state: State, *, everything: bool) -> Table:
    """The commits that are probable or were measured, in their order; the last column says what was done with each."""
    probable = first_bad(state)
    skipped = {each.kernel.commit: each for each in state.skipped}
    shown = set(range(len(probable)) if everything else np.argsort(-probable)[:_COMMITS].tolist())
    shown |= {0, len(probable) - 1}
    table = Table(box=box.SIMPLE_HEAD, title="Commits, oldest first", title_justify="left", title_style="bold")
    for name, right in (("", True), ("commit", False), ("first bad", True), ("", False), ("boots", True), ("", False)):
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "")
    for position in sorted(shown):
        commit = state.commit(position)
        boots = sum(each.kernel.commit == commit for each in state.booted)
        note = f"{skipped[commit].stage} failed: {skipped[commit].why}" if commit in skipped else ""
        bar = "█" * round(_BAR * float(probable[position]))
        percent = f"{100 * probable[position]:.1f} %" if position else ""
        said = note or words.subject(state, commit)
        table.add_row(str(position), words.short(commit), percent, bar, str(boots or ""), said)
    return table


def _boots(state: State) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="Boots", title_justify="left", title_style="bold")
    for name in ("", "commit", "", "purpose", *state.asked.figures, "run"):
        table.add_column(name, justify="right" if name in ("", *state.asked.figures) else "left")
    for boot in state.booted:
        variant = "without the culprit" if boot.kernel.without else "aligned" if boot.kernel.aligned else ""
        figures = [boot.figures.get(figure) for figure in state.asked.figures]
        shown = ["-" if figure is None else f"{figure:.4g}" for figure in figures]
        purpose = boot.purpose.value
        table.add_row(str(boot.number), words.short(boot.kernel.commit), variant, purpose, *shown, boot.run_id)
    return table
