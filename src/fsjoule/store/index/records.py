"""What queries take and give."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from fsjoule.model.metrics import Metric
from fsjoule.store.index.kernels import Kernel
from fsjoule.store.index.serieskeys import IndexedSeries


class Order(StrEnum):
    """In what order the measurements of a series come."""

    TIME = "time"  # when they were started
    KERNEL = "kernel"  # oldest kernel first, then time


@dataclass(frozen=True, slots=True)
class Where:
    """Which measurements are meant: those that match every part that is given, and any of the choices in it.

    `series` are keys (or what they begin with), `runs` are ids; times are as in the run folders, `until_utc` is not
    included.
    """

    series: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    branches: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    boards: tuple[str, ...] = ()
    filesystems: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    simulated: bool | None = None
    since_utc: str | None = None
    until_utc: str | None = None
    invalid_too: bool = False


EVERYTHING: Final = Where()


class Origin(NamedTuple):
    """Where a run was measured, and the serial number of its meter; None is what the run does not say."""

    place: str | None = None
    exporter: str | None = None
    meter: str | None = None

    @property
    def board(self) -> str | None:
        """What tells a board from another one of its type: `rack-3 of exporter lab2`."""
        if self.place is None:
            return None
        return f"{self.place} of exporter {self.exporter}" if self.exporter else self.place


UNKNOWN_ORIGIN: Final = Origin()


class Point(NamedTuple):
    """One measurement of a series. Repetitions of one run that share a `boot` are not independent of each other.

    A tuple, as there may be a million of them. `uncertainties` are standard uncertainties (k=1) in the unit of the
    metric, for those that have one.
    """

    run_id: str
    number: int
    started_utc: str
    kernel: Kernel | None
    branch: str | None
    commit: str | None
    boot: int
    repetition: int
    invalid_reasons: tuple[str, ...]
    figures: dict[Metric, float]
    uncertainties: dict[Metric, float]
    origin: Origin = UNKNOWN_ORIGIN

    @property
    def valid(self) -> bool:
        return not self.invalid_reasons


@dataclass(frozen=True, slots=True)
class SeriesCount:
    """How much there is of a series. `kernels` and `runs` count those of its measurements, invalid ones included."""

    series: IndexedSeries
    measurements: int
    valid: int
    runs: int
    kernels: int
    first_utc: str
    last_utc: str


@dataclass(frozen=True, slots=True)
class Stats:
    """How much an index holds."""

    schema: str
    runs: int
    measurements: int
    valid: int
    series: int
    boards: int
    kernels: tuple[Kernel, ...]
    first_utc: str | None
    last_utc: str | None
