"""Verdicts in words: `btrfs randwrite-16k 7.1 % slower (5.9 to 8.2 %), 5.0 % hungrier; 38 unchanged`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from fsjoule.model.metrics import Metric
from fsjoule.statistics.comparison import Outcome
from fsjoule.statistics.criteria import Criteria
from fsjoule.statistics.ratios import Ratio
from fsjoule.verdicts.comparison import Compared, ComparedSide, Judged

# What less of a figure is called, and what more of it is.
_WORDS: Final = {
    Metric.THROUGHPUT: ("slower", "faster"),
    Metric.IOPS: ("fewer IOPS", "more IOPS"),
    Metric.ENERGY: ("thriftier", "hungrier"),
    Metric.NET_ENERGY: ("less net energy", "more net energy"),
    Metric.OPERATION_ENERGY: ("thriftier", "hungrier"),
    Metric.OPERATION_NET_ENERGY: ("less net energy", "more net energy"),
    Metric.POWER: ("less power", "more power"),
    Metric.CPU: ("less CPU", "more CPU"),
    Metric.WRITE_AMPLIFICATION: ("less written", "more written"),
    Metric.P99_LATENCY: ("lower p99", "higher p99"),
    Metric.DURATION: ("quicker", "longer"),
}
_NAMED_SERIES: Final = 3


def headline(compared: Compared) -> str:
    """The whole comparison in a line: what changed most, and how much did not."""
    changes = _by_subject(one for one in compared.judged if one.changed)
    largest = sorted(changes.values(), key=lambda group: max(map(_size, group)), reverse=True)
    parts = [_change(group) for group in largest[:_NAMED_SERIES]]
    rest = sum(map(len, largest[_NAMED_SERIES:]))
    parts += [f"{rest} more changes of {len(largest) - _NAMED_SERIES} series"] if rest else []
    parts += [] if changes else ["no change shown"]
    parts += [f"{n} {outcome}" for outcome, n in compared.counts.items() if outcome in _QUIET]
    simulated = " (simulated)" if compared.simulated else ""
    return f"{sides(compared.baseline, compared.candidate)}{simulated}: {'; '.join(parts)}"


_QUIET: Final = (Outcome.UNCHANGED, Outcome.NOT_REPRODUCIBLE, Outcome.TOO_FEW)


def sides(baseline: ComparedSide, candidate: ComparedSide) -> str:
    """`kernel 6.12 against 6.1`."""
    kind = "" if baseline.kind == candidate.kind else f"{baseline.kind} "
    return f"{candidate.kind} {candidate.name} against {kind}{baseline.name}"


def subject_text(one: Judged) -> str:
    subject = one.verdict.subject
    return f"{subject.label}, kernel {subject.kernel}" if subject.kernel else subject.label


def verdict_text(one: Judged) -> str:
    """`regressed: 7.1 % slower`, or the verdict alone."""
    outcome = one.verdict.outcome.value
    return f"{outcome}: {change_text(one)}" if one.changed else outcome


def change_text(one: Judged) -> str:
    """`7.1 % slower`. Empty without a ratio."""
    ratio = one.verdict.ratio
    if ratio is None:
        return ""
    return f"{100 * abs(ratio.value - 1):.{_decimals(ratio)}f} % {direction(one.verdict.metric, ratio.value)}"


def range_text(ratio: Ratio) -> str:
    """The interval of a change in the direction of the ratio: `5.9 to 8.2 %`."""
    decimals = _decimals(ratio)
    sign = 1 if ratio.value > 1 else -1
    bounds = sorted(100 * sign * (bound - 1) for bound in (ratio.interval.low, ratio.interval.high))
    low, high = (f"{bound:.{decimals}f}" for bound in bounds)
    return f"{low} to {high} %" if low != high else f"{low} %"


def needs(compared: Compared) -> list[tuple[str, str]]:
    """What is undecided: what would decide it and why, with the figures of each series of which that is true."""
    groups: dict[str, list[Judged]] = {}
    for one in compared.judged:
        if one.undecided:
            groups.setdefault(_need(one, compared.criteria), []).append(one)
    return [(need, "all" if len(group) == len(compared.judged) else _names(group)) for need, group in groups.items()]


def _names(group: Sequence[Judged]) -> str:
    """`ext4 read-16k: throughput, energy; ext4 mkfs: duration`."""
    return "; ".join(
        f"{name}: {', '.join(one.verdict.metric for one in judged)}" for name, judged in _by_subject(group).items()
    )


def left_out(compared: Compared) -> list[tuple[str, str]]:
    """Figures that could not be used, by what they are of."""
    return [
        (f"{subject_text(one)} {one.verdict.metric}", ", ".join(one.verdict.left_out))
        for one in compared.judged
        if one.verdict.left_out
    ]


def side_facts(compared: Compared) -> list[tuple[str, str]]:
    """What each side was, for a reader who wants to know what was compared."""
    return [("baseline", _side(compared.baseline)), ("candidate", _side(compared.candidate))]


def only_here(compared: Compared) -> list[tuple[str, str]]:
    """Series that only one side has."""
    both = (("baseline", compared.baseline), ("candidate", compared.candidate))
    return [(f"only the {name} has", "; ".join(side.only_here)) for name, side in both if side.only_here]


def invalid(compared: Compared) -> list[tuple[str, str]]:
    """Measurements that were not used because they are invalid."""
    return [
        (f"{name}: {one.run_id} {one.number:02d} {one.label}", "; ".join(one.reasons))
        for name, side in (("baseline", compared.baseline), ("candidate", compared.candidate))
        for one in side.invalid
    ]


def rules(criteria: Criteria) -> str:
    """What the verdicts are worth."""
    return (
        f"ratio: candidate over baseline, of medians, a figure a boot, with its 95 % interval; q: p over all "
        f"comparisons of the request (Benjamini, Hochberg). A change has p <= {100 * criteria.alpha:g} % and q <= "
        f"{100 * criteria.false_discoveries:g} %; unchanged: any change is below "
        f"{100 * criteria.smallest_effect:g} %, or certain and below {100 * criteria.negligible:g} %; detectable: the "
        f"smallest loss seen with {100 * criteria.power:g} % probability"
    )


def _change(group: Sequence[Judged]) -> str:
    """`btrfs randwrite-16k 7.1 % slower (5.9 to 8.2 %), 5.0 % hungrier (4.1 to 6.0 %)`."""
    told = [f"{change_text(one)} ({range_text(one.verdict.ratio)})" for one in group if one.verdict.ratio]
    return f"{subject_text(group[0])} {', '.join(told)}"


def _by_subject(judged: Iterable[Judged]) -> dict[str, list[Judged]]:
    groups: dict[str, list[Judged]] = {}
    for one in judged:
        groups.setdefault(subject_text(one), []).append(one)
    return groups


def _size(one: Judged) -> float:
    return abs(one.verdict.ratio.value - 1) if one.verdict.ratio else 0.0


def direction(metric: Metric, ratio: float) -> str:
    """What a figure of that ratio is: `slower`, `more CPU time`."""
    less, more = _WORDS[metric]
    return more if ratio > 1 else less


def _decimals(ratio: Ratio) -> int:
    """Tenths of a percent, more where tenths would hide the interval."""
    width = 100 * (ratio.interval.high - ratio.interval.low)
    return 1 if width >= 0.2 or width == 0 else 2 if width >= 0.02 else 3  # noqa: PLR2004


def _need(one: Judged, criteria: Criteria) -> str:
    verdict = one.verdict
    if verdict.more_baseline is None or verdict.more_candidate is None:
        return f"more boots alone would not do ({verdict.outcome}: {verdict.reason})"
    reason = verdict.reason
    if verdict.outcome is Outcome.NOT_REPRODUCIBLE:
        # How much room each leaves is in its interval.
        reason = f"the interval leaves room for {100 * criteria.smallest_effect:g} % or more"
    if verdict.more_baseline == verdict.more_candidate:
        each = f"{_boots(verdict.more_baseline, 'more ')} of each side"
    else:
        each = f"{_boots(verdict.more_baseline, 'more ')} of the baseline and {verdict.more_candidate} of the candidate"
    return f"{each} ({verdict.outcome}: {reason})"


def _boots(count: int, more: str = "") -> str:
    return f"{count} {more}boot{'' if count == 1 else 's'}"


def _side(side: ComparedSide) -> str:
    kernels = "" if side.kind == "kernel" else f", {_counted(side.kernels, 'kernel')}"
    runs = "" if side.kind == "run" and len(side.runs) == 1 else f", {_counted(side.runs, 'run')}"
    commits = f", {_counted(side.commits, 'commit')}" if side.commits else ""
    unused = f", {len(side.invalid)} invalid ones not used" if side.invalid else ""
    return (
        f"{side.title}{kernels}{runs}{commits}: {_boots(side.boots)}, {side.measurements} measurements{unused}, "
        f"{side.first_utc} to {side.last_utc}"
    )


def _counted(names: Sequence[str], what: str) -> str:
    return f"{what} {names[0]}" if len(names) == 1 else f"{len(names)} {what}s"
