"""Tables in a given width: in one piece, and without a cut figure."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fsjoule.report.table import Cell, Column, Table, listing, shortened, word
from fsjoule.report.terminal import print_table

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
