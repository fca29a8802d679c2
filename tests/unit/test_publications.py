"""The publications: all their figures, statements that hold on their own tables, and cells that do not follow."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from fsjoule.report.publications import doubt_lines
from fsjoule.statistics.spread import Spread
from fsjoule.suites import SUITES
from fsjoule.suites.published.catalogue import PUBLICATIONS, publication_of
from fsjoule.suites.published.cells import FigureCell, PublishedFigure, Quantity
from fsjoule.suites.published.doubts import (
    energies,
    far_deviations,
    impossible_deviations,
    latencies,
    shares,
)
from fsjoule.suites.published.publication import Publication
from fsjoule.suites.published.statements import Holds, Statement, StatementSource

ENERGY = PUBLICATIONS["energy-emmc-2025"]
ELC = PUBLICATIONS["elc2015"]
ZFS = PUBLICATIONS["ext4-zfs-2023"]
HOME = PUBLICATIONS["home-usage-2016"]

# What a publication says and its own table contradicts.
CONTRADICTED = {"Larger blocks improve sequential reads of ext4"}


def test_every_published_suite_has_its_publication() -> None:
    for suite in SUITES.values():
        found = publication_of(suite.name)
        assert (found is None) == (not suite.source)
        assert found is None or found.source == suite.source
    assert publication_of("elc2015/boot") is ELC
    assert publication_of("energy-emmc-extended") is ENERGY
    assert publication_of("nobody's") is None


@pytest.mark.parametrize(
    ("publication", "hardware", "cell", "value"),
    [
        (ENERGY, "", FigureCell("", "btrfs", "randwrite-32k", Quantity.ENERGY), 147.15),
        (ENERGY, "", FigureCell("", "ext4", "read-16k", Quantity.THROUGHPUT), 44.8),
        (ENERGY, "", FigureCell("", "ext4", "read-16k", Quantity.POWER_SD), 0.6),
        (ELC, "", FigureCell("mkfs", "btrfs", "mkfs", Quantity.KERNEL_THREADS), 23),
        (ELC, "", FigureCell("mkfs", "btrfs", "mkfs", Quantity.USED), 0.25),
        (ELC, "", FigureCell("fsck", "f2fs", "fsck", Quantity.SYS), 960),
        (HOME, "", FigureCell("", "udf", "removing", Quantity.UNMOUNT), 156.93),
        (HOME, "", FigureCell("", "udf", "removing", Quantity.TOGETHER), 157.74),
        (ZFS, "iX10-100", FigureCell("test2", "zfs", "read-16jobs", Quantity.IOPS), 25777),
        (ZFS, "iX5-100", FigureCell("test2", "ext4", "random, largest file", Quantity.LATENCY_MAX), 6182),
        (ZFS, "iX5-100", FigureCell("test1", "ext4", "randread", Quantity.THROUGHPUT), 192.6),
        (ZFS, "iX5-100", FigureCell("test3", "raw", "sequential", Quantity.LATENCY_MAX), 6600),
    ],
)
def test_figures_are_in_their_cells(publication: Publication, hardware: str, cell: FigureCell, value: float) -> None:
    found = publication.on(hardware)[cell]
    assert isinstance(found, Spread)
    assert found.mean == value


def test_no_figure_is_missing_and_none_is_there_twice() -> None:
    counts = {name: len(publication.figures) for name, publication in PUBLICATIONS.items()}
    assert counts == {
        "energy-emmc-2025": 24 * 4,
        "elc2015": 5 * 3 + 4 * 3,
        "ext4-zfs-2023": 26,
        "home-usage-2016": 16 * 3,
        "copy-2015": 0,
    }
    for publication in PUBLICATIONS.values():
        assert len({(f.cell, f.hardware) for f in publication.figures}) == len(publication.figures)


def _statements() -> list[tuple[Publication, Statement, str]]:
    return [(p, s, hardware) for p in PUBLICATIONS.values() for s in p.statements for hardware in s.hardware]


@pytest.mark.parametrize(
    ("publication", "statement", "hardware"),
    [
        pytest.param(*each, id=f"{each[1].text} {each[2]}".rstrip())
        for each in _statements()
        if each[1].origin is not StatementSource.OURS
    ],
)
def test_statements_hold_on_the_published_figures(
    publication: Publication, statement: Statement, hardware: str
) -> None:
    finding = statement.rule.tell(publication.on(hardware))
    assert finding.holds is (Holds.NO if statement.text in CONTRADICTED else Holds.YES)


def test_statements_have_a_text_of_their_own_and_are_about_one_part() -> None:
    for publication in PUBLICATIONS.values():
        texts = [statement.text for statement in publication.statements]
        assert len(set(texts)) == len(texts)
        assert all(len({cell.part for cell in s.rule.cells}) == 1 for s in publication.statements)


def test_what_a_publication_only_says_is_not_called_its_table() -> None:
    said = {s.text for p in PUBLICATIONS.values() for s in p.statements if s.origin is StatementSource.SAID}
    assert "nilfs2 has no fsck" in said
    assert said >= CONTRADICTED
    # Nothing of power-loss and dm-flakey was published as a figure that we have.
    ours = [s for p in PUBLICATIONS.values() for s in p.statements if s.origin is StatementSource.OURS]
    assert {s.part for s in ours} <= {"power-loss", "dm-flakey"}


# --------------------------------------------------------------------------------------- cells that do not follow


def test_the_documentation_has_all_doubtful_cells() -> None:
    page = (Path(__file__).parents[2] / "docs/publications.md").read_text()
    for publication in PUBLICATIONS.values():
        assert not publication.statements or f"| {len(publication.statements)}" in page
        for name, text in doubt_lines(publication.doubts):
            assert f"| {name} | {text.split()[1]} " in page


def test_three_energies_do_not_follow_from_power_and_throughput() -> None:
    doubts = [d for d in ENERGY.doubts if d.figure.cell.quantity is Quantity.ENERGY]
    assert [(d.figure.cell.filesystem, d.figure.cell.workload, round(100 * d.off, 2)) for d in doubts] == [
        ("btrfs", "randwrite-16k", -0.47),
        ("btrfs", "randwrite-32k", -0.28),
        ("btrfs", "write-64k", 0.85),
    ]
    # Digits that were not printed could still be the reason: that is said, too.
    assert all("would cover it" in doubt.text for doubt in doubts)


def test_two_deviations_look_like_misprints() -> None:
    doubts = [d for d in ENERGY.doubts if d.figure.cell.quantity is Quantity.POWER_SD]
    found = [(d.figure.cell.filesystem, d.figure.cell.workload, d.figure.printed) for d in doubts]
    assert found == [("ext4", "read-16k", "0.6"), ("btrfs", "read-16k", "0.9")]
    assert all("as we read it" in doubt.text for doubt in doubts)


def _made(energy: str, power: str = "1.25", throughput: str = "50.0", sd: str = "0.07") -> list[PublishedFigure]:
    printed = {
        Quantity.ENERGY: energy,
        Quantity.POWER: power,
        Quantity.THROUGHPUT: throughput,
        Quantity.POWER_SD: sd,
    }
    return [PublishedFigure(FigureCell("", "ext4", "read-16k", q), float(text), text) for q, text in printed.items()]


@pytest.mark.parametrize(
    ("energy", "follows", "covered"),
    [("25.00", True, True), ("25.01", False, True), ("25.10", False, True), ("26.00", False, False)],
)
def test_an_energy_follows_to_its_last_digit(energy: str, *, follows: bool, covered: bool) -> None:
    found = list(energies(_made(energy)))
    assert (not found) is follows
    assert all(("would cover it" in doubt.text) is covered for doubt in found)


def test_deviations_far_from_the_others_of_their_column() -> None:
    alike = [figure for sd in ("0.06", "0.07", "0.08") for figure in _made("25.00", sd=sd)]
    assert not list(far_deviations(alike))
    (doubt,) = far_deviations([*alike, *_made("25.00", sd="0.7")])
    assert doubt.figure.value == 0.7


def _times(mean: str, sd: float, n: int) -> PublishedFigure:
    return PublishedFigure(FigureCell("", "udf", "removing", Quantity.TIME), float(mean), mean, sd, n)


def test_times_cannot_deviate_by_more_than_one_of_them_alone_would() -> None:
    # Three times of which two are zero: the mean is a third, the deviation 3 ** -0.5.
    assert not list(impossible_deviations([_times("1.00", 1.73, 3)]))
    (doubt,) = impossible_deviations([_times("1.00", 1.80, 3)])
    assert doubt.expected == pytest.approx(3**0.5, rel=0.01)
    assert not list(impossible_deviations([_times("1.00", 1.80, 9)]))


def test_the_unmounts_of_nilfs2_after_hashing_were_more_than_three() -> None:
    (doubt,) = HOME.doubts
    assert (doubt.figure.cell.filesystem, doubt.figure.cell.workload) == ("nilfs2", "hash_files")
    assert (doubt.figure.cell.quantity, doubt.figure.value) == (Quantity.UNMOUNT, 3.27)


def test_a_part_is_no_more_than_its_whole() -> None:
    assert not ELC.doubts
    used, total = (PublishedFigure(FigureCell("", "xfs", "mkfs", q), 10, "10") for q in (Quantity.USED, Quantity.TOTAL))
    assert not list(shares([used, total], Quantity.USED, Quantity.TOTAL, "more"))
    less = PublishedFigure(total.cell, 9, "9")
    assert [d.expected for d in shares([used, less], Quantity.USED, Quantity.TOTAL, "more")] == [9]


def test_the_longest_latency_is_no_less_than_the_mean() -> None:
    longest, rate = FigureCell("", "zfs", "a", Quantity.LATENCY_MAX), FigureCell("", "zfs", "b", Quantity.IOPS)
    pairs = [(longest, rate)]
    fast = PublishedFigure(rate, 1000, "1000")
    assert not list(latencies([PublishedFigure(longest, 100, "100"), fast], pairs, in_flight=100))
    (doubt,) = latencies([PublishedFigure(longest, 99, "99"), fast], pairs, in_flight=100)
    assert doubt.expected == 100
    assert not list(latencies([fast], pairs, in_flight=100))


def test_latencies_of_zfs_are_not_those_of_a_full_queue() -> None:
    found = {(d.figure.cell.filesystem, d.figure.cell.workload, d.figure.hardware) for d in ZFS.doubts}
    assert found == {
        ("zfs", "sequential, largest file", "iX10-100"),
        ("zfs", "random, largest file", "iX10-100"),
        ("ext4", "sequential, largest file", "iX10-100"),
    }
    assert all(a.figure.hardware <= b.figure.hardware for a, b in pairwise(ZFS.doubts))
