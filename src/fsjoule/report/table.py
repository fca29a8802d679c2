"""A table as columns and cells, for the terminal, pages and Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise, takewhile
from typing import Final

GAP: Final = 2
# Words are shortened to this before any figure is left out, and to the shortest before the last ones are.
_USUAL: Final = 30
_SHORTEST: Final = 12
_ELLIPSIS: Final = "…"
_DIGEST: Final = re.compile(r" [0-9a-f]{8}\b")  # of a workload's own words, in the name of its series


class Tone(StrEnum):
    """The meaning of a cell's colour; its text says it too."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    DOUBT = "doubt"


@dataclass(frozen=True, slots=True)
class Cell:
    """`text`, and its deviation, which a narrow page shows below. A word's `link` is an address, for pages only."""

    text: str
    sd: str = ""
    tone: Tone = Tone.PLAIN
    link: str = ""

    @property
    def joined(self) -> str:
        return f"{self.text} {self.sd}".rstrip()


@dataclass(frozen=True, slots=True)
class Column:
    """`name` with its unit. Words are aligned left, figures right.

    `head` columns identify a row. A column that `joins` belongs to the one before it. A narrow table leaves `optional`
    columns out first.
    """

    name: str
    unit: str = ""
    is_figure: bool = True
    head: bool = False
    joins: bool = False
    optional: bool = False


Filled = tuple[Column, list[Cell]]
"""A column with its cells."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table in a given width, the names of the columns that it lacks, and whether it shortens words."""

    table: Table
    left_out: tuple[str, ...]
    is_shortened: bool


@dataclass(frozen=True, slots=True)
class Table:
    """`breaks` holds the indices of rows before which a new group begins."""

    title: str
    simulated: bool
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    breaks: frozenset[int] = frozenset()

    @property
    def heads(self) -> list[str]:
        """The first column's texts."""
        return [row[0].joined for row in self.rows]

    def widths(self) -> list[int]:
        """Each column's width in characters."""
        return [
            max(len(column.name), len(column.unit), *(len(row[i].joined) for row in self.rows), 0)
            for i, column in enumerate(self.columns)
        ]

    def fitted(self, room: int) -> Fitted:
        """The table in at most `room` characters, and in one piece, as `cut`.

        The first head loses what does not tell rows apart before any of its names is shortened.
        """
        fitted = self.cut(room)
        if not self.columns[0].head or fitted.table.heads == self.heads:
            return fitted
        shared, names = told_apart(self.heads)
        rows = tuple((replace(row[0], text=name, sd=""), *row[1:]) for name, row in zip(names, self.rows, strict=True))
        title = ", ".join(filter(None, (self.title, shared)))
        return replace(replace(self, title=title, rows=rows).cut(room), is_shortened=True)

    def cut(self, room: int) -> Fitted:
        """The table in at most `room` characters, and in one piece.

        Optional columns go first, the last ones before the others. Then words are shortened in the middle, for names
        often differ at their ends. Then further columns go, except the heads and one more. A figure is never cut, so
        in very little room the table is too wide.
        """
        widths = self.widths()
        least = self._least(_SHORTEST)
        # A path, say, is of use as a whole only.
        usual = [
            width if column.optional else fewest
            for column, width, fewest in zip(self.columns, widths, self._least(_USUAL), strict=True)
        ]
        kept = list(range(len(self.columns)))
        for i in reversed(range(len(self.columns))):
            if self.columns[i].optional and _needed(usual, kept) > room:
                kept = [k for k in kept if k not in self._with_joined(i)]
        for i in reversed(range(len(self.columns))):
            rest = [k for k in kept if k not in self._with_joined(i)]
            may_go = not (self.columns[i].head or self.columns[i].joins)
            if may_go and _needed(least, kept) > room and any(not self.columns[k].head for k in rest):
                kept = rest
        narrowed = [max(fewest, min(width, room)) for fewest, width in zip(least, widths, strict=True)]
        while _needed(narrowed, kept) > room and (wider := [i for i in kept if narrowed[i] > least[i]]):
            narrowed[max(wider, key=lambda i: narrowed[i])] -= 1
        left_out = tuple(dict.fromkeys(column.name for i, column in enumerate(self.columns) if i not in kept))
        return Fitted(self._part(kept, narrowed), left_out, narrowed != widths)

    def _least(self, longest: int) -> list[int]:
        """The widths with words of at most `longest` characters, and whole figures."""
        return [
            max(min(len(column.name), longest), len(column.unit), *(len(row[i].joined) for row in self.rows), 0)
            if column.is_figure
            else min(width, longest)
            for i, (column, width) in enumerate(zip(self.columns, self.widths(), strict=True))
        ]

    def _with_joined(self, i: int) -> range:
        """The column, and those that join it."""
        after = i + 1
        while not self.columns[i].joins and after < len(self.columns) and self.columns[after].joins:
            after += 1
        return range(i, after)

    def _part(self, kept: Sequence[int], widths: Sequence[int]) -> Table:
        columns = tuple(replace(self.columns[i], name=shortened(self.columns[i].name, widths[i])) for i in kept)
        rows = tuple(
            tuple(
                row[i]
                if len(row[i].joined) <= widths[i]
                else Cell(shortened(row[i].joined, widths[i]), "", row[i].tone)
                for i in kept
            )
            for row in self.rows
        )
        return replace(self, columns=columns, rows=rows)


def assembled(title: str, columns: Sequence[Filled], *, simulated: bool, groups: Sequence[str]) -> Table:
    """A table of filled columns, with a break wherever a row's group differs from the one before."""
    breaks = frozenset(i for i, (above, below) in enumerate(pairwise(groups), start=1) if above != below)
    rows = tuple(zip(*(cells for _, cells in columns), strict=True))
    return Table(title, simulated, tuple(column for column, _ in columns), rows, breaks)


def word(name: str, *, optional: bool = False) -> Column:
    """A column of words."""
    return Column(name, is_figure=False, optional=optional)


def listing(columns: Sequence[Column], rows: Iterable[Sequence[str | Cell]]) -> Table:
    """A list of things that has no title."""
    filled = (tuple(Cell(cell) if isinstance(cell, str) else cell for cell in row) for row in rows)
    return Table("", simulated=False, columns=tuple(columns), rows=tuple(filled))


def told_apart(names: Sequence[str]) -> tuple[str, list[str]]:
    """The words that all names begin with, and the rest of each, without digests that no other name differs in.

    `ext4 power-on-init 5fdb1460` and `ext4 power-on-kernel 95fdb146` are `power-on-init` and `power-on-kernel`.
    """
    bare = {name: _DIGEST.sub("", name) for name in names}
    counts = Counter(bare.values())
    words = {name: (text if counts[text] == 1 else name).split(" ") for name, text in bare.items()}
    begins = zip(*(each[:-1] for each in words.values()), strict=False)
    shared = [each[0] for each in takewhile(lambda each: len({*each}) == 1, begins)]
    return " ".join(shared), [" ".join(words[name][len(shared) :]) for name in names]


def shortened(text: str, width: int) -> str:
    """The text, or its beginning and its end, in `width` characters."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}{_ELLIPSIS}{text[len(text) - tail :]}"


def _needed(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[i] + GAP for i in kept) - GAP
