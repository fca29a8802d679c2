"""Rules over figures: each says that it holds, that it does not, and that it is not decided."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fsjoule.statistics.spread import Proportion, Spread
from fsjoule.suites.published.cells import CellFigures, FigureCell, Found, Quantity
from fsjoule.suites.published.statements import (
    Holds,
    Never,
    Statement,
    StatementRule,
    StatementSource,
    Without,
    above,
    all_of,
    below,
    falling,
    rising,
)


def cell(filesystem: str, workload: str = "read-16k") -> FigureCell:
    return FigureCell("part", filesystem, workload, Quantity.THROUGHPUT)


def tell(rule: StatementRule, found: Mapping[FigureCell, Found], without: set[tuple[str, str]] | None = None) -> Holds:
    return rule.tell(CellFigures(found, frozenset(without or ()))).holds


EXT4, BTRFS, XFS = cell("ext4"), cell("btrfs"), cell("xfs")


def spread(mean: float, sd: float | None = 0.1, n: int = 3) -> Spread:
    return Spread(n if sd is not None else 1, mean, sd)


@pytest.mark.parametrize(
    ("ext4", "btrfs", "holds"),
    [
        (spread(12), spread(10), Holds.YES),
        (spread(10), spread(12), Holds.NO),
        (spread(10), spread(10), Holds.UNDECIDED),
        # The difference is below the standard error of 0.816.
        (spread(10.7, 1.0), spread(10, 1.0), Holds.UNDECIDED),
        (spread(10, 1.0), spread(10.7, 1.0), Holds.UNDECIDED),
        # It is 1.8 times the standard error: three boots could do that by chance.
        (spread(11.5, 1.0), spread(10, 1.0), Holds.UNDECIDED),
        (spread(13.0, 1.0), spread(10, 1.0), Holds.YES),
        (spread(12, None), spread(10, None), Holds.YES),
        (spread(10, None), spread(12, None), Holds.NO),
        (spread(10, None), spread(10, None), Holds.UNDECIDED),
        (spread(12, 0.0), spread(11.99, 0.0), Holds.YES),
    ],
)
def test_one_figure_above_another(ext4: Spread, btrfs: Spread, holds: Holds) -> None:
    found: dict[FigureCell, Found] = {EXT4: ext4, BTRFS: btrfs}
    assert tell(above(EXT4, BTRFS), found) is holds
    assert tell(below(BTRFS, EXT4), found) is holds


def test_the_finding_shows_the_figures_that_decide() -> None:
    found: dict[FigureCell, Found] = {EXT4: spread(12), BTRFS: spread(10), XFS: spread(11.9)}
    close = above(EXT4, BTRFS, XFS).tell(CellFigures(found))
    assert (close.holds, close.agreeing, close.pairs) == (Holds.UNDECIDED, 1, 2)
    assert [reading.cell for reading in close.deciding] == [EXT4, XFS]
    wrong = above(XFS, EXT4, BTRFS).tell(CellFigures({**found, EXT4: spread(20)}))
    assert (wrong.holds, [reading.found for reading in wrong.deciding]) == (Holds.NO, [found[XFS], spread(20)])


def test_what_is_missing_is_named_unless_the_rest_decides_already() -> None:
    found: dict[FigureCell, Found] = {EXT4: spread(12), BTRFS: spread(10)}
    finding = above(EXT4, BTRFS, XFS).tell(CellFigures(found))
    assert (finding.holds, finding.lacking) == (Holds.UNDECIDED, True)
    assert [reading.cell for reading in finding.deciding] == [XFS]
    assert tell(above(BTRFS, EXT4, XFS), found) is Holds.NO
    assert tell(above(EXT4, BTRFS), {}) is Holds.UNDECIDED


def test_single_figures_are_said_to_be_single() -> None:
    found: dict[FigureCell, Found] = {EXT4: spread(12, None), BTRFS: spread(10)}
    finding = above(EXT4, BTRFS).tell(CellFigures(found))
    assert (finding.holds, finding.single) == (Holds.YES, True)
    assert not above(EXT4, BTRFS).tell(CellFigures({EXT4: spread(12), BTRFS: spread(10)})).single


@pytest.mark.parametrize(
    ("means", "rises", "falls"),
    [
        ((1.0, 2.0, 3.0), Holds.YES, Holds.NO),
        ((3.0, 2.0, 1.0), Holds.NO, Holds.YES),
        ((1.0, 3.0, 2.0), Holds.NO, Holds.NO),
        ((1.0, 1.0, 2.0), Holds.UNDECIDED, Holds.NO),
    ],
)
def test_figures_rise_and_fall(means: tuple[float, ...], rises: Holds, falls: Holds) -> None:
    cells = [cell("ext4", f"read-{kib}k") for kib in (16, 32, 64)]
    found: dict[FigureCell, Found] = dict(zip(cells, (spread(mean, 0.01) for mean in means), strict=True))
    assert tell(rising(cells), found) is rises
    assert tell(falling(cells), found) is falls


def test_a_figure_against_a_number() -> None:
    assert tell(above(EXT4, 10.0), {EXT4: spread(12)}) is Holds.YES
    assert tell(above(EXT4, 10.0), {EXT4: spread(8)}) is Holds.NO
    assert tell(above(EXT4, 10.0), {EXT4: spread(10.1, 1.0)}) is Holds.UNDECIDED
    assert tell(above(EXT4, 10.0), {}) is Holds.UNDECIDED


def test_one_of_many_pairs_is_the_wrong_way_round_by_chance_more_easily() -> None:
    """A difference that decides alone does not when it is one of twelve."""
    pairs = [(cell("ext4", str(i)), cell("btrfs", str(i))) for i in range(12)]
    found: dict[FigureCell, Found] = {}
    found |= {high: spread(12) for high, _ in pairs} | {low: spread(10) for _, low in pairs}
    found[pairs[0][0]], found[pairs[0][1]] = spread(10, 1.0), spread(12.2, 1.0)
    assert tell(above(*pairs[0]), found) is Holds.NO
    rule = all_of(*(above(*pair) for pair in pairs))
    assert rule.tell(CellFigures(found)).agreeing == 11
    assert tell(rule, found) is Holds.UNDECIDED
    found[pairs[0][1]] = spread(20, 1.0)
    assert tell(rule, found) is Holds.NO


def test_what_a_filesystem_has_not() -> None:
    rule = Without(EXT4)
    assert tell(rule, {}, {("part", "ext4")}) is Holds.YES
    assert tell(rule, {EXT4: spread(1)}) is Holds.NO
    assert tell(rule, {}) is Holds.UNDECIDED
    assert tell(rule, {}, {("other part", "ext4")}) is Holds.UNDECIDED


def test_what_never_and_what_ever_happens() -> None:
    never, ever = Never((EXT4, BTRFS)), Never((EXT4, BTRFS), ever=True)
    none, some = Proportion(0, 15), Proportion(2, 15)
    assert (tell(never, {EXT4: none, BTRFS: none}), tell(ever, {EXT4: none, BTRFS: none})) == (Holds.YES, Holds.NO)
    assert (tell(never, {EXT4: none, BTRFS: some}), tell(ever, {EXT4: none, BTRFS: some})) == (Holds.NO, Holds.NO)
    assert (tell(never, {EXT4: some, BTRFS: some}), tell(ever, {EXT4: some, BTRFS: some})) == (Holds.NO, Holds.YES)
    assert (tell(never, {EXT4: none}), tell(ever, {EXT4: some})) == (Holds.UNDECIDED, Holds.UNDECIDED)
    finding = never.tell(CellFigures({EXT4: none, BTRFS: some}))
    assert [(reading.cell, reading.found) for reading in finding.deciding] == [(BTRFS, some)]


def test_a_statement_is_about_one_part() -> None:
    assert Statement("so", StatementSource.TABLE, above(EXT4, BTRFS)).part == "part"
