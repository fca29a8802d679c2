"""A lab as it is now and was in the last week: its places, who waits for them, and what their runs came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fsjoule.model.run import RunStatus

DAY_S: Final = 86400.0
WINDOWS_S: Final[Mapping[str, float]] = {"day": DAY_S, "week": 7 * DAY_S}
# Parts of faults beside those that `errors.Part` names.
UNKNOWN_PART: Final = "unknown"
BUG: Final = "bug"


class PlaceHealth(StrEnum):
    """The state of a place. The words are those of LAVA's device health, but for DOUBTFUL: it works, and drifts."""

    GOOD = "good"
    UNKNOWN = "unknown"
    DOUBTFUL = "doubtful"
    BAD = "bad"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True)
class PlaceRun:
    """A run at a place, in seconds of the epoch; `ended_s` is None while it goes on, or if nobody knows it.

    It measured `measured` of `planned` entries, held the place for `held_s`, and worked on measurements for
    `measuring_s` of it. `faults` counts the faults of its attempts by part. `reason` is why it was aborted, the
    last fault before all.
    """

    run_id: str
    folder: str
    status: RunStatus
    simulated: bool
    suite: str
    kernels: tuple[str, ...]
    user: str
    began_s: float
    ended_s: float | None
    held_s: float
    measuring_s: float
    measured: int
    planned: int
    faults: Mapping[str, int] = field(default_factory=dict[str, int])
    reason: str = ""

    @property
    def went_well(self) -> bool:
        return self.status is RunStatus.COMPLETE and not self.faults


@dataclass(frozen=True, slots=True)
class Usage:
    """What the runs of a place came to in the last `window` (a name in WINDOWS_S).

    A run that began earlier or goes on counts with its share of the window: its time is taken to be spread evenly.
    `held_s` and `measuring_s` are of runs that have ended. `faults` and runs count where they began.
    """

    window: str
    held_s: float
    measuring_s: float
    complete: int
    aborted: int
    faults: Mapping[str, int]

    @property
    def used(self) -> float:
        """The share of the window in which runs held the place."""
        return self.held_s / WINDOWS_S[self.window]

    @property
    def efficiency(self) -> float | None:
        """The time of measuring over the time that the place was held; None if it was not."""
        return self.measuring_s / self.held_s if self.held_s else None


@dataclass(frozen=True, slots=True)
class LabPlace:
    """A place. Times are in seconds of the epoch, None where there is nothing to tell.

    `since_s` is when its state began, and `why`. `faults_in_a_row` counts its last runs that ended with a fault of the
    lab. `holder` has it, at least since `held_since_s`; `reserved_for` may take it. `day_runs` are those of the last
    day, `last_runs` those to be shown; the newest first.
    """

    name: str
    health: PlaceHealth
    since_s: float | None
    why: str
    faults_in_a_row: int
    holder: str
    held_since_s: float | None
    reserved_for: str
    tags: Mapping[str, str]
    usage: tuple[Usage, ...]
    last_runs: tuple[PlaceRun, ...]
    day_runs: tuple[PlaceRun, ...] = ()

    def usage_in(self, window: str) -> Usage:
        return next(each for each in self.usage if each.window == window)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A reservation that waits, since `since_s`, for a place with these tags; `places` have them."""

    owner: str
    tags: Mapping[str, str]
    priority: float
    since_s: float
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lab:
    """All places of the coordinator at `looked_s`, and its queue, the next to be served first.

    `damaged` are run folders that could not be read, with the reason; `elsewhere` counts runs at other labs' places.
    """

    coordinator: str
    looked_s: float
    places: tuple[LabPlace, ...]
    queue: tuple[Waiting, ...]
    damaged: Mapping[str, str] = field(default_factory=dict[str, str])
    elsewhere: int = 0

    @property
    def simulated(self) -> bool:
        """Whether there are runs, and all of them were measured on emulated boards."""
        runs = [run for place in self.places for run in (*place.last_runs, *place.day_runs)]
        return bool(runs) and all(run.simulated for run in runs)

    def count(self, health: PlaceHealth) -> int:
        return sum(place.health is health for place in self.places)

    def used(self, window: str) -> float | None:
        """The share of the window in which runs held a place, of all places together; None without places."""
        return sum(place.usage_in(window).used for place in self.places) / len(self.places) if self.places else None

    def efficiency(self, window: str) -> float | None:
        """The time of measuring over the time that places were held; None if none was."""
        held_s = sum(place.usage_in(window).held_s for place in self.places)
        return sum(place.usage_in(window).measuring_s for place in self.places) / held_s if held_s else None

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that had faults in the last week, those with most first."""
        counts: dict[str, int] = {}
        for place in self.places:
            for part, number in place.usage_in("week").faults.items():
                counts[part] = counts.get(part, 0) + number
        return tuple(sorted(counts, key=lambda part: (-counts[part], part)))
