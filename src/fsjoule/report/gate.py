"""A gate's answer: in words (`regressed: ext4 write-16k 1.1 % more CPU time; new against old`), and as a view."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from fsjoule.model.labels import counted
from fsjoule.report.finding_views import FindingsView, Lines, finding_case
from fsjoule.report.findings import evidence_text, gate_table, note_table
from fsjoule.report.markdown import folded, plain
from fsjoule.report.renderers import CaseState, VerdictCase
from fsjoule.report.table import Table, Tone
from fsjoule.report.words import named
from fsjoule.statistics.outcome import Outcome
from fsjoule.store.finding import news
from fsjoule.store.gate import Gated, GateVerdict, Tested, to_document

if TYPE_CHECKING:
    from fsjoule.verdicts.explanation.changes import Explanation

_OUTPUTS: Final = ("--results", "--markdown", "--html")
_TONES: Final = {
    GateVerdict.REGRESSED: Tone.BAD,
    GateVerdict.PASSED: Tone.GOOD,
    GateVerdict.IDENTICAL: Tone.GOOD,
    GateVerdict.UNDECIDED: Tone.DOUBT,
    GateVerdict.NO_BASELINE: Tone.DOUBT,
}


@dataclass(frozen=True)
class GateView(FindingsView[Tested]):
    """A gate's answer. Markdown, which others read, has paths in `checkout` relative to it."""

    gated: Gated
    checkout: Path = Path()
    everything: bool = False
    wide: bool = False
    explanations: tuple[Explanation, ...] = ()
    command: ClassVar[str] = "gate"

    @property
    def headline(self) -> str:
        return headline(self.gated)

    @property
    def heading(self) -> str:
        return f"Gate: {self.gated.candidate.name} against {self.gated.baseline.name}"

    @property
    def tone(self) -> Tone:
        return _TONES[self.gated.verdict]

    @property
    def judgement(self) -> Gated:
        return self.gated

    @property
    def cases(self) -> Sequence[VerdictCase]:
        if self.findings:
            return [
                finding_case(one, f"{one.basis.pairs} pairs of boots, {evidence_text(one)}") for one in self.findings
            ]
        state = CaseState.PASSED if self.gated.verdict is GateVerdict.IDENTICAL else CaseState.SKIPPED
        name = f"{self.gated.candidate.name} against {self.gated.baseline.name}"
        return [VerdictCase("gate", name, state, self.headline)]

    @property
    def facts(self) -> Lines:
        sides = [("baseline", self.gated.baseline.title), ("candidate", self.gated.candidate.title)]
        return sides if self.gated.folder is None else [*sides, ("run", self.gated.folder)]

    @property
    def notes(self) -> Sequence[str]:
        return [*self.warnings_and_remarks, *self.gated.faults]

    @property
    def lists(self) -> Mapping[str, Lines]:
        return {
            "Stalled boots, which the test ignores": [
                (one.name, f"baseline {one.basis.stalls_baseline}, candidate {one.basis.stalls_candidate}")
                for one in self.findings
                if one.basis.stalls_baseline or one.basis.stalls_candidate
            ],
            "Figures that could not be used": [
                (one.name, ", ".join(one.basis.unusable)) for one in self.findings if one.basis.unusable
            ],
            "Faults of the lab": [(str(i), fault) for i, fault in enumerate(self.gated.faults, start=1)],
        }

    @property
    def page_lists(self) -> Mapping[str, Lines]:
        return {**self.lists, "What was gated": self.facts}

    @property
    def command_line(self) -> str:
        return command(self.gated)

    @property
    def rules(self) -> str:
        policy = self.gated.policy
        return (
            "order: the loss in units of what matters; the interval of the change holds with 95 %, whenever "
            "the gate ends. evidence: how far it is to the nearer decision. Without any loss the gate "
            f"says regressed with {100 * policy.alpha:g} % at most; a loss of what matters or more passes a figure "
            f"with {100 * policy.beta:g} % at most (docs/gate.md)"
        )

    def table(self, title: str, findings: Sequence[Tested]) -> Table:
        return gate_table(title, findings, simulated=self.simulated)

    def document(self) -> dict[str, object]:
        return to_document(self.gated, self.headline)

    def markdown_lead(self) -> str:
        verdict, _, answer = self.headline.partition(":")
        boards = sorted({one.subject.series.board for one in self.findings})
        where = f" on {plain(', '.join(boards))}" if boards else ""
        return f"**fsjoule gate: {plain(verdict)}**{where}:{plain(answer)}"

    def markdown_table(self, findings: Sequence[Tested]) -> Table:
        return note_table(findings, simulated=self.simulated)

    def markdown_facts(self) -> Iterator[str]:
        yield from (f"- {name}: {plain(_relative(text, self.checkout))}" for name, text in self.facts)

    def markdown_command(self) -> Iterator[str]:
        if self.gated.command:
            # For somebody else's checkout: without output files, and with paths relative to `checkout`.
            words: list[str] = []
            for word in self.gated.command:
                if words and words[-1] in _OUTPUTS:
                    words.pop()
                elif not word.startswith(tuple(f"{option}=" for option in _OUTPUTS)):
                    words.append(_relative(word, self.checkout))
            again = shlex.join(words).replace("```", "")
            yield from folded("To repeat it", ["```sh", again, "```"])

    def page_explanations(self) -> Sequence[Explanation]:
        return self.explanations


def headline(gated: Gated) -> str:
    """`regressed: ext4 write-16k 1.1 % more CPU time; new against old (simulated), 2 pairs of boots`."""
    sides = f"{gated.candidate.name} against {gated.baseline.name}"
    simulated = " (simulated)" if gated.simulated else ""
    figures = counted(len(gated.findings), "figure")
    match gated.verdict:
        case GateVerdict.NO_BASELINE | GateVerdict.IDENTICAL:
            return f"{gated.verdict}: {sides}: {gated.ended}"
        case GateVerdict.REGRESSED:
            text = named([one for one in gated.findings if one.regressed])
        case GateVerdict.PASSED:
            better = [one for one in gated.findings if one.outcome is Outcome.IMPROVED]
            text = figures + (f", {named(better)}" if better else "")
        case GateVerdict.UNDECIDED:
            text = f"{sum(one.undecided for one in gated.findings)} of {figures}"
            far = [one for one in gated.findings if one.far]
            text += f", far beyond the board's own spread: {named(far)}" if far else ""
    text = "; ".join((text, *news(gated.kernel_warnings)))
    return f"{gated.verdict}: {text}; {sides}{simulated}, {counted(gated.pairs, 'pair')} of boots, {gated.ended}"


def command(gated: Gated) -> str:
    """The command that repeats the gate, quoted for a shell."""
    return shlex.join(gated.command)


def _relative(word: str, checkout: Path) -> str:
    """A path in `checkout`, alone or as in KERNEL@PATH, relative to it; any other word as it is."""
    inside = re.sub(rf"(^|[@=]){re.escape(str(checkout))}/", r"\1", word)
    return "." if inside == str(checkout) else inside
