"""Arguments and results of queries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple

from fsjoule.errors import ConfigError
from fsjoule.model.metrics import Metric
from fsjoule.store.index.kernels import Kernel
from fsjoule.store.index.serieskeys import IndexedSeries


class Order(StrEnum):
    TIME = "time"  # when they were started
    KERNEL = "kernel"  # oldest kernel first, then time


@dataclass(frozen=True, slots=True)
class Where:
    """Selects the measurements that match every given part, and any choice within a part.

    `series` are keys or their beginnings, `runs` are ids; times are as in the run folders, and `until_utc` is excluded.
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

# A trend reads this many measurements unless told otherwise, in half a second whatever the index holds; but of each
# series this many at least, because a fair share of thousands of series would be too short for any change.
MOST_READ: Final = 60_000
LEAST_OF_EACH: Final = 100


def utc_named(option: str, text: str | None) -> str | None:
    """A day or a time (UTC if it names no zone) as the index writes times. Raises ConfigError."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{option} {text!r} is not a time", hint="write 2026-03-09 or 2026-03-09T10:00:00Z"
        ) from error
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


_SEVERAL: Final = ", "


class Origin(NamedTuple):
    """Where a run was measured, and the serial number of its meter; None where the run does not say.

    A run on several places has all of them, with commas, and all their meters.
    """

    place: str | None = None
    exporter: str | None = None
    meter: str | None = None

    @property
    def board(self) -> str | None:
        """The board among its type: `rack-3 of exporter lab2`."""
        if self.place is None:
            return None
        return f"{self.place} of exporter {self.exporter}" if self.exporter else self.place

    @property
    def several(self) -> bool:
        """Whether these are boards with levels of their own. Boards in guest time, which have none, share one meter."""
        one_meter = self.meter is not None and _SEVERAL not in self.meter
        return self.place is not None and _SEVERAL in self.place and not one_meter


UNKNOWN_ORIGIN: Final = Origin()


class Point(NamedTuple):
    """One measurement of a series. Repetitions of one run that share a `boot` are not independent of each other.

    A tuple, because there may be a million. `uncertainties` are standard uncertainties (k=1) in the metric's unit, for
    metrics that have one.
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
    kernel_warnings: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        return not self.invalid_reasons


@dataclass(frozen=True, slots=True)
class SeriesCount:
    """Counts of a series' measurements, runs and kernels, with invalid measurements."""

    series: IndexedSeries
    measurements: int
    valid: int
    runs: int
    kernels: int
    first_utc: str
    last_utc: str


@dataclass(frozen=True, slots=True)
class Stats:
    schema: str
    runs: int
    measurements: int
    valid: int
    series: int
    boards: int
    kernels: tuple[Kernel, ...]
    first_utc: str | None
    last_utc: str | None
