"""The state of a place, kept by labgrid's coordinator as its tags: who waits for a pool skips bad boards.

labgrid's reservations ask for tags and cannot exclude any. As soon as one place of a pool has a state, a run that
chooses by tags asks for `state=good`, too.

The words are those of LAVA's device health, whose Unknown is a place without a state, and whose Looping and Retired do
not exist here: a bad place is examined again by `fsjoule doctor --all --recheck`, and a retired one is deleted. A
doubtful place, which LAVA does not know, measures something else than it did (`fsjoule place drift --mark`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from labgrid.remote.common import Place

from fsjoule.errors import ConfigError, Part
from fsjoule.lab.coordinator import Coordinator
from fsjoule.model.labels import counted
from fsjoule.model.places import PlaceHealth

STATE: Final = "state"
SINCE: Final = "since"
WHY: Final = "why"
FAULTS: Final = "faults"
# Tags that say how a place is, not which one it is.
OWN_TAGS: Final = frozenset({STATE, SINCE, WHY, FAULTS})
BAD_AFTER: Final = "FSJOULE_BAD_AFTER"
_BAD_AFTER: Final = 3
_NAME: Final = "name"


@dataclass(frozen=True, slots=True)
class PlaceState:
    """A place of the coordinator. `holder` has it now, or "" if nobody has.

    `since` (UTC) and `why` belong to the state. `faults` counts the last runs in a row that ended with a fault of the
    lab. `tags` are all others. `changed_s` is when the coordinator changed the place last, in seconds of the epoch.
    """

    name: str
    state: PlaceHealth
    holder: str
    tags: Mapping[str, str]
    since: str = ""
    why: str = ""
    faults: int = 0
    changed_s: float = 0.0


def states(coordinator: Coordinator) -> list[PlaceState]:
    """All places by name."""
    return [
        PlaceState(
            name,
            state_of(place),
            place.acquired or "",
            {key: str(value) for key, value in place.tags.items() if key not in OWN_TAGS},
            since=str(place.tags.get(SINCE, "")),
            why=str(place.tags.get(WHY, "")),
            faults=faults_of(place),
            changed_s=float(place.changed),
        )
        for name, place in sorted(coordinator.places.items())
    ]


def state_of(place: Place) -> PlaceHealth:
    """Its state. Anybody can set a tag: another word, as none, is an unknown state."""
    text = str(place.tags.get(STATE, ""))
    return next((each for each in PlaceHealth if each.value == text), PlaceHealth.UNKNOWN)


def faults_of(place: Place) -> int:
    """How many runs in a row have ended with a fault of the lab. Anybody can set a tag: anything else counts as 0."""
    text = str(place.tags.get(FAULTS, ""))
    return int(text) if text.isascii() and text.isdigit() else 0


def bad_after() -> int:
    """So many faults in a row make a place bad; 0: none do. Raises ConfigError for a wrong FSJOULE_BAD_AFTER."""
    text = os.environ.get(BAD_AFTER) or str(_BAD_AFTER)
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{BAD_AFTER}={text!r} is no number of faults", hint=f"{BAD_AFTER}=3, or 0: never")
    return int(text)


def set_state(coordinator: Coordinator, name: str, state: PlaceHealth, why: str = "", *, faults: int = 0) -> None:
    """Set a place's state, or remove it (`unknown`), whoever has it. Raises ConfigError for an unknown place, LabError.

    A state that it has already keeps its time. `faults` is the new count of faults; a bad place keeps its old one.
    """
    place = coordinator.place(name)
    none = state is PlaceHealth.UNKNOWN
    tags = {STATE: "" if none else str(state), WHY: "" if none else why}
    if none or state_of(place) is not state or SINCE not in place.tags:
        tags[SINCE] = "" if none else f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if state is not PlaceHealth.BAD or faults:
        tags[FAULTS] = str(faults or "")
    coordinator.set_tags(name, tags)


def judge(coordinator: Coordinator, name: str, *, good: bool, why: str = "") -> PlaceHealth:
    """Set a place's state by its examination, and return the state. A place in maintenance stays in it.

    A doubtful one stays doubtful if it is good: an examination does not know what it measured before. Raises
    ConfigError for an unknown place, LabError.
    """
    before = state_of(coordinator.place(name))
    if before is PlaceHealth.MAINTENANCE or (good and before is PlaceHealth.DOUBTFUL):
        return before
    state = PlaceHealth.GOOD if good else PlaceHealth.BAD
    set_state(coordinator, name, state, why)
    return state


def note_drift(coordinator: Coordinator, name: str, why: str) -> str:
    """Note whether a place is out of control, and why; "": it is in control. Returns a line, or "" if nothing changes.

    It becomes doubtful, and good again. A bad place and one in maintenance are left alone. Raises ConfigError for an
    unknown place, LabError.
    """
    before = state_of(coordinator.place(name))
    if before in {PlaceHealth.BAD, PlaceHealth.MAINTENANCE} or (not why and before is not PlaceHealth.DOUBTFUL):
        return ""
    if not why:
        set_state(coordinator, name, PlaceHealth.GOOD, "in control again")
        return f"place {name!r}: good, in control again"
    set_state(coordinator, name, PlaceHealth.DOUBTFUL, why)
    return (
        f"place {name!r}: doubtful, {why}; its pool leaves it out{_others_become_good(coordinator, name, 'doubtful')}"
    )


def note_end(coordinator: Coordinator, name: str, part: Part | None, bad_after: int) -> str:
    """Note how a run at the place ended: this part of the lab failed, or None did. Returns a line, or "".

    Faults in a row are counted; with `bad_after` of them the place is bad. Then places without a state become good:
    their pools would leave them out, and they were in use. A good run ends the count, but only the doctor makes a bad
    place good. A place in maintenance is left alone. Raises ConfigError for an unknown place, LabError.
    """
    place = coordinator.place(name)
    before = faults_of(place)
    if state_of(place) is PlaceHealth.MAINTENANCE or (part is None and not before):
        return ""
    if part is None:
        coordinator.set_tags(name, {FAULTS: ""})
        return f"place {name!r}: its {counted(before, 'fault')} in a row {'is' if before == 1 else 'are'} over"
    count = before + 1
    if not bad_after or count < bad_after or state_of(place) is PlaceHealth.BAD:
        coordinator.set_tags(name, {FAULTS: str(count)})
        limit = f" of {bad_after} that make it bad" if bad_after and state_of(place) is not PlaceHealth.BAD else ""
        return f"place {name!r}: fault {count}{limit}, in a row ({part})"
    why = f"{counted(count, 'fault of the lab', 'faults of the lab')} in a row, the last: {part}"
    set_state(coordinator, name, PlaceHealth.BAD, why, faults=count)
    good = _others_become_good(coordinator, name, "bad")
    return (
        f"place {name!r}: bad, {why}; its pool leaves it out{good}\n"
        f"  hint: repair it, then: fsjoule doctor {name} --state (or --all --recheck)"
    )


def _others_become_good(coordinator: Coordinator, name: str, became: str) -> str:
    """Give places without a state one, as their pools would leave them out. Returns words about it, or ""."""
    others: list[str] = []
    for other in sorted(coordinator.places):
        # Each at its turn: a dead exporter's boards fail together, and another one may just have become bad.
        if STATE not in coordinator.place(other).tags:
            set_state(coordinator, other, PlaceHealth.GOOD, f"no fault is known; {name} became {became}")
            others.append(other)
    return f"; {', '.join(others)} had no state, and {'is' if len(others) == 1 else 'are'} good" if others else ""


def fit(places: Iterable[Place], wanted: Mapping[str, str]) -> dict[str, str]:
    """The tags to reserve by: those wanted, and that the place is good, if any place with the tags has a state.

    A place that is named, or a state that is wanted, is the user's own decision.
    """
    if _NAME in wanted or STATE in wanted:
        return dict(wanted)
    found = [place for place in list(places) if wanted.items() <= place.tags.items()]
    return {**wanted, STATE: PlaceHealth.GOOD} if any(STATE in place.tags for place in found) else dict(wanted)
