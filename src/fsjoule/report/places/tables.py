"""A lab's words and tables, once for terminal and page, and the lab in the terminal and as a JSON document."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console

from fsjoule.model import RunStatus
from fsjoule.model.labels import counted
from fsjoule.model.places import Lab, LabPlace, PlaceHealth, PlaceRun, Waiting
from fsjoule.report.numbers import ABSENT, share_text
from fsjoule.report.table import Cell, Column, Table, Tone, assembled, listing, shortened, word
from fsjoule.report.terminal import footnote, print_table

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86400
_TONES: Final = {
    PlaceHealth.GOOD: Tone.GOOD,
    PlaceHealth.DOUBTFUL: Tone.DOUBT,
    PlaceHealth.BAD: Tone.BAD,
    PlaceHealth.MAINTENANCE: Tone.DOUBT,
}
_LONGEST_REASON: Final = 160


def places(lab: Lab) -> Table:
    """One row per place: its state, who has it, and how it was used."""
    columns = (
        word("place"),
        word("state"),
        word("held by"),
        word("why", optional=True),
        Column("faults", "in a row"),
        Column("used", "day"),
        Column("used", "week"),
        Column("efficiency", "week"),
        Column("runs", "week"),
        Column("aborted", "week"),
    )
    return _named("Places", listing(columns, [_place(place, lab.looked_s) for place in lab.places]))


def _place(place: LabPlace, now_s: float) -> tuple[str | Cell, ...]:
    week = place.usage_in("week")
    return (
        place.name,
        Cell(place.health.value, tone=_TONES.get(place.health, Tone.PLAIN)),
        _holder(place, now_s),
        _why(place, now_s),
        Cell(str(place.faults_in_a_row or ABSENT), tone=Tone.BAD if place.faults_in_a_row else Tone.PLAIN),
        share_text(place.usage_in("day").used),
        share_text(week.used),
        share_text(week.efficiency),
        str(week.complete + week.aborted),
        Cell(str(week.aborted), tone=Tone.BAD if week.aborted else Tone.PLAIN),
    )


def queue(lab: Lab) -> Table:
    """Who waits, the next to be served first."""
    columns = (word("waits"), word("for"), word("could get"), Column("priority"), Column("waiting", "for"))
    rows = [
        (
            each.owner,
            _wanted(each),
            ", ".join(each.places) or "no place has these tags",
            f"{each.priority:g}",
            span(lab.looked_s - each.since_s),
        )
        for each in lab.queue
    ]
    return _named("Waiting", listing(columns, rows))


def faults(lab: Lab) -> Table:
    """Faults of the last week by part, for places that had some."""
    columns = (word("place"), *(Column(part) for part in lab.parts))
    rows = [
        (place.name, *(str(place.usage_in("week").faults.get(part, ABSENT)) for part in lab.parts))
        for place in lab.places
        if place.usage_in("week").faults
    ]
    return _named("Faults in the last week", listing(columns, rows))


def last_runs(lab: Lab) -> Table:
    """The last runs of each place, the newest first."""
    runs = [(place.name, run) for place in lab.places for run in place.last_runs]
    names = [name for name, _ in runs]
    columns = [
        (word("place"), [Cell(name) for name in names]),
        (word("began"), [Cell(_ago(lab.looked_s - run.began_s)) for _, run in runs]),
        (word("run"), [Cell(f"{run.suite} on {', '.join(run.kernels)}") for _, run in runs]),
        (word("outcome"), [_outcome(run) for _, run in runs]),
        (word("faults"), [Cell(_counted_faults(run)) for _, run in runs]),
        (word("why", optional=True), [Cell(shortened(run.reason, _LONGEST_REASON)) for _, run in runs]),
        (word("by", optional=True), [Cell(run.user) for _, run in runs]),
        (Column("measured"), [Cell(f"{run.measured}/{run.planned}") for _, run in runs]),
        (Column("took"), [Cell(_took(run, lab.looked_s)) for _, run in runs]),
        (Column("efficiency"), [Cell(share_text(_share(run))) for _, run in runs]),
    ]
    return assembled("Last runs", columns, simulated=False, groups=names)


def _took(run: PlaceRun, now_s: float) -> str:
    if run.ended_s is None:
        return span(now_s - run.began_s) if run.status == "running" else ABSENT
    return span(run.held_s)


def _share(run: PlaceRun) -> float | None:
    return run.measuring_s / run.held_s if run.ended_s is not None and run.held_s else None


def _named(title: str, table: Table) -> Table:
    return replace(table, title=title)


def show(lab: Lab, console: Console, *, wide: bool) -> None:
    console.print(f"coordinator {lab.coordinator}, at {moment(lab.looked_s)}", highlight=False)
    console.print(headline(lab), highlight=False)
    for table in (places(lab), queue(lab), last_runs(lab), faults(lab)):
        if table.rows:
            print_table(console, table, wide=wide)
    for folder, why in lab.damaged.items():
        console.print(footnote(f"{folder}: {why}"))


SCHEMA: Final = "fsjoule.lab/1"


def to_document(lab: Lab) -> dict[str, Any]:
    """The fields of `model.places.Lab`, and how each window was used, and its efficiency."""
    document: dict[str, Any] = {"schema": SCHEMA, **dataclasses.asdict(lab)}
    for place, shown in zip(lab.places, document["places"], strict=True):
        for usage, window in zip(place.usage, shown["usage"], strict=True):
            window |= {"used": usage.used, "efficiency": usage.efficiency}
    return document


def span(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 05 min`, `2 d 4 h`."""
    seconds = max(seconds, 0.0)
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    if seconds < _DAY_S:
        return f"{int(seconds // _HOUR_S)} h {int(seconds % _HOUR_S // _MINUTE_S):02d} min"
    return f"{int(seconds // _DAY_S)} d {int(seconds % _DAY_S // _HOUR_S)} h"


def _ago(seconds: float) -> str:
    return f"{span(seconds)} ago"


def moment(seconds: float | None) -> str:
    """`2026-11-24 03:10 UTC`."""
    return ABSENT if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _why(place: LabPlace, now_s: float) -> str:
    """What gave the place its state, and when: `the doctor: all ok, 5 h 24 min ago`."""
    return ", ".join(filter(None, (place.why, "" if place.since_s is None else _ago(now_s - place.since_s))))


def _holder(place: LabPlace, now_s: float) -> str:
    """`ada, for 3 h 05 min`; `free`."""
    if place.holder:
        return f"{place.holder}, for {span(now_s - (place.held_since_s or now_s))}"
    return f"reserved for {place.reserved_for}" if place.reserved_for else "free"


def _wanted(waiting: Waiting) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(waiting.tags.items()))


def _outcome(run: PlaceRun) -> Cell:
    """How a run ended; its colour says whether it had faults."""
    if run.status is RunStatus.ABORTED:
        return Cell(run.status.value, tone=Tone.BAD)
    if run.status is RunStatus.RUNNING:
        return Cell(run.status.value, tone=Tone.DOUBT if run.faults else Tone.PLAIN)
    return Cell(run.status.value, tone=Tone.GOOD if run.went_well else Tone.DOUBT)


def _counted_faults(run: PlaceRun) -> str:
    return ", ".join(f"{number} {part}" for part, number in sorted(run.faults.items()))


def headline(lab: Lab) -> str:
    """`12 places: 10 good, 1 bad, 1 in maintenance; 7 are held, 2 runs wait`."""
    words = {PlaceHealth.UNKNOWN: "of unknown state", PlaceHealth.MAINTENANCE: "in maintenance"}
    counts = ", ".join(f"{lab.count(each)} {words.get(each, each.value)}" for each in PlaceHealth if lab.count(each))
    held = sum(bool(place.holder) for place in lab.places)
    waiting = counted(len(lab.queue), "reservation waits", "reservations wait") if lab.queue else "nobody waits"
    return f"{counted(len(lab.places), 'place')}{f': {counts}' if counts else ''}; {held or 'none'} held, {waiting}"


def notes(lab: Lab) -> list[str]:
    """What the figures mean and lack."""
    told = [
        "Used: the share of the time in which runs held the place; efficiency: of that, the share of measuring.",
        "Runs that go on do not count yet. A place that is held by hand, without a run, does not count as held.",
        "A place is held at least as long as shown: labgrid tells when it changed a place last.",
    ]
    if any("unknown" in place.usage_in("week").faults for place in lab.places):
        told.append("An unknown fault is one that the kernel under test may have caused.")
    if lab.elsewhere:
        told.append(f"{counted(lab.elsewhere, 'run')} of other places or labs were left out.")
    return told
