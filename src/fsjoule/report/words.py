"""Findings in words, the same for a comparison, a gate and a trend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from fsjoule.report.numbers import advantage_text
from fsjoule.statistics.outcome import Outcome
from fsjoule.store.finding import FAR_FROM_EQUAL, Finding, important_first

ALTERED: Final = "Files that are not as they were stored"
_NAMED: Final = 3
_OPEN: Final = (Outcome.UNDECIDED, Outcome.TOO_FEW, Outcome.NOT_REPRODUCIBLE)


def means(one: Finding[object]) -> str:
    """A finding in a word or two."""
    if one.single:
        return "far apart" if one.far else f"within {100 * FAR_FROM_EQUAL:g} %"
    if one.ratio is None and one.outcome is Outcome.UNDECIDED:
        return "no figures"
    if one.outcome is Outcome.UNCHANGED:
        return f"equal within {100 * one.matters:g} %"
    return "not yet decided" if one.outcome in _OPEN else one.outcome.value


def counts_text(findings: Sequence[Finding[object]]) -> str:
    """`38 equal within 5 %, 2 not yet decided`, most frequent first."""
    return ", ".join(f"{count} {meant}" for meant, count in Counter(map(means, findings)).most_common())


def named(findings: Sequence[Finding[object]]) -> str:
    """The largest: `ext4 write-16k 5.1 % slower (95 %: 3.9 to 6.2 %), 0.9 % more energy (...); and 2 more`."""
    by_subject: dict[str, list[str]] = {}
    for one in important_first(findings)[:_NAMED]:
        by_subject.setdefault(one.subject.name, []).append(metric_change(one))
    rest = len(findings) - _NAMED
    parts = (f"{name} {', '.join(told)}" for name, told in by_subject.items())
    return "; ".join(parts) + (f"; and {rest} more" if rest > 0 else "")


def metric_change(one: Finding[object]) -> str:
    """`5.1 % slower (95 %: 3.9 to 6.2 %)`, or the figure's name without a ratio."""
    return one.metric.value if one.ratio is None else advantage_text(one.metric, one.ratio, one.interval)
