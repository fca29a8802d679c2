"""The answers of compare, gate, trend and bisect as renderers see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from rich.console import Console

from fsjoule.report.renderers import CaseState, VerdictCase, VerdictView

if TYPE_CHECKING:
    from fsjoule.report.forge import Forge
    from fsjoule.store.finding import Finding
    from fsjoule.store.gate import Gated
    from fsjoule.verdicts.bisection.state import BisectionState
    from fsjoule.verdicts.comparison import Compared
    from fsjoule.verdicts.explanation.changes import Explanation
    from fsjoule.verdicts.trend.trend import Trend

Explain = Callable[[], "tuple[Explanation, ...]"]


def _nothing() -> tuple[Explanation, ...]:
    return ()


def _case(one: Finding[object], reason: str) -> VerdictCase:
    """The case of a finding; `reason` is why it is open, if it is."""
    from fsjoule.report.findings import figure_text
    from fsjoule.report.words import means, metric_change

    series = one.subject.series
    state = CaseState.FAILED if one.regressed else CaseState.SKIPPED if one.undecided else CaseState.PASSED
    sides = f"{figure_text(one.baseline)} to {figure_text(one.candidate)} {one.metric.unit}".rstrip()
    change = "" if one.ratio is None else f"{metric_change(one)}, {sides}"
    parts = (means(one), reason if one.undecided else "", change)
    return VerdictCase(f"{series.board}.{series.suite}", one.name, state, "; ".join(filter(None, parts)))


@dataclass(frozen=True)
class ComparisonView(VerdictView):
    """A comparison; `explain` says why figures differ, for the page."""

    compared: Compared
    only_changes: bool = False
    everything: bool = False
    wide: bool = False
    explain: Explain = _nothing
    command: ClassVar[str] = "compare"

    @property
    def headline(self) -> str:
        from fsjoule.report.comparison.words import headline

        return headline(self.compared)

    @property
    def simulated(self) -> bool:
        return self.compared.simulated

    @property
    def cases(self) -> Sequence[VerdictCase]:
        from fsjoule.report.comparison.words import need

        shown = (one for one in self.compared.findings if one.changed or not self.only_changes)
        damaged = [
            VerdictCase("damaged", name, CaseState.SKIPPED, reason) for name, reason in self.compared.damaged.items()
        ]
        return [*(_case(one, need(one, self.compared.criteria)) for one in shown), *damaged]

    @property
    def notes(self) -> Sequence[str]:
        return [*map(str, self.compared.kernel_warnings), *self.compared.notes]

    def document(self) -> dict[str, object]:
        from fsjoule.report.comparison.document import to_document

        return to_document(self.compared, only_changes=self.only_changes)

    def markdown(self) -> str:
        from fsjoule.report.comparison.markdown import to_markdown

        return to_markdown(self.compared, only_changes=self.only_changes)

    def page(self, file: Path) -> str:
        from fsjoule.report.comparison.page import render_page

        return render_page(self.compared, file, self.explain())

    def print(self, console: Console) -> None:
        from fsjoule.report.comparison.text import print_comparison

        print_comparison(
            console, self.compared, only_changes=self.only_changes, everything=self.everything, wide=self.wide
        )


@dataclass(frozen=True)
class GateView(VerdictView):
    """A gate's answer; paths in `checkout` are told relative to it in Markdown."""

    gated: Gated
    checkout: Path
    everything: bool = False
    wide: bool = False
    explanations: tuple[Explanation, ...] = ()
    command: ClassVar[str] = "gate"

    @property
    def headline(self) -> str:
        from fsjoule.report.gating.words import headline

        return headline(self.gated)

    @property
    def simulated(self) -> bool:
        return self.gated.simulated

    @property
    def cases(self) -> Sequence[VerdictCase]:
        from fsjoule.report.findings import evidence_text
        from fsjoule.store.gate import GateVerdict

        if self.gated.findings:
            return [
                _case(one, f"{one.basis.pairs} pairs of boots, {evidence_text(one)}") for one in self.gated.findings
            ]
        state = CaseState.PASSED if self.gated.verdict is GateVerdict.IDENTICAL else CaseState.SKIPPED
        return [
            VerdictCase("gate", f"{self.gated.candidate.name} against {self.gated.baseline.name}", state, self.headline)
        ]

    @property
    def notes(self) -> Sequence[str]:
        return [*map(str, self.gated.kernel_warnings), *self.gated.notes, *self.gated.faults]

    def document(self) -> dict[str, object]:
        from fsjoule.store.gate import to_document

        return to_document(self.gated, self.headline)

    def markdown(self) -> str:
        from fsjoule.report.gating.markdown import to_markdown

        return to_markdown(self.gated, checkout=self.checkout)

    def page(self, file: Path) -> str:
        from fsjoule.report.gating.page import render_page

        return render_page(self.gated, file, self.explanations)

    def print(self, console: Console) -> None:
        from fsjoule.report.gating.text import print_gate

        print_gate(console, self.gated, everything=self.everything, wide=self.wide)


@dataclass(frozen=True)
class TrendView(VerdictView):
    """A trend. `other` is the same over kernels, or over time: the page shows both. `index` stands in its commands."""

    trend: Trend
    other: Trend | None = None
    index: str | None = None
    everything: bool = False
    forge: Forge | None = None
    command: ClassVar[str] = "trend"

    @property
    def headline(self) -> str:
        from fsjoule.report.trend.cards import cards, headline

        return headline(cards(self.trend, self.index), self.trend)[0]

    @property
    def simulated(self) -> bool:
        series = {history.series for history in self.trend.histories}
        return bool(series) and all(one.simulated for one in series)

    @property
    def cases(self) -> Sequence[VerdictCase]:
        """A case for each cause: a loss that is still there has failed."""
        from fsjoule.report.trend.cards import cards, lines
        from fsjoule.verdicts.trend.causes import Fate

        found = [
            VerdictCase(
                ", ".join(card.cause.boards),
                card.title,
                CaseState.FAILED if card.cause.fate is Fate.OPEN else CaseState.PASSED,
                "\n".join(lines(card)),
            )
            for card in cards(self.trend, self.index)
        ]
        enough = len(self.trend.histories) - self.trend.too_short
        state = CaseState.PASSED if enough else CaseState.SKIPPED
        return found or [VerdictCase("trend", "open losses", state, self.headline)]

    @property
    def notes(self) -> Sequence[str]:
        from fsjoule.report.trend.words import closing_lines

        return list(closing_lines(self.trend))

    def document(self) -> dict[str, object]:
        from fsjoule.report.trend.document import document

        return document(self.trend)

    def markdown(self) -> str:
        from fsjoule.report.trend.markdown import to_markdown

        return to_markdown(self.trend, self.index, everything=self.everything)

    def page(self, file: Path) -> str:
        from fsjoule.model.series import Order
        from fsjoule.report.trend.page import link_from, trend_page

        trends = (self.trend, self.trend if self.other is None else self.other)
        by_time, by_kernel = sorted(trends, key=lambda each: each.order is Order.KERNEL)
        return trend_page(by_time, by_kernel, forge=self.forge, link=link_from(file.parent))

    def print(self, console: Console) -> None:
        from fsjoule.report.trend.text import print_trend

        print_trend(console, self.trend, self.index, everything=self.everything)


@dataclass(frozen=True)
class BisectionView(VerdictView):
    """A bisection that is done or under way; `explain` says which functions cost it."""

    state: BisectionState
    explain: Explain = _nothing
    everything: bool = False
    wide: bool = False
    command: ClassVar[str] = "bisect"

    @cached_property
    def explanations(self) -> tuple[Explanation, ...]:
        return self.explain()

    @property
    def headline(self) -> str:
        from fsjoule.report.bisection import words
        from fsjoule.verdicts.bisection.answer import bisected

        standing, answer = words.standing_of(self.state)
        return words.lead(self.state, None if answer is None else bisected(self.state, answer), standing)

    @property
    def simulated(self) -> bool:
        return self.state.asked.simulated

    @property
    def cases(self) -> Sequence[VerdictCase]:
        from fsjoule.statistics.bisection.answer import AnswerKind

        states: Final = {
            AnswerKind.CULPRIT: CaseState.FAILED,
            AnswerKind.SET: CaseState.FAILED,
            AnswerKind.NO_REGRESSION: CaseState.PASSED,
        }
        answered = self.state.answered
        state = CaseState.SKIPPED if answered is None else states.get(answered.kind, CaseState.SKIPPED)
        return [VerdictCase(self.state.asked.board, "first bad commit", state, self.headline)]

    def document(self) -> dict[str, object]:
        from fsjoule.report.bisection.document import to_document

        return to_document(self.state, self.explanations)

    def markdown(self) -> str:
        from fsjoule.report.bisection.markdown import to_markdown

        return to_markdown(self.state, self.explanations)

    def page(self, file: Path) -> str:
        from fsjoule.report.bisection.page import render_page

        del file  # it has no links
        return render_page(self.state, self.explanations)

    def print(self, console: Console) -> None:
        from fsjoule.report.bisection.text import print_bisection
        from fsjoule.report.explanation.text import print_explanation

        print_bisection(console, self.state, everything=self.everything, wide=self.wide)
        for each in self.explanations:
            console.print("")
            print_explanation(console, each, everything=self.everything, wide=self.wide)
