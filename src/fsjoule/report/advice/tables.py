"""The tables of advice: the figures of each filesystem, where the joules go, what power cuts did.

They are the same in the terminal and on the page. Advice as one JSON document is here, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
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
from fsjoule.verdicts.advice.figures import DAYS_PER_YEAR, FilesystemFigures, Losses

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


def _joules_table(advice: Advice) -> Table:
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


def _cuts_table(advice: Advice) -> Table:
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


def tables(advice: Advice) -> Sequence[Table]:
    found = [figures_table(advice)]
    if advice.scores:
        weights = ", ".join(f"{axis} {weight:g}" for axis, weight in advice.weights.items())
        rows = tuple((Cell(score.label), _cell(score.value, Tone.PLAIN)) for score in advice.scores)
        title = f"Score with your weights ({weights}); 0 is best, 1 the worst of these on every axis"
        found.append(Table(title, advice.evidence.simulated, (_FILESYSTEM, Column("score")), rows))
    return [table for table in (*found, _joules_table(advice), _cuts_table(advice)) if table.rows]


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


ADVICE_SCHEMA: Final = "fsjoule.advice/1"


def to_document(advice: Advice) -> dict[str, object]:
    """Figures with their 95 % intervals, relations and what is missing; a figure that was not measured is null."""
    found = advice.evidence
    return {
        "schema": ADVICE_SCHEMA,
        "simulated": found.simulated,
        "answer": words.headline(advice),
        "profile": {"name": advice.profile_name, **asdict(advice.profile)},
        "board": found.board,
        "storage": found.storage,
        "kernel": found.kernel,
        "runs": list(found.runs),
        "sensible": [one.label for one in advice.sensible],
        "ranked": [one.label for one in advice.ranked],
        "loses_files": [one.label for one in advice.unsafe],
        "filesystems": [_filesystem(one) for one in advice.figures],
        "relations": [
            {
                "axis": one.axis.value,
                "filesystems": [one.one, one.other],
                "less": one.less,
                "same": one.same,
                "ratio": one.ratio,
                "interval": [one.interval.low, one.interval.high] if one.interval else None,
                "more": one.more,
            }
            for one in advice.relations
        ],
        "rule": asdict(advice.rule),
        "criteria": asdict(advice.criteria),
        "weights": {axis.value: weight for axis, weight in advice.weights.items()},
        "scores": {score.label: _estimate(score.value) for score in advice.scores},
        "not_measured": [{"workloads": what, "command": command} for what, command in words.missing(advice)],
        "notes": words.notes(advice),
        "damaged": found.damaged,
    }


def _filesystem(one: FilesystemFigures) -> dict[str, object]:
    return {
        "filesystem": one.label,
        "energy_j_per_day": _estimate(one.energy_j),
        "battery_days": _estimate(one.battery_days),
        "work_s_per_day": _estimate(one.work_s),
        "written_mib_per_day": _estimate(one.written_mib),
        "card_years": _estimate(one.years),
        "wait_p99_s": _estimate(one.wait_s),
        "slowest": one.slowest.value if one.slowest else None,
        "power_cuts": _losses(one.losses),
        "mount_after_cut_s": _estimate(one.mount_s),
        "fsck_s": _estimate(one.fsck_s),
        "parts": [
            {
                "workload": share.part.slug,
                "kind": share.part.kind.value,
                "per_day": share.part.per_day,
                "joules_per_day": share.joules,
                "seconds_per_day": share.seconds,
                "written_mib_per_day": share.written_mib,
            }
            for share in one.shares
        ],
        "not_measured": list(one.missing),
    }


def _losses(losses: Losses | None) -> dict[str, object] | None:
    if losses is None:
        return None
    return {
        "cuts": losses.cuts.n,
        "cuts_with_losses": losses.cuts.count,
        "share_interval": list(losses.cuts.interval()),
        "not_mountable": losses.unmountable,
        "promised_files": losses.promised,
        "lost_per_cut": list(losses.per_cut),
        "fates": {fate.value: count for fate, count in losses.fates.items()},
        "files_lost_per_year": _estimate(losses.per_year),
    }


def _estimate(estimate: Estimate | None) -> dict[str, float | None] | None:
    """An estimate; a bound is null if one boot does not show it, or if it is infinite (a battery that lasts)."""
    if estimate is None:
        return None
    told = {name: value if math.isfinite(value) else None for name, value in asdict(estimate).items()}
    return told | {"low": None, "high": None} if estimate.unknown else told
