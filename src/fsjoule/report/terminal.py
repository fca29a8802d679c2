"""Tables and lists of a report on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich import box
from rich.console import Console, ConsoleRenderable
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from fsjoule.report.table import GAP, Table, Tone

TONES: Final = {Tone.PLAIN: "", Tone.GOOD: "green", Tone.BAD: "bold red", Tone.DOUBT: "yellow"}
# Nobody reads more or longer lines in a terminal, and laying them out takes long.
_MOST_LINES: Final = 200
_LONGEST_REASON: Final = 4000
_LONGEST_NAME: Final = 30
_MARGIN: Final = 2  # of the box, a character on either side


def room_of(console: Console, *, wide: bool) -> int | None:
    """The characters that a table may take; None if it may take as many as it needs."""
    return None if wide else console.width


def print_table(console: Console, table: Table, *, wide: bool = False) -> None:
    """Print a list of things: in one piece, with the columns that fit, or `wide` with all."""
    for renderable in table_lines(table, room_of(console, wide=wide)):
        console.print(renderable, crop=False)


def table_lines(table: Table, room: int | None, rest: str = "") -> Iterator[ConsoleRenderable]:
    """The table in one piece, `rest` (what it does not list), and what it leaves out for want of room."""
    left_out: tuple[str, ...] = ()
    is_shortened = False
    shown = table
    if room is not None:
        fitted = table.fitted(room - _MARGIN)
        shown, left_out, is_shortened = fitted.table, fitted.left_out, fitted.is_shortened
    if shown.title:
        title = Text(f"\n{shown.title}", style="bold")
        if table.simulated:
            title.append("  simulated", style="yellow")
        yield title
    yield _drawn(shown)
    if rest:
        yield Text(rest)
    if left_out:
        yield footnote(f"left out at this width: {', '.join(left_out)} (--wide shows all)")
    elif is_shortened:
        yield footnote("shortened at this width: --wide shows whole names")


def _drawn(table: Table) -> RichTable:
    widths = table.widths()
    shown = RichTable(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        # Else rich would cut figures of a table that is wider than the terminal, which wraps it better.
        width=sum(width + GAP for width in widths) - GAP + _MARGIN,
    )
    for column in table.columns:
        name = f"{column.name}\n{column.unit}" if column.unit else column.name
        shown.add_column(name, justify="right" if column.is_figure else "left", no_wrap=True)
    for i, row in enumerate(table.rows):
        goes_on = i > 0 and i not in table.breaks and row[0] == table.rows[i - 1][0] and table.columns[0].head
        first = "" if goes_on else row[0].joined
        cells = [Text(first, TONES[row[0].tone]), *(Text(cell.joined, TONES[cell.tone]) for cell in row[1:])]
        shown.add_row(*cells, end_section=i + 1 in table.breaks)
    return shown


def footnote(text: str) -> Text:
    return Text(text, style="dim")


def named_lines(title: str, lines: Sequence[tuple[str | Text, str]], style: str = "") -> ConsoleRenderable:
    """Texts beside their names, under a title. Both go on in further lines where they are long."""
    shown = RichTable(
        title=Text(title, style=f"bold {style}".rstrip()) if title else None,
        title_justify="left",
        box=None,
        show_header=False,
        pad_edge=False,
    )
    shown.add_column(overflow="fold", max_width=_LONGEST_NAME)
    shown.add_column(overflow="fold")
    for name, reason in lines[:_MOST_LINES]:
        told = reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]} …"
        shown.add_row(Text(name) if isinstance(name, str) else name, Text(told))
    if len(lines) > _MOST_LINES:
        shown.add_row(Text(f"and {len(lines) - _MOST_LINES} more"))
    return Padding(shown, (1 if title else 0, 0, 0, 0), expand=False)
