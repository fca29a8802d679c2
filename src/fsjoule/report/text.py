"""A run's summary in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Console, ConsoleRenderable
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from fsjoule.model import RunStatus
from fsjoule.report.facts import kernels_text
from fsjoule.report.findings import rest_text
from fsjoule.report.numbers import samples_text, seconds_text, share_text
from fsjoule.report.summary import Summary
from fsjoule.report.tables import (
    FOOTNOTE,
    Table,
    Tone,
    fio_footnote,
    fio_table,
    kernel_tables,
    projected_footnote,
    projected_table,
    published_table,
    time_table,
    timed_table,
)

if TYPE_CHECKING:
    from fsjoule.report.publications import SuitePage
    from fsjoule.verdicts.finding import Finding

_GAP: Final = 2
# Nobody reads more or longer lines in a terminal, and laying them out takes long.
_MOST_LINES: Final = 200
_LONGEST_REASON: Final = 4000
_TONES: Final = {Tone.PLAIN: "", Tone.GOOD: "green", Tone.BAD: "bold red", Tone.DOUBT: "yellow"}


def print_summary(console: Console, summary: Summary, *, folder: Path | None = None, page: Path | None = None) -> None:
    """Print all tables of a run, the measurements left out and why, and the paths of folder and page."""
    for renderable in _renderables(summary, console.width):
        console.print(renderable, crop=False)
    for name, path in (("run folder", folder), ("report", page)):
        if path is not None:
            # Paths are for copying: neither wrapped nor coloured.
            console.print(f"{name:<11} {path}", soft_wrap=True, markup=False, highlight=False)


def _renderables(summary: Summary, width: int) -> Iterator[ConsoleRenderable]:
    yield _headline(summary)
    if summary.suite is not None:
        # Its charts take longer to import than most runs to show.
        from fsjoule.report.publications import suite_page  # noqa: PLC0415

        if (suite := suite_page(summary)) is not None:
            yield from _suite(suite, width)
    if summary.fio:
        yield from rich_table(fio_table(summary), width)
        yield footnote(fio_footnote(summary))
    projected = projected_table(summary)
    if projected is not None:
        yield from rich_table(projected, width)
        yield footnote(projected_footnote(summary))
    published = published_table(summary)
    if published is not None and summary.suite is None:
        yield from rich_table(published, width)
        yield footnote(f"published: {'; '.join(summary.sources)}. Ratio: measured over published.")
    if summary.timed:
        yield from rich_table(timed_table(summary), width)
    if kernels := kernel_tables(summary):
        for table in kernels:
            yield from rich_table(table, width)
        yield footnote(FOOTNOTE)
    yield from _time(summary, width)
    yield from _left_out(summary)


def _time(summary: Summary, width: int) -> Iterator[ConsoleRenderable]:
    if not summary.phases:
        return
    yield from rich_table(time_table(summary), width)
    if summary.board_on_s:
        on, share = seconds_text(summary.board_on_s), share_text(summary.utilisation)
        yield footnote(f"board utilisation: board on for {on}, measuring for {share} of it")


def _suite(suite: SuitePage, width: int) -> Iterator[ConsoleRenderable]:
    yield Text(f"\n{suite.source}", style="italic")
    for remark in suite.remarks:
        yield footnote(remark)
    for section in suite.sections:
        for table in section.tables:
            yield from rich_table(table, width)
        for note in section.notes if section.tables else ():
            yield footnote(note)
    if suite.statements:
        lines = [
            (Text(line.holds.value, _TONES[line.tone]), "\n".join((line.text, *line.details)))
            for line in suite.statements
        ]
        yield named_lines(f"Statements: {suite.tally}", lines, "")
        from fsjoule.report.publications import NOTE  # noqa: PLC0415 - as above

        yield footnote(NOTE)
    if suite.doubts:
        yield named_lines("Published cells that do not follow from others", list(suite.doubts), "")


def _headline(summary: Summary) -> Text:
    run = summary.run
    board = run.board.name if run.board else "board"
    text = Text(f"\n{run.plan.suite} on {board}, {kernels_text(run)}", style="bold")
    if summary.simulated:
        text.append("  simulated", style="bold yellow")
    valid = summary.measured - len(summary.invalid)
    text.append(f"\n{summary.measured} of {len(run.plan.entries)} measurements taken, {valid} valid", style="not bold")
    if summary.samples.expected:
        text.append(f"; {samples_text(summary.samples)}", style="not bold")
    if run.lab is not None:
        meter = f"; meter {run.meter.serial_number}" if run.meter else ""
        text.append(f"\nplace {run.lab.place}, exporter {run.lab.exporter_names}{meter}", style="not bold")
    if run.job is not None:
        pulled = "; pulled from its log, without traces" if run.job.pulled else ""
        text.append(f"\nLAVA {run.job.text}{pulled}", style="not bold")
    if run.status is RunStatus.ABORTED:
        text.append(f"\naborted: {run.abort_reason or 'no reason was recorded'}", style="bold red")
    if run.resumed_utc:
        text.append(f"\nresumed: {', '.join(run.resumed_utc)}", style="not bold")
    if run.ended_early:
        text.append(f"\nended early: {run.ended_early}", style="not bold")
    return text


def finding_lines(table: Table, rest: Sequence[Finding[object]], width: int) -> Iterator[ConsoleRenderable]:
    """The table with the columns that fit, and the names of those left out."""
    fitted = table.fitted(width - 2, _GAP)
    yield Text("")
    yield _rich_part(fitted, width, wraps=True)
    left_out = [column.name for column in table.columns if column not in fitted.columns]
    if rest:
        yield Text(f"and {rest_text(rest)} (--all shows them)")
    if left_out:
        yield footnote(f"left out at this width: {', '.join(left_out)}")


def rich_table(table: Table, width: int) -> Iterator[ConsoleRenderable]:
    """The table, or several narrower ones: no figure is ever cut off."""
    for part in table.split(width - 2, _GAP):  # the box has a margin of one character on either side
        yield Text("")
        yield _rich_part(part, width)


def _rich_part(table: Table, width: int, *, wraps: bool = False) -> ConsoleRenderable:
    title = Text(table.title, style="bold")
    if table.simulated:
        title.append("  simulated", style="yellow")
    shown = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    # A table that is too wide is left to the terminal to wrap, which is better than cut-off figures.
    needed = sum(table.widths(_GAP)) - _GAP + 2
    shown.width = needed if needed > width and not wraps else None
    for column in table.columns:
        name = f"{column.name}\n{column.unit}" if column.unit else column.name
        if column.is_figure:
            shown.add_column(name, justify="right", no_wrap=True)
        else:
            may_wrap = wraps and column is table.columns[0]
            shown.add_column(name, no_wrap=not may_wrap, overflow="fold" if may_wrap else "ellipsis")
    for i, row in enumerate(table.rows):
        goes_on = i > 0 and i not in table.breaks and row[0] == table.rows[i - 1][0]
        first = "" if goes_on else row[0].joined
        cells = [Text(first, _TONES[row[0].tone]), *(Text(cell.joined, _TONES[cell.tone]) for cell in row[1:])]
        shown.add_row(*cells, end_section=i + 1 in table.breaks)
    return shown


def footnote(text: str) -> Text:
    return Text(text, style="dim")


def _left_out(summary: Summary) -> Iterator[ConsoleRenderable]:
    lines = [(f"{m.number:02d} {m.slug}", "; ".join(m.invalid_reasons)) for m in summary.invalid]
    if lines:
        yield named_lines(f"{len(lines)} invalid, not in any mean", lines, "red")
    if summary.damaged:
        yield named_lines(f"{len(summary.damaged)} damaged, left out", list(summary.damaged.items()), "red")
    if summary.remarks:
        numbers = [(", ".join(map(str, remark.numbers)), remark.text) for remark in summary.remarks]
        yield named_lines("Remarks", numbers, "yellow")


def named_lines(title: str, lines: Sequence[tuple[str | Text, str]], style: str) -> ConsoleRenderable:
    shown = RichTable(
        title=Text(title, style=f"bold {style}".rstrip()),
        title_justify="left",
        box=None,
        show_header=False,
        pad_edge=False,
    )
    shown.add_column(no_wrap=True)
    shown.add_column(overflow="fold")
    for name, reason in lines[:_MOST_LINES]:
        told = reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]} …"
        shown.add_row(Text(name) if isinstance(name, str) else name, Text(told))
    if len(lines) > _MOST_LINES:
        shown.add_row(Text(f"and {len(lines) - _MOST_LINES} more"))
    return Padding(shown, (1, 0, 0, 0))
