"""Where a run was measured: two boards of one type are told apart by their place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exporter:
    """A labgrid exporter that a place has resources of: its name, and the computer that serves them."""

    name: str
    host: str


@dataclass(frozen=True, slots=True)
class MeterPort:
    """The labgrid resource behind which the meter is.

    `address` is where it is served (HOST:PORT, another one whenever its exporter starts), `path` its device on the
    exporter's computer; either is empty if it is not known.
    """

    resource: str
    address: str
    path: str


@dataclass(frozen=True, slots=True)
class LabFacts:
    """The lab of a run. `user` is USER@HOST, as labgrid knows who holds the place.

    The exporter of a virtual lab is called `fsjoule-` and the lab's name.
    """

    place: str
    coordinator: str
    exporters: tuple[Exporter, ...]
    meter: MeterPort | None
    user: str

    @property
    def exporter_names(self) -> str:
        return ", ".join(exporter.name for exporter in self.exporters)

    @property
    def exporters_text(self) -> str:
        """`rack3 on rack3.lab`."""
        return ", ".join(f"{each.name} on {each.host}" if each.host else each.name for each in self.exporters)
