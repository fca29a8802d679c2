"""The commits and the boots of a bisection as tables."""

from __future__ import annotations

import numpy as np

from fsjoule.report.bisection import words
from fsjoule.report.table import Cell, Column, Table, Tone
from fsjoule.statistics.bisection.posterior import gathered, possible_positions
from fsjoule.statistics.ratios import Floats
from fsjoule.verdicts.bisection.figures import metric_of
from fsjoule.verdicts.bisection.state import BisectionState

_MOST = 10
_MATTERS = 0.05


def first_bad(state: BisectionState) -> Floats:
    """How probable it is that each position is the first bad one, shape (positions,); even before the first boot."""
    question, evidence = state.question(), state.evidence()
    if not state.booted:
        return np.full(question.positions, 1 / question.positions)
    return gathered(question, evidence).posterior(possible_positions(question, evidence.pools)).first_bad


def commit_table(state: BisectionState, probable: Floats, *, everything: bool = False) -> Table:
    """The ends and the most probable commits in their order, or all of them: what was done with each."""
    skipped = {each.kernel.commit: each for each in state.skipped if each.kernel.is_plain}
    last = len(probable) - 1
    shown = set(range(last + 1) if everything else (0, last, *np.argsort(-probable)[:_MOST].tolist()))
    rows: list[tuple[Cell, ...]] = []
    for position in sorted(shown):
        commit = state.commit(position)
        boots = sum(each.kernel.commit == commit for each in state.booted)
        note = f"{skipped[commit].stage} failed: {skipped[commit].why}" if commit in skipped else ""
        tone = Tone.BAD if probable[position] >= _MATTERS else Tone.PLAIN
        rows.append(
            (
                Cell(str(position)),
                Cell(words.short(state.added(commit))),
                Cell(f"{100 * probable[position]:.1f}" if position else "", tone=tone),
                Cell(str(boots) if boots else ""),
                Cell(note or words.subject(state, commit), tone=Tone.DOUBT if note else Tone.PLAIN),
            )
        )
    columns = (
        Column("position", head=True),
        Column("commit", is_figure=False, head=True),
        Column("first bad", "%"),
        Column("boots"),
        Column("subject", is_figure=False),
    )
    rest = last + 1 - len(shown)
    title = f"Commits, oldest first{f'; {rest} less probable ones are left out (--all)' if rest else ''}"
    return Table(title, state.asked.simulated, columns, tuple(rows))


def boot_table(state: BisectionState) -> Table:
    """All boots in their order."""
    figures = state.asked.figures
    rows = [
        (
            Cell(str(boot.number)),
            Cell(words.short(state.added(boot.kernel.commit))),
            Cell("without the culprit" if boot.kernel.without else "aligned" if boot.kernel.aligned else ""),
            Cell(boot.purpose.value),
            *(Cell("-" if (value := boot.figures.get(name)) is None else f"{value:.4g}") for name in figures),
            Cell(boot.run_id),
        )
        for boot in state.booted
    ]
    columns = (
        Column("boot", head=True),
        Column("commit", is_figure=False, head=True),
        Column("variant", is_figure=False),
        Column("purpose", is_figure=False),
        *(Column(name, metric_of(name).unit) for name in figures),
        Column("run", is_figure=False, optional=True),
    )
    return Table("Boots", state.asked.simulated, columns, tuple(rows))
