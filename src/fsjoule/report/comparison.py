"""A comparison: in words (`btrfs randwrite-16k 5.1 % slower (95 %: 3.9 to 6.2 %); 38 equal within 5 %`), and as a view.

It takes the findings of `verdicts` and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from fsjoule.model.labels import counted
from fsjoule.report.finding_views import FindingsView, Lines, finding_case
from fsjoule.report.findings import comparison_table
from fsjoule.report.renderers import CaseState, VerdictCase
from fsjoule.report.table import Table, Tone
from fsjoule.report.words import counts_text, named
from fsjoule.statistics.nights import LEAST_RUNS
from fsjoule.statistics.outcome import Criteria, Outcome
from fsjoule.store.finding import news
from fsjoule.verdicts.comparison import Compared, ComparedSide, Judged

if TYPE_CHECKING:
    from fsjoule.verdicts.explanation.changes import Explanation

COMPARE_SCHEMA: Final = "fsjoule.compare/1"
_ALL: Final = "all"
# More boots than these are no advice.
_ADVISED: Final = 100


@dataclass(frozen=True)
class ComparisonView(FindingsView[Judged]):
    """A comparison; `explain` says why figures differ, for the page. Without `only_changes` it shows all figures."""

    compared: Compared
    only_changes: bool = False
    everything: bool = False
    wide: bool = False
    explain: Callable[[], Sequence[Explanation]] = tuple
    command: ClassVar[str] = "compare"

    @property
    def headline(self) -> str:
        return headline(self.compared)

    @property
    def heading(self) -> str:
        return sides(self.compared.baseline, self.compared.candidate)

    @property
    def page_headline(self) -> str:
        return answer(self.compared)

    @property
    def tone(self) -> Tone:
        return Tone.BAD if Outcome.REGRESSED in self.compared.counts else Tone.PLAIN

    @property
    def judgement(self) -> Compared:
        return self.compared

    @property
    def asked(self) -> Sequence[Judged]:
        return [one for one in self.findings if one.changed or not self.only_changes]

    @property
    def cases(self) -> Sequence[VerdictCase]:
        damaged = self.compared.damaged.items()
        return [
            *(finding_case(one, _need(one, self.compared.criteria)) for one in self.asked),
            *(VerdictCase("damaged", name, CaseState.SKIPPED, reason) for name, reason in damaged),
        ]

    @property
    def facts(self) -> Lines:
        return [("baseline", _side(self.compared.baseline)), ("candidate", _side(self.compared.candidate))]

    @property
    def lists(self) -> Mapping[str, Lines]:
        findings = self.findings
        sides = (("baseline", self.compared.baseline), ("candidate", self.compared.candidate))
        return {
            "Not compared": [
                (f"only the {name} has", "; ".join(side.only_here)) for name, side in sides if side.only_here
            ],
            "Figures that could not be used": [
                (one.name, ", ".join(one.basis.left_out)) for one in findings if one.basis.left_out
            ],
            "Invalid measurements, not used": [
                (f"{name}: {one.run_id} {one.number:02d} {one.label}", "; ".join(one.reasons))
                for name, side in sides
                for one in side.invalid
            ],
            "Damaged, left out": list(self.compared.damaged.items()),
        }

    def table(self, title: str, findings: Sequence[Judged]) -> Table:
        return comparison_table(title, findings, simulated=self.simulated)

    def paragraphs(self) -> Iterator[tuple[str, Sequence[str]]]:
        needs = [] if self.only_changes else _needs(self.compared, everything=self.everything)
        yield "To decide the rest", [f"{need}: {names}" for need, names in needs]
        yield from super().paragraphs()

    def markdown_lists(self) -> Mapping[str, Lines]:
        return {"To decide the rest": [] if self.only_changes else _needs(self.compared), **self.lists}

    @property
    def page_lists(self) -> Mapping[str, Lines]:
        return {"What would decide the rest": _needs(self.compared), "What was compared": self.facts, **self.lists}

    def page_explanations(self) -> Sequence[Explanation]:
        return self.explain()

    @property
    def rules(self) -> str:
        return _rules(self.compared)

    def document(self) -> dict[str, object]:
        """The whole comparison. Effects, p and q are fractions; unknown values are null, never zero.

        `statistic` is what `baseline`, `candidate` and `ratio` of all verdicts are made of.
        """
        return {
            "schema": COMPARE_SCHEMA,
            "headline": self.headline,
            "simulated": self.compared.simulated,
            "baseline": asdict(self.compared.baseline),
            "candidate": asdict(self.compared.candidate),
            "criteria": asdict(self.compared.criteria),
            "counts": {outcome.value: count for outcome, count in self.compared.counts.items()},
            "interleaved": self.compared.interleaved,
            "statistic": _statistic(self.compared),
            "baseline_first": self.compared.baseline_first,
            "kernel_warnings": [asdict(each) for each in self.compared.kernel_warnings],
            "notes": list(self.compared.notes),
            "damaged": self.compared.damaged,
            "verdicts": [_verdict(one) for one in self.asked],
        }


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
        # How many boots would decide what is open, if that is known of all of it.
        more = [max(one.basis.more_baseline or 0, one.basis.more_candidate or 0) for one in rest if one.undecided]
        yield counts_text(rest) + (
            f" ({counted(max(more), 'more boot')})" if more and all(0 < each <= _ADVISED for each in more) else ""
        )


def sides(baseline: ComparedSide, candidate: ComparedSide) -> str:
    """`kernel 6.12 against 6.1`."""
    kind = "" if baseline.kind == candidate.kind else f"{baseline.kind} "
    return f"{candidate.kind} {candidate.name} against {kind}{baseline.name}"


def _needs(compared: Compared, *, everything: bool = True) -> list[tuple[str, str]]:
    """The boots that would decide undecided figures, each with the figures' names, or their number."""
    groups: dict[str, list[Judged]] = {}
    for one in compared.findings:
        if one.undecided:
            groups.setdefault(_need(one, compared.criteria), []).append(one)
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


def _need(one: Judged, criteria: Criteria) -> str:
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


def _statistic(compared: Compared) -> str:
    if compared.by_runs:
        return "median of boots, ratio between runs"
    return "geometric mean of neighbouring boots" if compared.paired else "median of boots"


def _verdict(one: Judged) -> dict[str, object]:
    """The verdict's fields, with interval and subject flattened and both sides' figures added."""
    fields = asdict(one.basis)
    subject = fields.pop("subject")
    return {
        "series": {"key": subject["key"], **subject["series"], "simulated": subject["simulated"]},
        "label": subject["label"],
        "kernel": subject["kernel"] or None,
        "unit": one.metric.unit,
        "baseline": one.baseline,
        "candidate": one.candidate,
        **fields,
        "ratio": one.ratio,
        "interval": None if one.interval is None else [one.interval.low, one.interval.high],
    }


def _rules(compared: Compared) -> str:
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
