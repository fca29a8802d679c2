"""Which files each step of a line changes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from fsjoule.kernels.reads import Change
from fsjoule.kernels.tree.commits import Commit
from fsjoule.kernels.tree.repository import Repository

_APPEARS: Final = frozenset("AD")


def changes_of(repository: Repository, line: Sequence[Commit]) -> tuple[tuple[Change, ...] | None, ...]:
    """The changes from each position to the next one: one entry fewer than positions.

    None where one of the two has no content (a conflict).
    """
    pairs = dict.fromkeys((one.content, two.content) for one, two in pairwise(line) if one.content and two.content)
    found = _differences(repository, tuple(pairs))
    return tuple(found.get((one.content, two.content)) for one, two in pairwise(line))


@lru_cache(maxsize=8)
def _differences(
    repository: Repository, pairs: tuple[tuple[str, str], ...]
) -> dict[tuple[str, str], tuple[Change, ...]]:
    """By two contents. One git for all of them; it says nothing of two that are equal. Contents never change."""
    found: dict[tuple[str, str], list[Change]] = {pair: [] for pair in pairs}
    if not pairs:
        return {}
    asked = "".join(f"{one} {two}\n" for one, two in pairs)
    said = repository.git("diff-tree", "--stdin", "-r", "-z", "--no-renames", "--name-status", given=asked)
    current: list[Change] = []
    words = iter(f"{said}\n".split("\0"))
    for word in words:
        # The two trees stand, with a line's end, before the first of their files.
        header, has_header, rest = word.rpartition("\n")
        if header:
            one, two = header.split("\n")[-1].split()
            current = found[one, two]
        status = rest if has_header else word
        if status:
            current.append(Change(next(words), status in _APPEARS))
    return {pair: tuple(changes) for pair, changes in found.items()}
