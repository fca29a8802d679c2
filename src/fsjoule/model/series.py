"""A series and its points: the figures of measurements that may be compared, whatever they were read from. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, cast

from fsjoule.errors import ConfigError
from fsjoule.model import SeriesKey
from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Metric, step_of

KEY_LENGTH: Final = 16
_SEVERAL: Final = ", "


@dataclass(frozen=True, slots=True)
class Series:
    """Measurements that may be compared: simulated figures never with real ones, whatever the boards' names."""

    series: SeriesKey
    simulated: bool

    @property
    def key(self) -> str:
        """A hash of all fields that make it: 16 hexadecimal digits, the same on every machine."""
        return _key(self)

    @property
    def label(self) -> str:
        """Its short name on a board: `ext4 randread-16k 32768KiB`."""
        return f"{self.series.filesystem_title} {self.series.workload}"

    @property
    def rank(self) -> tuple[str, ...]:
        """The sort key for lists of series."""
        one = self.series
        return (one.suite, one.board, one.workload, one.filesystem, self.key)

    def document(self) -> dict[str, object]:
        """Key and names, for JSON."""
        return {"key": self.key, **asdict(self.series), "simulated": self.simulated}


@lru_cache(maxsize=10_000)
def _key(one: Series) -> str:
    fields = asdict(one)
    del fields["series"]["title"]
    content = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()[:KEY_LENGTH]


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


def step_share(points: Iterable[Point], metric: Metric) -> float:
    """The largest share by which a clock may have rounded a figure of these points; 0 without such a clock."""
    return max((step_of(metric, p.figures.get(metric), p.uncertainties.get(metric)) for p in points), default=0.0)


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

    def takes_series(self, one: Series) -> bool:
        among = (
            (one.series.suite, self.suites),
            (one.series.board, self.boards),
            (one.series.workload, self.workloads),
        )
        return (
            all(not choices or value in choices for value, choices in among)
            and (not self.filesystems or any(map(one.series.has_filesystem, self.filesystems)))
            and (not self.series or one.key.startswith(self.series))
            and self.simulated in (None, one.simulated)
        )

    def takes(self, point: Point) -> bool:
        """Whether it selects a point of a series that it selects."""
        among = ((point.run_id, self.runs), (point.kernel, self.kernels), (point.branch, self.branches))
        return (
            all(not choices or value in choices for value, choices in among)
            and (self.since_utc is None or point.started_utc >= self.since_utc)
            and (self.until_utc is None or point.started_utc < self.until_utc)
            and (self.invalid_too or point.valid)
        )


EVERYTHING: Final = Where()


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


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: all its measurements by series, invalid ones too, in the order of time.

    `name` is the user's name without its `kind`; `title` describes the side. `versions` are versions of programs by
    name, as far as the runs' folders are present; `origins` are places and meters of its runs. `steady` says that its
    few runs were on a board in guest time, `guest_time` that each series has a single boot besides. `folders` are those
    of its runs at their last import; `damaged` maps what of them cannot be read to reasons.
    """

    kind: str
    name: str
    title: str
    points: Mapping[Series, tuple[Point, ...]]
    versions: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    origins: frozenset[Origin] = frozenset()
    steady: bool = False
    guest_time: bool = False
    folders: Mapping[str, Path] = field(default_factory=dict[str, Path])
    damaged: Mapping[str, str] = field(default_factory=dict[str, str])


def comparable(one: Iterable[Series], other: Iterable[Series]) -> tuple[Series, ...]:
    """The series that both sides have, in the first's order. Raises ConfigError, which tells how they differ."""
    ours, theirs = list(one), list(other)
    common = tuple(series for series in ours if series in set(theirs))
    if common:
        return common
    if not ours or not theirs:
        raise ConfigError(f"the {'first' if not ours else 'second'} side has no valid measurement to compare")
    pairs = ((series, another) for series in ours for another in theirs)
    closest = min(pairs, key=lambda pair: len(what_differs(*pair)))
    differs = "; ".join(
        f"{name}: {_plain(mine)} against {_plain(his)}" for name, (mine, his) in what_differs(*closest).items()
    )
    raise ConfigError(
        f"the two sides cannot be compared: they have no series in common. The closest differ in {differs}",
        hint="only measurements of the same suite, board, card, filesystem, options and workload are comparable",
    )


def what_differs(one: Series, other: Series) -> dict[str, tuple[object, object]]:
    """The parts in which two series differ, with both values; empty for comparable series."""
    mine, theirs = ({**asdict(side.series), "simulated": side.simulated} for side in (one, other))
    return {name: (mine[name], theirs[name]) for name in mine if name != "title" and mine[name] != theirs[name]}


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, cast("tuple[object, ...]", value))) or "(none)"
    return str(value)
