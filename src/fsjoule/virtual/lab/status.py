"""The status of a virtual lab, as `fsjoule lab status` tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fsjoule.virtual.lab.files import PLACE

LabState = Literal["up", "degraded", "down"]


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """One program of the lab. `ended` says when and how it died, if known."""

    name: str
    pid: int
    alive: bool
    log: str
    ended: str | None = None


@dataclass(frozen=True, slots=True)
class LabStatus:
    """The state of a lab. `degraded`: it is up but a service died. `board` is the board's own status.

    `holder` is HOST/USER of the place's owner, None if it is free, or if the coordinator does not answer
    (`holder_known`). `faults` are sentences: dead and stopped parts, or why the lab is down.
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

    @property
    def running(self) -> bool:
        return self.state != "down"

    def text(self) -> str:
        if not self.running:
            return "\n  ".join((f"lab {self.name!r} is down", *self.faults))
        lines = [f"lab {self.name!r} is {self.state} since {self.started_utc}, coordinator {self.coordinator}"]
        lines += [
            f"  {each.name:<12} {f'process {each.pid}' if each.alive else f'DIED ({each.ended}), see {each.log}'}"
            for each in self.services
        ]
        lines += [f"  FAULT        {fault}" for fault in self.faults]
        held = f"is {f'held by {self.holder}' if self.holder else 'free'}"
        lines.append(
            f"  place {PLACE!r} {held if self.holder_known else 'may be held: its coordinator does not answer'}"
        )
        if self.board is not None:
            card, supply = self.board["card"]["position"], self.board["supply"]["watts"]
            lines.append(f"  board        {self.board['message']}, card at {card}, {supply:.3f} W (simulated)")
        if self.owner_pid is not None:
            lines.append(f"  ends with its owner, process {self.owner_pid}")
        return "\n".join(lines)
