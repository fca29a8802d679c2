"""The status of a virtual lab, as `fsjoule lab status` tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

LabState = Literal["up", "degraded", "down"]
_WIDTH: Final = 12


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """One program of the lab. `ended` says when and how it died, if known."""

    name: str
    pid: int
    alive: bool
    log: str
    ended: str | None = None


@dataclass(frozen=True, slots=True)
class PlaceStatus:
    """A place of the lab. `holder` is HOST/USER of its owner, None if it is free. `board` is the board's own status."""

    name: str
    holder: str | None
    board: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class LabStatus:
    """The state of a lab. `degraded`: it is up but a service died. `board` and `holder` are those of the first place.

    Holders are None if the coordinator does not answer (`holder_known`). `kind` names the boards' config. `faults` are
    sentences: dead and stopped parts, or why the lab is down.
    """

    name: str
    state: LabState
    directory: str
    services: tuple[ServiceStatus, ...] = ()
    coordinator: str | None = None
    started_utc: str | None = None
    owner_pid: int | None = None
    holder: str | None = None
    holder_known: bool = True
    board: dict[str, Any] | None = None
    faults: tuple[str, ...] = ()
    kind: str = ""
    places: tuple[PlaceStatus, ...] = ()

    @property
    def running(self) -> bool:
        return self.state != "down"

    def text(self) -> str:
        if not self.running:
            return "\n  ".join((f"lab {self.name!r} is down", *self.faults))
        lines = [f"lab {self.name!r} is {self.state} since {self.started_utc}, coordinator {self.coordinator}"]
        lines += [
            f"  {each.name:<{_WIDTH}} {f'process {each.pid}' if each.alive else f'DIED ({each.ended}), see {each.log}'}"
            for each in self.services
        ]
        lines += [f"  FAULT        {fault}" for fault in self.faults]
        for place in self.places:
            held = f"is {f'held by {place.holder}' if place.holder else 'free'}"
            if not self.holder_known:
                held = "may be held: its coordinator does not answer"
            lines.append(f"  place {place.name!r} {held}")
            if place.board is not None:
                card, supply = place.board["card"]["position"], place.board["supply"]["watts"]
                lines.append(
                    f"  {'board':<{_WIDTH}} {place.board['message']}, card at {card}, {supply:.3f} W (simulated)"
                )
        if self.owner_pid is not None:
            lines.append(f"  ends with its owner, process {self.owner_pid}")
        return "\n".join(lines)
