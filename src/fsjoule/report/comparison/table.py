"""The columns of a comparison beside those of all findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from fsjoule.report.findings import figure_text, finding_table
from fsjoule.report.numbers import ABSENT
from fsjoule.report.tables import Column, Table
from fsjoule.verdicts.comparison import Judged

_WHOLE: Final = 10  # percent; no decimals from here on
_TINY: Final = 0.001  # percent; smaller shares are shown as below this


def comparison_table(title: str, findings: Sequence[Judged], *, simulated: bool) -> Table:
    return finding_table(title, findings, _MORE, simulated=simulated)


def share_text(share: float | None) -> str:
    """A fraction in percent with two significant digits, down to 0.001 %."""
    if share is None:
        return ABSENT
    percent = 100 * share
    if percent >= _WHOLE:
        return f"{percent:.0f} %"
    return f"{percent:.2g} %" if percent >= _TINY else f"< {_TINY:g} %"


def _counts(one: Judged) -> str:
    baseline, candidate = one.boots
    return str(baseline) if baseline == candidate else f"{baseline}, {candidate}"


_MORE: Final[dict[Column, Callable[[Judged], str]]] = {
    Column("baseline", optional=True): lambda one: figure_text(one.baseline),
    Column("candidate", optional=True): lambda one: figure_text(one.candidate),
    Column("unit", is_figure=False, optional=True): lambda one: one.metric.unit,
    Column("n", optional=True): _counts,
    Column("p", optional=True): lambda one: share_text(one.basis.p),
    Column("q", optional=True): lambda one: share_text(one.basis.q),
    Column("detectable", optional=True): lambda one: share_text(one.basis.detectable),
}
