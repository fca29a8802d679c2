"""Statements as rules over figures, published or of a run. Pure.

A statement is a list of pairs, each a figure that should be above another. It holds if every pair does: each mean is
above the other at 5 %, by Welch's t test, one-sided. It does not hold if a pair is the wrong way round at 5 % over the
number of pairs, because one of many will seem so by chance. Otherwise it is not decided. Figures without a deviation (a
single repetition, or a deviation that was not published) are compared as they are, and the answer says `single`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, Protocol

from fsjoule.statistics.spread import Proportion, Spread, p_not_above
from fsjoule.suites.published.cells import CellFigures, FigureCell, Found

SIGNIFICANCE: Final = 0.05


class Holds(StrEnum):
    YES = "holds"
    NO = "does not hold"
    UNDECIDED = "not decided"


class StatementSource(StrEnum):
    """Whose statement it is."""

    SAID = "said"  # the publication says so
    TABLE = "table"  # we read it off the publication's table
    OURS = "ours"  # our expectation: the publication's answer is not among our data


@dataclass(frozen=True, slots=True)
class Reading:
    """A cell and its content; None if it is missing."""

    cell: FigureCell
    found: Found | None


@dataclass(frozen=True, slots=True)
class StatementAnswer:
    """The answer about a statement. `deciding` are the figures that decide it, or that are missing.

    `agreeing` of `pairs` comparisons are as stated. `single` says that figures without a deviation were compared.
    """

    holds: Holds
    deciding: tuple[Reading, ...]
    agreeing: int = 1
    pairs: int = 1
    single: bool = False

    @property
    def lacking(self) -> bool:
        """Whether it is not decided because figures are missing."""
        return self.holds is Holds.UNDECIDED and any(reading.found is None for reading in self.deciding)


class StatementRule(Protocol):
    @property
    def cells(self) -> tuple[FigureCell, ...]: ...

    def tell(self, figures: CellFigures) -> StatementAnswer: ...


@dataclass(frozen=True, slots=True)
class CellPair:
    """A cell that should be above another, or a number in the cell's unit."""

    above: FigureCell | float
    below: FigureCell | float

    @property
    def cells(self) -> tuple[FigureCell, ...]:
        return tuple(side for side in (self.above, self.below) if isinstance(side, FigureCell))


@dataclass(frozen=True, slots=True)
class _Compared:
    """A pair with its probabilities if it is not as stated, and if it is; `lead` ranks equally probable pairs."""

    pair: CellPair
    readings: tuple[Reading, ...]
    p_not: float
    p_so: float
    single: bool
    lead: float


@dataclass(frozen=True, slots=True)
class Above:
    """The rule that every pair is as stated."""

    pairs: tuple[CellPair, ...]

    @property
    def cells(self) -> tuple[FigureCell, ...]:
        return tuple(dict.fromkeys(cell for pair in self.pairs for cell in pair.cells))

    def tell(self, figures: CellFigures) -> StatementAnswer:
        compared = [found for pair in self.pairs if (found := _compared(pair, figures)) is not None]
        agreeing = [each for each in compared if each.p_not < SIGNIFICANCE]
        contrary = [each for each in compared if each.p_so < SIGNIFICANCE / len(self.pairs)]
        missing = tuple(Reading(cell, None) for cell in self.cells if not isinstance(figures[cell], Spread))
        single = any(each.single for each in compared)

        def finding(holds: Holds, deciding: tuple[Reading, ...]) -> StatementAnswer:
            return StatementAnswer(holds, deciding, len(agreeing), len(self.pairs), single)

        if contrary:
            return finding(Holds.NO, min(contrary, key=lambda each: (each.p_so, each.lead)).readings)
        if missing:
            return finding(Holds.UNDECIDED, missing)
        weakest = max(compared, key=lambda each: (each.p_not, -each.lead))
        return finding(Holds.YES if len(agreeing) == len(compared) else Holds.UNDECIDED, weakest.readings)


def _compared(pair: CellPair, figures: CellFigures) -> _Compared | None:
    """The pair with its figures; None if one is missing."""
    sides = [figures[side] if isinstance(side, FigureCell) else side for side in (pair.above, pair.below)]
    # A number is a figure without noise.
    spreads = [Spread(2, side, 0.0) if isinstance(side, float) else side for side in sides]
    above, below = spreads
    if not isinstance(above, Spread) or not isinstance(below, Spread):
        return None
    readings = tuple(Reading(cell, figures[cell]) for cell in pair.cells)
    p_not, p_so = p_not_above(above, below), p_not_above(below, above)
    both = abs(above.mean) + abs(below.mean)
    lead = (above.mean - below.mean) / both if both else 0.0
    if p_not is None or p_so is None:
        p_not, p_so = (float(above.mean <= below.mean), float(above.mean >= below.mean))
        return _Compared(pair, readings, p_not, p_so, single=True, lead=lead)
    return _Compared(pair, readings, p_not, p_so, single=False, lead=lead)


@dataclass(frozen=True, slots=True)
class Without:
    """The rule that nothing can be measured in the cell, while others of the part have figures."""

    cell: FigureCell

    @property
    def cells(self) -> tuple[FigureCell, ...]:
        return (self.cell,)

    def tell(self, figures: CellFigures) -> StatementAnswer:
        reading = Reading(self.cell, figures[self.cell])
        if reading.found is not None:
            return StatementAnswer(Holds.NO, (reading,), agreeing=0)
        so = (self.cell.part, self.cell.filesystem) in figures.without
        return StatementAnswer(Holds.YES if so else Holds.UNDECIDED, (reading,), agreeing=int(so))


@dataclass(frozen=True, slots=True)
class Never:
    """The rule that the cells' event never happened, or with `ever` that it happened at least once in each."""

    cells: tuple[FigureCell, ...]
    ever: bool = False

    def tell(self, figures: CellFigures) -> StatementAnswer:
        readings = [Reading(cell, figures[cell]) for cell in self.cells]
        told = {reading.cell: self._so(reading.found) for reading in readings}
        agreeing = sum(so is True for so in told.values())

        def finding(holds: Holds, *, deciding: bool | None) -> StatementAnswer:
            those = tuple(reading for reading in readings if told[reading.cell] is deciding)
            return StatementAnswer(holds, those, agreeing, len(readings))

        if False in told.values():
            return finding(Holds.NO, deciding=False)
        if None in told.values():
            return finding(Holds.UNDECIDED, deciding=None)
        return finding(Holds.YES, deciding=True)

    def _so(self, found: Found | None) -> bool | None:
        return (found.count > 0) is self.ever if isinstance(found, Proportion) else None


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement. `hardware` names the machines of its published figures."""

    text: str
    origin: StatementSource
    rule: StatementRule
    hardware: tuple[str, ...] = ("",)

    @property
    def part(self) -> str:
        return self.rule.cells[0].part


def above(greater: FigureCell, *others: FigureCell | float) -> Above:
    return Above(tuple(CellPair(greater, other) for other in others))


def below(least: FigureCell, *others: FigureCell | float) -> Above:
    return Above(tuple(CellPair(other, least) for other in others))


def rising(cells: Sequence[FigureCell]) -> Above:
    return Above(tuple(CellPair(after, before) for before, after in pairwise(cells)))


def falling(cells: Sequence[FigureCell]) -> Above:
    return rising(cells[::-1])


def all_of(*rules: Above) -> Above:
    return Above(tuple(pair for rule in rules for pair in rule.pairs))
