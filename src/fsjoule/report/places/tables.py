"""A lab's tables, once for terminal and page, and the lab in the terminal and as a JSON document."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any, Final

from rich.console import Console

from fsjoule.model.places import Lab, LabPlace, PlaceRun
from fsjoule.report.numbers import ABSENT, share_text
from fsjoule.report.places import words
from fsjoule.report.table import Cell, Column, Table, Tone, assembled, listing, shortened, word
from fsjoule.report.terminal import footnote, print_table

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
        words.health(place),
        words.holder(place, now_s),
        words.why(place, now_s),
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
            words.wanted(each),
            ", ".join(each.places) or "no place has these tags",
            f"{each.priority:g}",
            words.span(lab.looked_s - each.since_s),
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
        (word("began"), [Cell(words.ago(lab.looked_s - run.began_s)) for _, run in runs]),
        (word("run"), [Cell(f"{run.suite} on {', '.join(run.kernels)}") for _, run in runs]),
        (word("outcome"), [words.outcome(run) for _, run in runs]),
        (word("faults"), [Cell(words.faults(run)) for _, run in runs]),
        (word("why", optional=True), [Cell(shortened(run.reason, _LONGEST_REASON)) for _, run in runs]),
        (word("by", optional=True), [Cell(run.user) for _, run in runs]),
        (Column("measured"), [Cell(f"{run.measured}/{run.planned}") for _, run in runs]),
        (Column("took"), [Cell(_took(run, lab.looked_s)) for _, run in runs]),
        (Column("efficiency"), [Cell(share_text(_share(run))) for _, run in runs]),
    ]
    return assembled("Last runs", columns, simulated=False, groups=names)


def _took(run: PlaceRun, now_s: float) -> str:
    if run.ended_s is None:
        return words.span(now_s - run.began_s) if run.status == "running" else ABSENT
    return words.span(run.held_s)


def _share(run: PlaceRun) -> float | None:
    return run.measuring_s / run.held_s if run.ended_s is not None and run.held_s else None


def _named(title: str, table: Table) -> Table:
    return replace(table, title=title)


def show(lab: Lab, console: Console, *, wide: bool) -> None:
    console.print(f"coordinator {lab.coordinator}, at {words.moment(lab.looked_s)}", highlight=False)
    console.print(words.headline(lab), highlight=False)
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
