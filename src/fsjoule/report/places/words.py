"""A lab in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from fsjoule.model import RunStatus
from fsjoule.model.labels import counted
from fsjoule.model.places import Lab, LabPlace, PlaceHealth, PlaceRun, Waiting
from fsjoule.report.numbers import ABSENT
from fsjoule.report.table import Cell, Tone

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86400
_TONES: Final = {
    PlaceHealth.GOOD: Tone.GOOD,
    PlaceHealth.DOUBTFUL: Tone.DOUBT,
    PlaceHealth.BAD: Tone.BAD,
    PlaceHealth.MAINTENANCE: Tone.DOUBT,
}


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


def ago(seconds: float) -> str:
    return f"{span(seconds)} ago"


def moment(seconds: float | None) -> str:
    """`2026-11-24 03:10 UTC`."""
    return ABSENT if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def health(place: LabPlace) -> Cell:
    return Cell(place.health.value, tone=_TONES.get(place.health, Tone.PLAIN))


def why(place: LabPlace, now_s: float) -> str:
    """What gave the place its state, and when: `the doctor: all ok, 5 h 24 min ago`."""
    return ", ".join(filter(None, (place.why, "" if place.since_s is None else ago(now_s - place.since_s))))


def holder(place: LabPlace, now_s: float) -> str:
    """`ada, for 3 h 05 min`; `free`."""
    if place.holder:
        return f"{place.holder}, for {span(now_s - (place.held_since_s or now_s))}"
    return f"reserved for {place.reserved_for}" if place.reserved_for else "free"


def wanted(waiting: Waiting) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(waiting.tags.items()))


def outcome(run: PlaceRun) -> Cell:
    """How a run ended; its colour says whether it had faults."""
    if run.status is RunStatus.ABORTED:
        return Cell(run.status.value, tone=Tone.BAD)
    if run.status is RunStatus.RUNNING:
        return Cell(run.status.value, tone=Tone.DOUBT if run.faults else Tone.PLAIN)
    return Cell(run.status.value, tone=Tone.GOOD if run.went_well else Tone.DOUBT)


def faults(run: PlaceRun) -> str:
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
