"""The answer on a patch series: the gate of the whole, one of each patch that changes the kernel, and its document."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fsjoule.errors import KernelBuildError
from fsjoule.model.labels import without_passwords
from fsjoule.store.gate import Gated, GateVerdict, to_document

SCHEMA: Final = "fsjoule.review/1"


class PatchState(StrEnum):
    """A patch, if no gate has the answer."""

    SAME = "same kernel"
    UNBUILT = "does not build"
    BUILT = "builds"


@dataclass(frozen=True, slots=True)
class ReviewedPatch:
    """One patch. A `gated` one was judged against the kernel before it; else `state` says what is known.

    `why` is the first error of one that does not build. A gate that `includes` earlier patches, which do not build, is
    about all of them.
    """

    number: int
    commit: str
    subject: str
    state: PatchState = PatchState.SAME
    why: str = ""
    gated: Gated | None = None
    includes: tuple[int, ...] = ()

    @property
    def regressed(self) -> bool:
        return self.gated is not None and self.gated.verdict is GateVerdict.REGRESSED

    @property
    def answer(self) -> str:
        """In a word or two."""
        return self.state.value if self.gated is None else self.gated.verdict.value


@dataclass(frozen=True, slots=True)
class Review:
    """The answer: `whole` is the gate of the last patch against the `base`, a commit.

    `patches` are those that were looked at, from the first on: none if the whole was enough. `compiler` built the
    kernels, if any were built; `command` repeats the review.
    """

    series: str
    base: str
    base_name: str
    length: int
    whole: Gated
    patches: tuple[ReviewedPatch, ...] = ()
    compiler: str = ""
    command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "command", without_passwords(self.command))

    @property
    def unbuilt(self) -> tuple[ReviewedPatch, ...]:
        return tuple(each for each in self.patches if each.state is PatchState.UNBUILT)

    @property
    def gates(self) -> tuple[Gated, ...]:
        """Those that were measured, each once: a patch that is all of the change has the gate of the whole."""
        gates = (self.whole, *(each.gated for each in self.patches if each.gated is not None))
        return tuple({id(each): each for each in gates if each.pairs}.values())

    @property
    def boots(self) -> int:
        return sum(2 * each.pairs - each.known_boots for each in self.gates)

    @property
    def simulated(self) -> bool:
        return any(each.simulated for each in self.gates)

    @property
    def exit_code(self) -> int:
        """The gate's: that of the worst answer, of the series or of a patch; of a build's failure if none is worse."""
        verdicts = {each.verdict for each in (self.whole, *self.gates)}
        if GateVerdict.REGRESSED in verdicts:
            return GateVerdict.REGRESSED.exit_code
        if self.unbuilt:
            return KernelBuildError.exit_code
        return max(each.exit_code for each in verdicts)


def to_review_document(review: Review, headline: str) -> dict[str, object]:
    """The whole review, with the documents of its gates."""
    return {
        "schema": SCHEMA,
        "exit_code": review.exit_code,
        "headline": headline,
        "simulated": review.simulated,
        "series": review.series,
        "base": review.base,
        "base_name": review.base_name,
        "boots": review.boots,
        "compiler": review.compiler,
        "whole": to_document(review.whole, review.whole.ended),
        "length": review.length,
        "patches": [
            {
                "number": each.number,
                "commit": each.commit,
                "subject": each.subject,
                "answer": each.answer,
                "why": each.why,
                "includes": list(each.includes),
                "gate": None if each.gated is None else to_document(each.gated, each.gated.ended),
            }
            for each in review.patches
        ],
        "command": list(review.command),
    }
