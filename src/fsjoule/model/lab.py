"""Where a run was measured, and for which job. The place tells two boards of one type apart."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exporter:
    """A labgrid exporter of a place's resources: its name, and the computer that serves them."""

    name: str
    host: str


@dataclass(frozen=True, slots=True)
class MeterPort:
    """The labgrid resource of the meter's port.

    `address` is HOST:PORT (another one after the exporter's restart), `path` the exporter's device; both may be "".
    """

    resource: str
    address: str
    path: str


@dataclass(frozen=True, slots=True)
class LabFacts:
    """The lab of a run. `user` is USER@HOST, labgrid's holder. A virtual lab's exporter is `fsjoule-` plus its name."""

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


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The LAVA job that a run was measured for. `number`, `device` and `worker` are LAVA's names; each may be "".

    `url` is the job's page. `pulled`: the run folder was made anew from the job's log, and has no traces.
    """

    number: str
    device: str
    worker: str
    url: str
    pulled: bool = False

    @property
    def text(self) -> str:
        """`job 17 on imx6ul-evk of rack3`."""
        where = f" on {self.device}" if self.device else ""
        return f"job {self.number}{where}{f' of {self.worker}' if self.worker else ''}"
