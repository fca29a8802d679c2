"""The columns of a gate beside those of all findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from fsjoule.report.findings import figure_text, finding_table
from fsjoule.report.numbers import ABSENT
from fsjoule.report.tables import Column, Table
from fsjoule.verdicts.gated import Tested


def gate_table(title: str, findings: Sequence[Tested], *, simulated: bool) -> Table:
    return finding_table(title, findings, _MORE, simulated=simulated)


def _evidence(one: Tested) -> str:
    """The share of the evidence that either decision takes."""
    state = one.basis
    if not state.pairs:
        return ABSENT
    return f"{100 * state.towards_regressed:.0f} / {100 * state.towards_not_regressed:.0f} %"


def _noise(one: Tested) -> str:
    noise = one.basis.relative_noise
    return ABSENT if noise is None else f"{100 * noise:.2g} %"


_MORE: Final[dict[Column, Callable[[Tested], str]]] = {
    Column("matters", optional=True): lambda one: f"{100 * one.matters:g} %",
    Column("evidence", optional=True): _evidence,
    Column("pairs", optional=True): lambda one: str(one.basis.pairs),
    Column("baseline", optional=True): lambda one: figure_text(one.baseline),
    Column("candidate", optional=True): lambda one: figure_text(one.candidate),
    Column("unit", is_figure=False, optional=True): lambda one: one.metric.unit,
    Column("noise", optional=True): _noise,
}
