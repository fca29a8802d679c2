"""Tables in a given width: in one piece, and without a cut figure."""

from __future__ import annotations

import io

import pytest
from results_factory import make_run
from rich.console import Console

from fsjoule.model.metrics import TIMED_METRICS
from fsjoule.report.findings import gate_table
from fsjoule.report.table import Cell, Column, Table, listing, shortened, told_apart, word
from fsjoule.report.terminal import print_table
from fsjoule.statistics.gate import SequentialState
from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.ratios import Interval
from fsjoule.store.finding import Finding, Subject
from fsjoule.suites import suite

KERNEL = "6.12.107-next-20260101-00012-gabcdef012345-with-a-very-long-local-version"
VARIANTS = [f"ext4:journal_data+noatime+commit={n}" for n in range(40)]
COLUMNS = (
    Column("operation", is_figure=False, head=True),
    Column("filesystem", is_figure=False, head=True),
    Column("kernel", is_figure=False, head=True),
    Column("throughput", "MiB/s"),
    Column("published", "MiB/s", joins=True, optional=True),
    Column("ratio", joins=True),
    Column("IOPS", optional=True),
    Column("energy", "mJ/MiB"),
    Column("write ampl.", optional=True),
)


def wide_table() -> Table:
    figures = [Cell("12.34", "± 0.12"), Cell("11.9"), Cell("1.04"), Cell("789"), Cell("98.1", "± 1.2"), Cell("1.25")]
    rows = tuple((Cell("randwrite 16 KiB"), Cell(name), Cell(KERNEL), *figures) for name in VARIANTS)
    return Table("Throughput and energy", simulated=True, columns=COLUMNS, rows=rows)


def printed(table: Table, *, wide: bool = False) -> list[str]:
    sink = io.StringIO()
    print_table(Console(file=sink, width=80), table, wide=wide)
    return sink.getvalue().splitlines()


def test_long_names_and_forty_variants_fit_80_columns_with_a_line_each() -> None:
    lines = printed(wide_table())
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if "12.34 ± 0.12" in line]
    assert len(rows) == 40
    assert all("98.1 ± 1.2" in row for row in rows)
    assert any("left out at this width: published, IOPS, write ampl. (--wide shows all)" in line for line in lines)


def test_wide_shows_every_column_and_whole_names() -> None:
    text = "\n".join(printed(wide_table(), wide=True))
    assert all(name in text for name in VARIANTS)
    assert KERNEL in text
    assert "write ampl." in text
    assert "left out" not in text


def test_a_table_that_fits_is_left_as_it_is() -> None:
    table = listing((word("name"), Column("MiB"), word("path", optional=True)), [("card", "12", "/a/path")])
    fitted = table.fitted(78)
    assert (fitted.table, fitted.left_out, fitted.is_shortened) == (table, (), False)


def test_a_path_is_whole_or_left_out() -> None:
    table = listing((word("name"), Column("MiB"), word("path", optional=True)), [("card", "12", "/" + 80 * "p")])
    assert table.fitted(78).left_out == ("path",)


@pytest.mark.parametrize("room", [1, 20, 40, 78])
def test_no_figure_is_ever_cut(room: int) -> None:
    for row in wide_table().fitted(room).table.rows:
        assert "12.34 ± 0.12" in [cell.joined for cell in row]


def test_both_ends_of_a_shortened_name_stay() -> None:
    assert shortened("ext4:journal_data+commit=60", 12) == "ext4:j…it=60"
    assert shortened("ext4", 12) == "ext4"


def segments(*further: str) -> Table:
    """A gate on power-on's series, in the figures that it judges."""
    state = SequentialState(Outcome.UNDECIDED, more=False, pairs=4, ratio=0.9)
    findings = [
        Finding(
            subject=Subject(name, make_run().measurements[0].series, simulated=True, label=f"ext4 {name}"),
            metric=metric,
            outcome=state.decision,
            ratio=state.ratio,
            interval=Interval(0.8912, 0.9123),
            matters=0.02,
            baseline=10.0,
            candidate=9.0,
            boots=(4, 4),
            basis=state,
        )
        for name in (*(each.identity for each in suite("power-on").workloads), *further)
        for metric in TIMED_METRICS
    ]
    return gate_table("18 figures", findings, simulated=True)


def test_segments_of_a_boot_are_told_apart_in_80_columns() -> None:
    lines = printed(segments())
    assert max(map(len, lines)) <= 80
    assert "18 figures, ext4  simulated" in lines
    names = [line.split()[0] for line in lines if " duration " in line]
    assert names == ["power-on", *(f"power-on-{name}" for name in ("power", "spl", "u-boot", "kernel", "init"))]
    assert "left out at this width" in " ".join(lines)


def test_two_kinds_of_one_segment_keep_what_they_differ_in() -> None:
    kernel, init = (each.identity for each in suite("power-on").workloads[-2:])
    both = segments("power-on-init 0123abcd")
    assert {*both.fitted(90).table.heads} >= {init, "power-on-init 0123abcd", "power-on-kernel"}
    assert f"ext4 {kernel}" in "\n".join(printed(both, wide=True))


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["ext4 read-16k", "ext4 write-16k"], ("ext4", ["read-16k", "write-16k"])),
        (["ext4 read-16k", "btrfs read-16k"], ("", ["ext4 read-16k", "btrfs read-16k"])),
        (["ext4 mkfs", "ext4 mkfs"], ("ext4", ["mkfs", "mkfs"])),
        (["ext4", "ext4 on dm-crypt"], ("", ["ext4", "ext4 on dm-crypt"])),
        (["ext4 a 0123abcd", "ext4 a 4567cdef"], ("ext4 a", ["0123abcd", "4567cdef"])),
        ([], ("", [])),
    ],
)
def test_what_all_names_begin_with_is_dropped(names: list[str], told: tuple[str, list[str]]) -> None:
    assert told_apart(names) == told
