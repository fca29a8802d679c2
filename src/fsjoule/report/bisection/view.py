"""A bisection as a view: text, Markdown, JSON; and as a log for `git bisect replay`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.console import Console, ConsoleRenderable
from rich.text import Text

from fsjoule.report.bisection import words
from fsjoule.report.bisection.words import boot_table, commit_table, first_bad
from fsjoule.report.explanation import words as reasons
from fsjoule.report.explanation.text import explained, function_table, print_explanation
from fsjoule.report.markdown import folded, named_list, plain
from fsjoule.report.markdown import table_lines as markdown_table
from fsjoule.report.renderers import CaseState, VerdictCase, VerdictView
from fsjoule.report.terminal import room_of, table_lines
from fsjoule.statistics.bisection.answer import AnswerKind
from fsjoule.verdicts.bisection.answer import Bisected, bisected
from fsjoule.verdicts.bisection.state import BisectionState

if TYPE_CHECKING:
    from fsjoule.verdicts.explanation.changes import Explanation

SCHEMA: Final = "fsjoule.bisected/1"
_KEY: Final = 12
_FUNCTIONS: Final = 10
_STYLES: Final = {
    AnswerKind.CULPRIT: "bold red",
    AnswerKind.SET: "bold red",
    AnswerKind.NO_REGRESSION: "bold green",
    AnswerKind.UNDECIDED: "bold yellow",
    AnswerKind.UNTESTABLE: "bold yellow",
}
_STATES: Final = {
    AnswerKind.CULPRIT: CaseState.FAILED,
    AnswerKind.SET: CaseState.FAILED,
    AnswerKind.NO_REGRESSION: CaseState.PASSED,
}


@dataclass(frozen=True)
class BisectionView(VerdictView):
    """A bisection that is done or under way; `explain` says which functions cost it."""

    state: BisectionState
    explain: Callable[[], tuple[Explanation, ...]] = tuple
    everything: bool = False
    wide: bool = False
    command: ClassVar[str] = "bisect"

    @cached_property
    def explanations(self) -> tuple[Explanation, ...]:
        return self.explain()

    @cached_property
    def answer(self) -> Bisected | None:
        """None before there is one."""
        _, answer = words.standing_of(self.state)
        return None if answer is None else bisected(self.state, answer)

    @property
    def headline(self) -> str:
        return words.lead(self.state, self.answer, words.standing_of(self.state)[0])

    @property
    def simulated(self) -> bool:
        return self.state.asked.simulated

    @property
    def cases(self) -> Sequence[VerdictCase]:
        answered = self.state.answered
        state = CaseState.SKIPPED if answered is None else _STATES.get(answered.kind, CaseState.SKIPPED)
        return [VerdictCase(self.state.asked.board, "first bad commit", state, self.headline)]

    def document(self) -> dict[str, Any]:
        """The question, the answer (None before there is one), each commit's probability, all boots and skips."""
        state = self.state
        return {
            "schema": SCHEMA,
            "headline": self.headline,
            "asked": asdict(state.asked),
            "answer": None
            if self.answer is None
            else asdict(self.answer)
            | {"changes": [asdict(each) | {"words": each.words} for each in self.answer.changes]},
            "commits": [
                {"commit": commit, "subject": words.subject(state, commit), "first_bad": float(probability)}
                for commit, probability in zip(state.line.commits, first_bad(state), strict=True)
            ],
            "boots": [asdict(each) for each in state.booted],
            "built": [asdict(each) for each in state.built],
            "skipped": [asdict(each) for each in state.skipped],
            "profiled": [asdict(each) for each in state.profiled],
            "explanations": [explained(each) for each in self.explanations],
        }

    def markdown(self) -> str:
        """GitLab's and GitHub's Markdown. A hidden first line names the question."""
        return "\n".join(self._markdown()) + "\n"

    def _markdown(self) -> Iterator[str]:
        state = self.state
        # The same for the same question, on whatever machine.
        asked = state.asked
        parts = (sorted(asked.good), sorted(asked.bad), asked.board, asked.suite, sorted(asked.figures))
        yield f"<!-- fsjoule bisect {hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_KEY]} -->"
        simulated = " (simulated)" if self.simulated else ""
        yield f"**fsjoule bisect: {plain(self.headline)}**{simulated}"
        yield ""
        yield from named_list(list(words.facts(state, self.answer)))
        for each in self.explanations:
            functions = each.functions[:_FUNCTIONS]
            yield ""
            yield f"{plain(reasons.headline(each))}; {plain(reasons.because(each))}"
            yield from folded("Functions", list(markdown_table(function_table("", each, functions))))
        yield from folded("What was asked", named_list(list(words.question(state))))
        yield from folded("Commits", list(markdown_table(commit_table(state, first_bad(state)))))

    def page(self, place: Path) -> str:
        from fsjoule.report.bisection.page import render_page  # noqa: PLC0415 - its charts take long to import

        del place  # it has no links
        return render_page(self.state, self.explanations)

    def print(self, console: Console) -> None:
        """Print the answer or how far the search is, and the most probable commits, or all with the boots."""
        for renderable in self._renderables(room_of(console, wide=self.wide)):
            console.print(renderable, crop=False)
        for each in self.explanations:
            console.print("")
            print_explanation(console, each, everything=self.everything, wide=self.wide)

    def _renderables(self, room: int | None) -> Iterator[ConsoleRenderable]:
        state = self.state
        yield Text(self.headline, style=_STYLES[self.answer.kind] if self.answer else "bold")
        for name, text in words.facts(state, self.answer):
            yield Text(f"{name:<10} {text}")
        yield Text("")
        yield from table_lines(commit_table(state, first_bad(state), everything=self.everything), room)
        if self.everything:
            yield from table_lines(boot_table(state), room)


def git_log(state: BisectionState) -> str:
    """The steps of git's own bisection, for `git bisect replay`; commits that we made are left out."""
    answer = BisectionView(state).answer
    ours = set(state.asked.good) | set(state.asked.bad)
    lines = ["git bisect start", *(f"git bisect bad {each}" for each in state.asked.bad)]
    lines += [f"git bisect good {each}" for each in state.asked.good]
    skipped = dict.fromkeys(each.kernel.commit for each in state.skipped if each.kernel.is_plain)
    lines += [f"git bisect skip {each}" for each in skipped if each not in ours]
    if answer is not None and answer.kind is AnswerKind.CULPRIT:
        lines += [f"git bisect good {answer.parent}", f"git bisect bad {answer.commits[0]}"]
    return "\n".join(lines) + "\n"
