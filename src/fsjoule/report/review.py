"""A review as text for a reply to a series' author, at most 72 columns wide, and as a view for all other formats."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from rich.console import Console
from rich.text import Text

from fsjoule.model.labels import counted
from fsjoule.report.gate import GateView
from fsjoule.report.markdown import plain
from fsjoule.report.renderers import CaseState, VerdictCase, VerdictView
from fsjoule.report.words import means
from fsjoule.store.finding import news
from fsjoule.store.gate import Gated, GateVerdict, Tested
from fsjoule.store.review import PatchState, Review, ReviewedPatch, to_review_document

_WIDTH: Final = 72
_SHORT: Final = 12
_ABSENT: Final = "-"  # a mail is ASCII
_OUTPUTS: Final = ("--format", "--json", "--markdown", "--page", "--results")
_GOES_ON: Final = " \\"  # a shell's line
_SIZE: Final = re.compile(r" \d+KiB\b")
_STATES: Final = {
    GateVerdict.REGRESSED: CaseState.FAILED,
    GateVerdict.UNDECIDED: CaseState.SKIPPED,
    GateVerdict.NO_BASELINE: CaseState.SKIPPED,
}


@dataclass(frozen=True)
class ReviewView(VerdictView):
    """A review for renderers. Its text is the reply."""

    review: Review
    checkout: Path = Path()
    everything: bool = False
    wide: bool = False
    command: ClassVar[str] = "review"

    @property
    def headline(self) -> str:
        review, verdict = self.review, self.review.whole.verdict
        unbuilt = [f"patch {each.number} of {review.length} does not build" for each in review.unbuilt]
        losers = [f"patch {each.number}" for each in review.patches if each.regressed]
        if verdict is GateVerdict.UNDECIDED and not review.whole.pairs:
            return review.whole.ended
        if verdict is GateVerdict.IDENTICAL:
            answer = f"{verdict}: {review.whole.ended}"
        elif verdict is GateVerdict.REGRESSED and review.patches:
            answer = f"{verdict} by {_listed(losers)}" if losers else f"{verdict}, by no patch alone"
        else:
            answer = verdict.value + (f", though {_listed(losers)} regressed" if losers else "")
        return "; ".join((answer, *unbuilt)) + " (simulated)" * review.simulated

    @property
    def simulated(self) -> bool:
        return self.review.simulated

    @property
    def cases(self) -> Sequence[VerdictCase]:
        return [*GateView(self.review.whole).cases, *map(self._case, self.review.patches)]

    def document(self) -> dict[str, object]:
        return to_review_document(self.review, self.headline)

    def markdown(self) -> str:
        """The answer and the patches as a list, then the note of the whole series' gate."""
        patches = [
            f"- {self._number(each)} {plain(each.subject)}: {plain('; '.join(_answers(each)))}"
            for each in self.review.patches
        ]
        return "\n".join([f"**fsjoule review: {plain(self.headline)}**", "", *patches, "", self._whole.markdown()])

    def page(self, place: Path) -> str:
        return self._whole.page(place)

    def print(self, console: Console) -> None:
        # A terminal's width does not matter: it is pasted into a mail.
        console.print(Text(self.text()), soft_wrap=True, end="")

    def text(self) -> str:
        """The reply."""
        return "\n".join(self._lines()) + "\n"

    @property
    def _whole(self) -> GateView:
        return GateView(self.review.whole, self.checkout, self.everything, self.wide)

    def _number(self, patch: ReviewedPatch) -> str:
        return f"{patch.number}/{self.review.length}"

    def _case(self, patch: ReviewedPatch) -> VerdictCase:
        if patch.gated is not None:
            state = _STATES.get(patch.gated.verdict, CaseState.PASSED)
        else:
            state = CaseState.FAILED if patch.state is PatchState.UNBUILT else CaseState.PASSED
        return VerdictCase("patches", f"{self._number(patch)} {patch.subject}", state, "; ".join(_answers(patch)))

    def _lines(self) -> Iterator[str]:
        review = self.review
        yield from _wrapped(f"fsjoule: {self.headline}")
        yield ""
        base = f"{review.base_name} ({review.base[:_SHORT]})"
        yield from _wrapped(f"{counted(review.length, 'patch', 'patches')} of {review.series} on {base}.")
        if review.patches:
            yield ""
        for each in review.patches:
            yield f"{self._number(each):>5}  {textwrap.shorten(each.subject, _WIDTH - 7, placeholder='...')}"
            for answer in _answers(each):
                yield from _wrapped(answer, 7)
        if review.whole.findings:
            yield ""
            yield "The whole series, change and 95 % interval:"
            yield from _figures(review.whole)
        if review.boots:
            yield ""
            yield from _wrapped(self._how())
        for note in dict.fromkeys(note for gated in review.gates for note in gated.notes):
            yield ""
            yield from _wrapped(f"Note: {note}.")
        yield ""
        yield "To repeat it:"
        yield ""
        yield from _command(review.command)

    def _how(self) -> str:
        review = self.review
        policy = review.whole.policy
        effects: dict[float, list[str]] = {}
        for metric in policy.metrics:
            effects.setdefault(policy.effect_of(metric), []).append(metric.value)
        matters = ", or ".join(f"{100 * effect:g} % of {_listed(names)}" for effect, names in effects.items())
        boards = sorted({one.subject.series.board for gated in review.gates for one in gated.findings})
        where = f"the emulated board {', '.join(boards)}" if review.simulated else ", ".join(boards)
        simulated = " All figures are simulated." if review.simulated else ""
        return (
            f"{counted(review.boots, 'boot')} on {where}, both kernels in turn.{simulated} What matters is a loss of "
            f"{matters}. At most {100 * policy.alpha:g} % of comparisons without a loss say regressed; at most "
            f"{100 * policy.beta:g} % of figures with such a loss pass. Compiler: {review.compiler}."
        )


def _answers(patch: ReviewedPatch) -> list[str]:
    """What is said of a patch: the answer, then each changed figure."""
    lines = [patch.answer + (f": {patch.why}" if patch.why else "")]
    if patch.includes:
        lines[0] += f", with {_listed([f'patch {number}' for number in patch.includes])}, which does not build alone"
    if patch.gated is not None:
        if patch.gated.verdict is GateVerdict.UNDECIDED:
            undecided = sum(one.undecided for one in patch.gated.findings)
            lines[0] += f": {undecided} of {counted(len(patch.gated.findings), 'figure')}"
        changed = [one for one in patch.gated.findings if one.changed]
        lines += [f"{_name(one)} {one.metric}: {_change(one)}, {_interval(one)}" for one in changed]
        lines += news(patch.gated.kernel_warnings)
    return lines


def _figures(gated: Gated) -> Iterator[str]:
    """A block for each metric, a row for each series."""
    for metric in gated.policy.metrics:
        rows = [one for one in gated.findings if one.metric is metric]
        if rows:
            yield f"  {metric.value}"
        for one in rows:
            yield f"    {_name(one):<20}{_change(one):>9}  {_interval(one):<18}  {means(one)}"


def _change(one: Tested) -> str:
    """With two decimals: a tenth of a percent of instructions is known here."""
    return _ABSENT if one.ratio is None else f"{_percent(one.ratio)} %"


def _interval(one: Tested) -> str:
    if one.interval is None:
        return _ABSENT
    return f"{_percent(one.interval.low)} to {_percent(one.interval.high)} %"


def _percent(ratio: float) -> str:
    return f"{round(100 * (ratio - 1), 2) + 0.0:+.2f}"  # never -0.00


def _name(one: Tested) -> str:
    return _SIZE.sub("", one.subject.name)


def _listed(words: Sequence[str]) -> str:
    return " and ".join([*([", ".join(words[:-1])] if words[1:] else []), words[-1]])


def _wrapped(text: str, indent: int = 0) -> list[str]:
    spaces = " " * indent
    return textwrap.wrap(
        text, _WIDTH, initial_indent=spaces, subsequent_indent=spaces, break_long_words=False, break_on_hyphens=False
    )


def _command(command: Sequence[str]) -> Iterator[str]:
    """For a shell, in lines that end with a backslash; each option stands with its value. Outputs are the reader's."""
    groups: list[str] = []
    for word in command:
        if groups and not word.startswith("-"):
            groups[-1] += f" {shlex.quote(word)}"
        else:
            groups.append(shlex.quote(word))
    line = f"  {groups[0]}" if groups else ""
    for group in groups[1:]:
        if group.startswith(_OUTPUTS):
            continue
        if len(line) + len(group) + len(_GOES_ON) >= _WIDTH:
            yield line + _GOES_ON
            line = f"      {group}"
        else:
            line += f" {group}"
    yield line
