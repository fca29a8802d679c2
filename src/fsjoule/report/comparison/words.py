"""A comparison in words: `btrfs randwrite-16k 5.1 % slower (95 %: 3.9 to 6.2 %); 38 equal within 5 %`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from fsjoule.model.labels import counted
from fsjoule.report.words import counts_text, named
from fsjoule.statistics.criteria import Criteria
from fsjoule.statistics.nights import LEAST_RUNS
from fsjoule.statistics.outcome import Outcome
from fsjoule.store.finding import news
from fsjoule.verdicts.comparison import Compared, ComparedSide, Judged

_ALL: Final = "all"
# More boots than these are no advice.
_ADVISED: Final = 100


def headline(compared: Compared) -> str:
    """The whole comparison in one line: the largest changes, and counts of the rest."""
    simulated = " (simulated)" if compared.simulated else ""
    return f"{sides(compared.baseline, compared.candidate)}{simulated}: {answer(compared)}"


def answer(compared: Compared) -> str:
    """The same without the sides: `btrfs randwrite-16k 5.1 % slower (95 %: 3.9 to 6.2 %); 38 equal within 5 %`."""
    return "; ".join(_answer(compared))


def _answer(compared: Compared) -> Iterator[str]:
    yield from news(compared.kernel_warnings)
    changes = [one for one in compared.findings if one.changed]
    far = [one for one in compared.findings if one.far]
    if changes:
        yield named(changes)
    if far:
        yield f"no verdict on one boot of each side, but far beyond the board's own spread: {named(far)}"
    rest = [one for one in compared.findings if not one.changed and not one.far]
    if rest:
        yield counts_text(rest) + _forecast(rest)


def _forecast(findings: Sequence[Judged]) -> str:
    """How many boots would decide what is open, if that is known of all of it: ` (4 more boots)`."""
    more = [max(one.basis.more_baseline or 0, one.basis.more_candidate or 0) for one in findings if one.undecided]
    return f" ({counted(max(more), 'more boot')})" if more and all(0 < each <= _ADVISED for each in more) else ""


def sides(baseline: ComparedSide, candidate: ComparedSide) -> str:
    """`kernel 6.12 against 6.1`."""
    kind = "" if baseline.kind == candidate.kind else f"{baseline.kind} "
    return f"{candidate.kind} {candidate.name} against {kind}{baseline.name}"


def needs(compared: Compared, *, everything: bool = True) -> list[tuple[str, str]]:
    """The boots that would decide undecided figures, each with the figures' names, or their number."""
    groups: dict[str, list[Judged]] = {}
    for one in compared.findings:
        if one.undecided:
            groups.setdefault(need(one, compared.criteria), []).append(one)
    return [
        (what, _ALL if len(group) == len(compared.findings) else _names(group, everything=everything))
        for what, group in groups.items()
    ]


def _names(group: Sequence[Judged], *, everything: bool) -> str:
    """`ext4 read-16k: throughput, energy; ext4 mkfs: duration`."""
    if not everything:
        return counted(len(group), "figure")
    by_subject: dict[str, list[str]] = {}
    for one in group:
        by_subject.setdefault(one.subject.name, []).append(one.metric)
    return "; ".join(f"{name}: {', '.join(metrics)}" for name, metrics in by_subject.items())


def left_out(compared: Compared) -> list[tuple[str, str]]:
    return [(one.name, ", ".join(one.basis.left_out)) for one in compared.findings if one.basis.left_out]


def side_facts(compared: Compared) -> list[tuple[str, str]]:
    return [("baseline", _side(compared.baseline)), ("candidate", _side(compared.candidate))]


def only_here(compared: Compared) -> list[tuple[str, str]]:
    both = (("baseline", compared.baseline), ("candidate", compared.candidate))
    return [(f"only the {name} has", "; ".join(side.only_here)) for name, side in both if side.only_here]


def invalid(compared: Compared) -> list[tuple[str, str]]:
    """Invalid measurements, which were not used, and why."""
    return [
        (f"{name}: {one.run_id} {one.number:02d} {one.label}", "; ".join(one.reasons))
        for name, side in (("baseline", compared.baseline), ("candidate", compared.candidate))
        for one in side.invalid
    ]


def unused(compared: Compared) -> list[tuple[str, list[tuple[str, str]]]]:
    """Everything outside the table, by title: names with their reasons."""
    sections = {
        "Not compared": only_here(compared),
        "Figures that could not be used": left_out(compared),
        "Invalid measurements, not used": invalid(compared),
        "Damaged, left out": list(compared.damaged.items()),
    }
    return [(title, lines) for title, lines in sections.items() if lines]


def rules(compared: Compared) -> str:
    """How to read the findings: order, intervals, error rates."""
    criteria = compared.criteria
    effect = f"{100 * criteria.smallest_effect:g} %"
    if compared.by_runs:
        return (
            f"order: the loss in units of the {effect} that matter; change: between runs of both sides, whose memory "
            f"is in its 95 % interval, the sides' own figures are medians of boots; regressed, improved: e-values over "
            f"runs, e-BH at {100 * criteria.false_discoveries:g} %, from {LEAST_RUNS} runs of each side on; equal: any "
            f"change is below {effect} (docs/statistics.md)"
        )
    if compared.paired:
        return (
            f"order: the loss in units of the {effect} that matter; change: of geometric means over neighbouring "
            f"boots, with its 95 % interval; regressed, improved: at most {100 * criteria.false_discoveries:g} % of "
            f"these are false, over all figures (e-values, e-BH); equal: {effect} is excluded, or the change is "
            f"certain and below {100 * criteria.negligible:g} % (docs/statistics.md)"
        )
    return (
        f"order: the loss in units of the {effect} that matter; change: of medians, one figure per boot, with "
        f"its 95 % interval; regressed, improved: p <= {criteria.alpha:g} and "
        f"q <= {criteria.false_discoveries:g} (q: p over all figures of the request; Benjamini, Hochberg); "
        f"equal: any change is below {effect}, or certain and below {100 * criteria.negligible:g} %; "
        f"detectable: the smallest loss seen with {100 * criteria.power:g} % probability (docs/compare.md)"
    )


def need(one: Judged, criteria: Criteria) -> str:
    verdict = one.basis
    if verdict.more_baseline is None or verdict.more_candidate is None:
        return f"more boots alone would not help ({verdict.reason or 'boots spread too much'})"
    reason = verdict.reason
    if verdict.outcome is Outcome.NOT_REPRODUCIBLE:
        # The interval itself is in the table.
        reason = f"the interval leaves room for {100 * criteria.smallest_effect:g} % or more"
    more = counted(verdict.more_baseline, "more boot")
    same = verdict.more_baseline == verdict.more_candidate
    each = f"{more} of each side" if same else f"{more} of the baseline and {verdict.more_candidate} of the candidate"
    return f"{each} ({reason})" if reason else each


def _side(side: ComparedSide) -> str:
    kernels = "" if side.kind == "kernel" else f", {_one_or_count(side.kernels, 'kernel')}"
    runs = "" if side.kind == "run" and len(side.runs) == 1 else f", {_one_or_count(side.runs, 'run')}"
    commits = f", {_one_or_count(side.commits, 'commit')}" if side.commits else ""
    unused = f", {counted(len(side.invalid), 'invalid one')} not used" if side.invalid else ""
    return (
        f"{side.title}{kernels}{runs}{commits}: {counted(side.boots, 'boot')}, "
        f"{counted(side.measurements, 'measurement')}{unused}, {side.first_utc} to {side.last_utc}"
    )


def _one_or_count(names: Sequence[str], what: str) -> str:
    return f"{what} {names[0]}" if len(names) == 1 else counted(len(names), what)
