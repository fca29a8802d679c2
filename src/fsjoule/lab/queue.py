"""labgrid's queue: who has reserved what, in the order in which the coordinator serves them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labgrid.remote.common import ReservationState

from fsjoule.lab.coordinator import Coordinator
from fsjoule.lab.reservation import matching


@dataclass(frozen=True, slots=True)
class Waiter:
    """A reservation. `place` is "" while it waits, else the one that it may acquire; `places` have its tags.

    `since_s` is when it was made, in seconds of the coordinator's epoch.
    """

    owner: str
    tags: Mapping[str, str]
    priority: float
    since_s: float
    places: tuple[str, ...]
    place: str


def waiters(coordinator: Coordinator) -> list[Waiter]:
    """Reservations that wait or may acquire, the first to be served first. Raises LabError."""
    places = list(coordinator.places.values())
    alive = (ReservationState.waiting, ReservationState.allocated)
    found = [each for each in coordinator.reservations() if each.state in alive]
    return [
        Waiter(
            owner=each.owner,
            tags=dict(each.filters["main"]),
            priority=each.prio,
            since_s=each.created,
            places=tuple(matching(places, each.filters["main"])),
            place=next(iter(each.allocations.get("main", ())), ""),
        )
        for each in sorted(found, key=lambda each: (-each.prio, each.created))
    ]
