"""Positions of a line that have the same kernel, byte for byte: they are one, whichever is built and measured.

A pool is a run of positions. Two kinds of knowledge join neighbours. A build says what it read: from there, in both
directions, a step that changes nothing of it leads to the same kernel, up to the first step that does. That is certain.
Where no build is near, all that any build read is asked. That is a forecast, and may split a pool when one of its
positions is built; no position that was built and measured ever leaves its pool by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import accumulate, pairwise
from typing import Final

from fsjoule.kernels.reads import FileChange, Reads
from fsjoule.kernels.tree.builder import BuiltCommit
from fsjoule.kernels.tree.commits import Commit
from fsjoule.kernels.tree.repository import Repository

_APPEARS: Final = frozenset("AD")


def changes_of(repository: Repository, line: Sequence[Commit]) -> tuple[tuple[FileChange, ...] | None, ...]:
    """The changes from each position to the next one: one entry fewer than positions.

    None where one of the two has no content (a conflict).
    """
    pairs = dict.fromkeys((one.content, two.content) for one, two in pairwise(line) if one.content and two.content)
    differences = _differences(repository, tuple(pairs))
    return tuple(differences.get((one.content, two.content)) for one, two in pairwise(line))


@lru_cache(maxsize=8)
def _differences(
    repository: Repository, pairs: tuple[tuple[str, str], ...]
) -> dict[tuple[str, str], tuple[FileChange, ...]]:
    """By two contents. One git for all of them; it says nothing of two that are equal. Contents never change."""
    found: dict[tuple[str, str], list[FileChange]] = {pair: [] for pair in pairs}
    if not pairs:
        return {}
    request = "".join(f"{one} {two}\n" for one, two in pairs)
    said = repository.git("diff-tree", "--stdin", "-r", "-z", "--no-renames", "--name-status", given=request)
    current: list[FileChange] = []
    words = iter(f"{said}\n".split("\0"))
    for word in words:
        # The two trees stand, with a line's end, before the first of their files.
        header, has_header, rest = word.rpartition("\n")
        if header:
            one, two = header.split("\n")[-1].split()
            current = found[one, two]
        status = rest if has_header else word
        if status:
            current.append(FileChange(next(words), status in _APPEARS))
    return {pair: tuple(changes) for pair, changes in found.items()}


Changes = Sequence[tuple[FileChange, ...] | None]


@dataclass(frozen=True, slots=True)
class KernelPools:
    """`numbers` has the pool of each position, from 0 on, rising; `images` the digest of those pools that were built.

    Two pools may have the same image: a commit and, later, its revert.
    """

    numbers: tuple[int, ...]
    images: Mapping[int, str]

    def positions(self, number: int) -> list[int]:
        """The positions of a pool, in order: the first one is the commit that made it differ."""
        return [position for position, pool in enumerate(self.numbers) if pool == number]


def pools_of(changes: Changes, built: Mapping[int, BuiltCommit]) -> KernelPools:
    """The pools of a line: `changes` has what leads from each position to the next, `built` what is known by position.

    A position without content (a conflict) is a pool of its own.
    """
    everything = reduce(Reads.__or__, (kernel.reads for kernel in built.values())) if built else None
    silent = [_is_silent(step, everything) for step in changes]
    for position, kernel in built.items():
        for step in (*_reach(changes, kernel.reads, position, 1), *_reach(changes, kernel.reads, position, -1)):
            silent[step] = True
    for one, two in pairwise(sorted(built)):
        if built[one].image != built[two].image and all(silent[one:two]):
            silent[one:two] = [False] * (two - one)
        elif built[one].image == built[two].image and two == one + 1:
            silent[one] = True
    numbers = tuple(accumulate((not step for step in silent), initial=0))
    return KernelPools(numbers, {numbers[position]: kernel.image for position, kernel in built.items()})


def _is_silent(step: tuple[FileChange, ...] | None, reads: Reads | None) -> bool:
    """Whether a step changes nothing at all, or nothing that was read by any build."""
    return step is not None and (not step or (reads is not None and reads.first(step) is None))


def _reach(changes: Changes, reads: Reads, position: int, direction: int) -> list[int]:
    """The steps that one can take from a position without meeting anything that its build read."""
    steps = range(position, len(changes)) if direction > 0 else range(position - 1, -1, -1)
    positions: list[int] = []
    for step in steps:
        change = changes[step]
        if change is None or reads.first(change) is not None:
            break
        positions.append(step)
    return positions
