"""The state of a place, kept by labgrid's coordinator as its tag `state`: who waits for a pool skips bad boards.

labgrid's reservations ask for tags and cannot exclude any. As soon as one place of a pool has a state, a run that
chooses by tags asks for `state=good`, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from labgrid.remote.common import Place
from labgrid.remote.generated import labgrid_coordinator_pb2 as messages

from fsjoule.lab.coordinator import Coordinator

STATE: Final = "state"
_NAME: Final = "name"


class State(StrEnum):
    """`bad` is what the doctor finds, `maintenance` what a person says; both keep a place out of its pool."""

    GOOD = "good"
    BAD = "bad"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True)
class PlaceState:
    """A place of the coordinator. `state` is "" without one; `holder` has it now, or "" if nobody has."""

    name: str
    state: str
    holder: str
    tags: Mapping[str, str]


def states(coordinator: Coordinator) -> list[PlaceState]:
    """All places by name."""
    return [
        PlaceState(name, state_of(place), place.acquired or "", dict(place.tags))
        for name, place in sorted(coordinator.places.items())
    ]


def state_of(place: Place) -> str:
    return str(place.tags.get(STATE, ""))


def set_state(coordinator: Coordinator, name: str, state: State | None) -> None:
    """Set or remove a place's state, whoever has the place. Raises ConfigError for an unknown place, LabError."""
    coordinator.place(name)
    request = messages.SetPlaceTagsRequest(placename=name, tags={STATE: "" if state is None else str(state)})
    coordinator.call(coordinator.stub.SetPlaceTags, request, f"setting the state of {name!r}")


def judge(coordinator: Coordinator, name: str, *, good: bool) -> str:
    """Set a place's state by its examination, and return the state. A place in maintenance stays in it.

    Raises ConfigError for an unknown place, LabError.
    """
    if state_of(coordinator.place(name)) == State.MAINTENANCE:
        return State.MAINTENANCE
    state = State.GOOD if good else State.BAD
    set_state(coordinator, name, state)
    return state


def fit(places: Iterable[Place], wanted: Mapping[str, str]) -> dict[str, str]:
    """The tags to reserve by: those wanted, and that the place is good, if any place with the tags has a state.

    A place that is named, or a state that is wanted, is the user's own decision.
    """
    if _NAME in wanted or STATE in wanted:
        return dict(wanted)
    found = [place for place in list(places) if wanted.items() <= place.tags.items()]
    return {**wanted, STATE: State.GOOD} if any(state_of(place) for place in found) else dict(wanted)
