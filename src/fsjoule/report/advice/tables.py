"""The tables of advice: the figures of each filesystem, where the joules go, what power cuts did.

They are the same in the terminal and on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.console import Console, ConsoleRenderable
from rich.text import Text

from fsjoule.model import FileFate
from fsjoule.report.advice import words
from fsjoule.report.advice.words import MANY_DAYS, short_figure
from fsjoule.report.numbers import ABSENT
from fsjoule.report.table import Cell, Column, Table, Tone
from fsjoule.report.terminal import footnote, named_lines, room_of, table_lines
from fsjoule.statistics.estimate import Estimate
from fsjoule.verdicts.advice.advise import Advice, Axis
from fsjoule.verdicts.advice.figures import DAYS_PER_YEAR, FilesystemFigures

_FILESYSTEM: Final = Column("filesystem", is_figure=False, head=True)
_MS: Final = 1e3
_SIDE_BY_SIDE: Final = 4  # filesystems, for columns of their own

_Get = Callable[[FilesystemFigures], Estimate | None]


def figures_table(advice: Advice) -> Table:
    """A row per filesystem, the first choice first; green is less than another, and none less; red: another is less."""
    battery, card = advice.profile.battery, advice.profile.card
    columns: list[tuple[Column, _Get, Axis | None]] = [
        (Column("energy", "J a day"), lambda one: one.energy_j, Axis.ENERGY),
        (Column("files lost", "a year"), lambda one: one.losses.per_year if one.losses else None, Axis.LOSS),
        (Column("wait, p99", "ms"), lambda one: _in_ms(one.wait_s), Axis.WAIT),
        (Column("written", "MiB a day", optional=True), lambda one: one.written_mib, Axis.WEAR),
    ]
    if battery:
        in_years = all(one.battery_days.value > MANY_DAYS for one in advice.figures if one.battery_days)
        unit, days = ("years", DAYS_PER_YEAR) if in_years else ("days", 1.0)
        columns.insert(1, (Column("battery", unit, optional=True), lambda one: _over(one.battery_days, days), None))
    if card:
        columns.append((Column("card", "years", optional=True), lambda one: one.years, None))
    columns.append((Column("mount after a cut", "ms", optional=True), lambda one: _in_ms(one.mount_s), Axis.MOUNT))
    columns.append((Column("fsck", "ms", optional=True), lambda one: _in_ms(one.fsck_s), None))
    used = [each for each in columns if any(each[1](one) for one in advice.figures)]
    rows = [
        (Cell(one.label), *(_cell(get(one), _tone(advice, axis, one)) for _, get, axis in used))
        for one in advice.ranked
    ]
    heads = (_FILESYSTEM, *(column for column, _, _ in used))
    return Table("A day and a year", advice.evidence.simulated, heads, tuple(rows) if used else ())


def _over(estimate: Estimate | None, unit: float) -> Estimate | None:
    return estimate.mapped(lambda value: value / unit) if estimate else None


def _in_ms(estimate: Estimate | None) -> Estimate | None:
    return _over(estimate, 1 / _MS)


def _cell(estimate: Estimate | None, tone: Tone) -> Cell:
    if estimate is None:
        return Cell(ABSENT)
    low, high = short_figure(estimate.low), short_figure(estimate.high)
    return Cell(short_figure(estimate.value), "(one boot)" if estimate.unknown else f"({low} to {high})", tone)


def _tone(advice: Advice, axis: Axis | None, one: FilesystemFigures) -> Tone:
    if axis is None:
        return Tone.PLAIN
    if advice.less(axis, one.label):
        return Tone.BAD
    beats = any(one.label in advice.less(axis, other.label) for other in advice.figures)
    return Tone.GOOD if beats else Tone.PLAIN


def joules_table(advice: Advice) -> Table:
    """Joules a day by part, and idle: why one filesystem takes more than another. Many filesystems have a row each."""
    known = [one for one in advice.figures if one.energy_j and one.shares]
    parts = [share.part for share in known[0].shares] if known else []
    rows: list[tuple[Cell, ...]] = []
    for i, part in enumerate(parts):
        joules = [one.shares[i].joules for one in known]
        rows.append((Cell(part.kind.value), Cell(part.slug), *(Cell(short_figure(each)) for each in joules)))
    if rows and advice.profile.idle_share:
        idle = [(one.energy_j.value if one.energy_j else 0.0) - sum(s.joules for s in one.shares) for one in known]
        rows.append((Cell("idle"), Cell(""), *(Cell(short_figure(each)) for each in idle)))
    heads = (Column("part", is_figure=False, head=True), Column("workload", is_figure=False, head=True))
    columns = (*heads, *(Column(one.label, "J a day") for one in known))
    if len(known) > _SIDE_BY_SIDE:
        columns = (
            _FILESYSTEM,
            *(Column(row[1].text or row[0].text, "J a day", optional=i > 0) for i, row in enumerate(rows)),
        )
        rows = [(Cell(one.label), *(row[len(heads) + i] for row in rows)) for i, one in enumerate(known)]
    return Table("Where the joules go", advice.evidence.simulated, columns, tuple(rows))


def cuts_table(advice: Advice) -> Table:
    """What power cuts did to files whose fsync had returned."""
    known = [(one, one.losses) for one in advice.figures if one.losses]
    rows: list[tuple[Cell, ...]] = []
    fates = [fate for fate in FileFate if any(losses.fates.get(fate) for _, losses in known)]
    for one, losses in known:
        low, high = losses.cuts.interval()
        rows.append(
            (
                Cell(one.label),
                Cell(f"{losses.cuts.count} of {losses.cuts.n}", tone=Tone.BAD if losses.cuts.count else Tone.PLAIN),
                Cell(f"{100 * low:.1f} to {100 * high:.1f} %"),
                Cell(str(losses.unmountable)),
                Cell(str(losses.promised)),
                *(Cell(str(losses.fates.get(fate, 0))) for fate in fates),
            )
        )
    columns = (
        _FILESYSTEM,
        Column("cuts with losses"),
        Column("95 %"),
        Column("not mountable"),
        Column("files"),
        *(Column(fate.value, optional=True) for fate in fates),
    )
    return Table("Power cuts: files whose fsync had returned", advice.evidence.simulated, columns, tuple(rows))


def scores_table(advice: Advice) -> Table:
    weights = ", ".join(f"{axis} {weight:g}" for axis, weight in advice.weights.items())
    rows = tuple((Cell(score.label), _cell(score.value, Tone.PLAIN)) for score in advice.scores)
    title = f"Score with your weights ({weights}); 0 is best, 1 the worst of these on every axis"
    return Table(title, advice.evidence.simulated, (_FILESYSTEM, Column("score")), rows)


def tables(advice: Advice) -> Sequence[Table]:
    found = [figures_table(advice), *([scores_table(advice)] if advice.scores else [])]
    return [table for table in (*found, joules_table(advice), cuts_table(advice)) if table.rows]


def print_advice(console: Console, advice: Advice, *, wide: bool = False) -> None:
    for renderable in _renderables(advice, room_of(console, wide=wide)):
        console.print(renderable, crop=False)
    for what, command in words.missing(advice):
        # Commands are for copying: neither wrapped nor coloured.
        console.print(f"\nnot measured: {what}", style="yellow")
        console.print(f"  {command}", soft_wrap=True, markup=False, highlight=False)


def _renderables(advice: Advice, room: int | None) -> Iterator[ConsoleRenderable]:
    yield Text(words.headline(advice), style="bold")
    for table in tables(advice):
        yield from table_lines(table, room)
    yield footnote(words.rules(advice))
    sections = {
        "Ruled out": words.ruled_out(advice),
        "Which is less": words.relations(advice),
        "The question": words.facts(advice),
        "Damaged, left out": list(advice.evidence.damaged.items()),
    }
    for title, lines in sections.items():
        if lines:
            yield named_lines(title, lines)
    if notes := words.notes(advice):
        yield Text("\nTo know", style="bold yellow")
        yield from map(Text, notes)
