"""Findings as one table, for the terminal, Markdown and the page: the most important first."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from fsjoule.model import KIB
from fsjoule.model.labels import counted
from fsjoule.model.metrics import Figure
from fsjoule.model.operation import size_label
from fsjoule.report.numbers import ABSENT, hidden_text, range_text, signed
from fsjoule.report.table import Cell, Column, Table, Tone
from fsjoule.report.words import counts_text, means
from fsjoule.statistics.outcome import Outcome
from fsjoule.store.finding import F, Finding, important_first
from fsjoule.store.gate import Tested
from fsjoule.verdicts.comparison import Judged

_SHOWN: Final = 10
_WHOLE: Final = 10  # percent; no decimals from here on
_TINY: Final = 0.001  # percent; smaller shares are shown as below this
_SIGNIFICANT: Final = 4
_SIZE: Final = re.compile(r" \d+KiB\b")
TONES: Final = {
    Outcome.IMPROVED: Tone.GOOD,
    Outcome.UNCHANGED: Tone.PLAIN,
    Outcome.REGRESSED: Tone.BAD,
    Outcome.NOT_REPRODUCIBLE: Tone.DOUBT,
    Outcome.TOO_FEW: Tone.DOUBT,
    Outcome.NOT_REGRESSED: Tone.PLAIN,
    Outcome.UNDECIDED: Tone.DOUBT,
}
_SMALLEST_P: Final = 0.0001
_COLUMNS: Final = (
    Column("series", is_figure=False, head=True),
    Column("figure", is_figure=False, head=True),
    Column("change"),
    Column("95 % interval"),
    Column("verdict", is_figure=False),
)


def most_important(findings: Sequence[F], *, everything: bool = False) -> tuple[list[F], list[F]]:
    """The findings that a terminal shows, and the rest; both in the order of importance."""
    ordered = important_first(findings)
    shown = len(ordered) if everything else _SHOWN
    return ordered[:shown], ordered[shown:]


def notable(findings: Sequence[F]) -> tuple[list[F], list[F]]:
    """The findings that a document shows (changes and undecided losses, else all undecided), and the rest."""
    ordered = important_first(findings)
    noted = [one for one in ordered if one.changed or one.far or (one.undecided and one.lost >= 1)]
    shown = (noted or [one for one in ordered if one.undecided])[:_SHOWN]
    return shown, [one for one in ordered if one not in shown]


def shown_text(shown: Sequence[Finding[object]], rest: Sequence[Finding[object]]) -> str:
    """`10 of 50 figures, the largest loss first`."""
    of_all = f"{len(shown)} of {len(shown) + len(rest)}" if rest else str(len(shown))
    return f"{of_all} figures, the largest loss first"


def rest_text(rest: Sequence[Finding[object]]) -> str:
    """`40 more figures: 38 equal within 5 %, 2 not yet decided`."""
    return f"{counted(len(rest), 'more figure')}: {counts_text(rest)}"


def more_text(rest: Sequence[Finding[object]]) -> str:
    """How a list of findings goes on, or nothing."""
    return f"and {rest_text(rest)} (--all shows them)" if rest else ""


def _finding_table(
    title: str, findings: Sequence[F], more: Mapping[Column, Callable[[F], str]], *, simulated: bool
) -> Table:
    """A row per finding; narrow terminals leave out the last of `more` columns. The title tells a common size."""
    sizes = {size for one in findings for size in _SIZE.findall(one.subject.name)}
    shared = sizes.pop() if len(sizes) == 1 else ""
    told = f"files of {size_label(int(shared.split('KiB')[0]) * KIB)}" if shared else ""
    rows = tuple(
        (
            Cell(one.subject.name.replace(shared, "")),
            Cell(one.metric.value),
            Cell(signed(one.ratio, one.interval)),
            Cell(range_text(one.interval)),
            Cell(means(one), tone=TONES[one.outcome]),
            *(Cell(text(one)) for text in more.values()),
        )
        for one in findings
    )
    return Table(", ".join(filter(None, (title, told))), simulated, (*_COLUMNS, *more), rows)


def figure_text(figure: Figure) -> str:
    """Four significant digits, without an exponent where possible."""
    return ABSENT if figure is None else f"{figure:#.{_SIGNIFICANT}g}".rstrip(".")


def comparison_table(title: str, findings: Sequence[Judged], *, simulated: bool) -> Table:
    """Columns of the rank test are there only if a figure has them: pairs of neighbouring boots have another one."""
    more = {
        column: text
        for column, text in _COMPARED.items()
        if column not in _RANKS or any(text(one) != ABSENT for one in findings)
    }
    return _finding_table(title, findings, more, simulated=simulated)


def share_text(share: float | None) -> str:
    """A fraction in percent with two significant digits, down to 0.001 %."""
    if share is None:
        return ABSENT
    percent = 100 * share
    if percent >= _WHOLE:
        return f"{percent:.0f} %"
    return f"{percent:.2g} %" if percent >= _TINY else f"< {_TINY:g} %"


def _probability_text(p: float | None) -> str:
    """A p-value with two significant digits, down to 0.0001."""
    if p is None:
        return ABSENT
    return f"{p:.2g}" if p >= _SMALLEST_P else f"< {_SMALLEST_P:g}"


_COMPARED: Final[dict[Column, Callable[[Judged], str]]] = {
    Column("baseline", optional=True): lambda one: figure_text(one.baseline),
    Column("candidate", optional=True): lambda one: figure_text(one.candidate),
    Column("unit", is_figure=False, optional=True): lambda one: one.metric.unit,
    Column("n", optional=True): lambda one: ", ".join(map(str, dict.fromkeys(one.boots))),
    Column("p", optional=True): lambda one: _probability_text(one.basis.p),
    Column("q", optional=True): lambda one: share_text(one.basis.q),
    Column("detectable", optional=True): lambda one: share_text(one.basis.detectable),
}


_RANKS: Final = frozenset(column for column in _COMPARED if column.name in ("p", "q", "detectable"))


def gate_table(title: str, findings: Sequence[Tested], *, simulated: bool) -> Table:
    return _finding_table(title, findings, _GATED, simulated=simulated)


def note_table(findings: Sequence[Tested], *, simulated: bool) -> Table:
    """Few enough columns for a note on a merge request, which is as wide as a discussion."""
    return _finding_table("", findings, _NOTED, simulated=simulated)


_NOTED: Final[dict[Column, Callable[[Tested], str]]] = {
    Column("baseline to candidate"): lambda one: (
        f"{figure_text(one.baseline)} to {figure_text(one.candidate)} {one.metric.unit}"
    )
}


def evidence_text(one: Tested) -> str:
    """How much of the evidence that a decision takes is there, for the nearer of both: `worse 60 %`."""
    state = one.basis
    if not state.pairs:
        return ABSENT
    if state.hidden_by is not None:
        return hidden_text(state.hidden_by)
    worse, not_worse = state.towards_regressed, state.towards_not_regressed
    return f"{'worse' if worse > not_worse else 'not worse'} {min(100 * max(worse, not_worse, 0), 100):.0f} %"


_GATED: Final[dict[Column, Callable[[Tested], str]]] = {
    Column("matters", optional=True): lambda one: f"{100 * one.matters:g} %",
    Column("evidence", optional=True): evidence_text,
    Column("pairs", optional=True): lambda one: str(one.basis.pairs),
    Column("baseline", optional=True): lambda one: figure_text(one.baseline),
    Column("candidate", optional=True): lambda one: figure_text(one.candidate),
    Column("unit", is_figure=False, optional=True): lambda one: one.metric.unit,
    Column("noise", optional=True): lambda one: (
        ABSENT if (noise := one.basis.relative_noise) is None else f"{100 * noise:.2g} %"
    ),
}
