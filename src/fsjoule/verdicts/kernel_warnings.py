"""What the kernels of two sides said of themselves: a result beside the figures. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelWarning:
    """A fault that a kernel reported, and in how many boots of each side, out of `of_baseline` and `of_candidate`."""

    text: str
    baseline: int
    candidate: int
    of_baseline: int
    of_candidate: int

    @property
    def new(self) -> bool:
        return not self.baseline

    def __str__(self) -> str:
        who = (
            "the candidate warns" if self.new else "both kernels warn" if self.candidate else "the baseline alone warns"
        )
        return (
            f"{who}: {self.text} (in {self.candidate} of {self.of_candidate} boots; "
            f"baseline: {self.baseline} of {self.of_baseline})"
        )


def kernel_warnings(
    baseline: Iterable[tuple[Hashable, Iterable[str]]], candidate: Iterable[tuple[Hashable, Iterable[str]]]
) -> tuple[KernelWarning, ...]:
    """The warnings of both sides, what only the candidate has first; each side are boots and texts, in any order."""
    sides = (_by_boot(baseline), _by_boot(candidate))
    ours, theirs = sides
    texts = dict.fromkeys(text for side in sides for found in side.values() for text in sorted(found))
    told = [KernelWarning(text, _boots(ours, text), _boots(theirs, text), len(ours), len(theirs)) for text in texts]
    return tuple(sorted(told, key=lambda each: (not each.new, not each.candidate)))


def news(warnings: Iterable[KernelWarning]) -> list[str]:
    """For a headline: `the candidate warns: WARNING fs/ext4/inode.c ext4_iomap_begin and 2 more`, or nothing."""
    texts = [each.text for each in warnings if each.new]
    more = f" and {len(texts) - 1} more" if len(texts) > 1 else ""
    return [f"the candidate warns: {texts[0]}{more}"] if texts else []


def _by_boot(side: Iterable[tuple[Hashable, Iterable[str]]]) -> Mapping[Hashable, set[str]]:
    boots: dict[Hashable, set[str]] = {}
    for boot, texts in side:
        boots.setdefault(boot, set()).update(texts)
    return boots


def _boots(side: Mapping[Hashable, set[str]], text: str) -> int:
    return sum(text in found for found in side.values())
