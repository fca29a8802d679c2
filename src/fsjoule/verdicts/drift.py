"""Does a place still measure what it did? Control charts of its check standard, and the agreement of two places.

A place with a figure that is out of control is doubtful: what it measured since then may be off as much. Pure but for
`doubts_beside`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from fsjoule.errors import ConfigError
from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Metric
from fsjoule.statistics.control import (
    FALSE_ALARMS,
    Alarm,
    Chart,
    Level,
    Rule,
    chart,
    level_of,
    limits_for,
    normalised_error,
)
from fsjoule.store.standards import Checked, CheckedPlace, Conditions, PlaceCheck, read_checks, runs_beside
from fsjoule.store.states import Restart, read_restarts

_Subject = tuple[Metric, str, str, Kernel | None]
"""What levels of two places must share: metric, workload, board and kernel."""


class Control(StrEnum):
    """The state of a figure at a place."""

    IN = "in control"
    OUT = "out of control"
    UNKNOWN = "too few checks"


@dataclass(frozen=True, slots=True)
class PlaceChart:
    """The chart of one figure of a place under the same conditions: `times` (UTC) and `runs` are of its checks.

    It is `current` if the newest run of the workload at the place is on it, and the place was not restarted after it.
    An older chart was used until `ended_utc`.
    """

    place: CheckedPlace
    work: str
    conditions: Conditions
    metric: Metric
    times: tuple[str, ...]
    runs: tuple[str, ...]
    checked: tuple[Checked, ...]
    drawn: Chart
    current: bool
    ended_utc: str | None

    @property
    def figure(self) -> str:
        """`power of cpu`."""
        return f"{self.metric} of {self.work}"

    @property
    def state(self) -> Control:
        if self.drawn.alarm is not None:
            return Control.OUT
        return Control.IN if self.drawn.enough else Control.UNKNOWN

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        return tuple(
            Doubt(
                self,
                alarm,
                self.times[alarm.begin],
                self.ended_utc if alarm.end is None else self.times[alarm.end],
            )
            for alarm in self.drawn.alarms
        )

    @property
    def level(self) -> Level | None:
        """The level of the checks in control, in the metric's unit; None if the meter did not measure it."""
        known = [each.uncertainty for each in self.checked if each.uncertainty is not None]
        return level_of(self.drawn, known) if known and self.drawn.used > 1 else None


@dataclass(frozen=True, slots=True)
class Doubt:
    """A time in which a place was out of control; `end_utc`, which is excluded, is None if it goes on."""

    chart: PlaceChart
    alarm: Alarm
    begin_utc: str
    end_utc: str | None

    def covers(self, utc: str) -> bool:
        return self.begin_utc <= utc and (self.end_utc is None or utc < self.end_utc)

    @property
    def headline(self) -> str:
        """`power of cpu +0.8 % since 2026-11-02`."""
        return f"{self.chart.figure} {self.text} since {self.begin_utc[:10]}"

    @property
    def text(self) -> str:
        """`+0.8 %`; `single checks off by up to -3.1 %`."""
        size = f"{100 * self.alarm.shift:+.2g} %"
        return f"single checks off by up to {size}" if self.alarm.rule is Rule.JUMPS else size


@dataclass(frozen=True, slots=True)
class Agreement:
    """One figure's levels at two places. `error` is E_n: they agree if it is from -1 to 1."""

    metric: Metric
    work: str
    one: Level
    other: Level
    same_meter: bool

    @property
    def error(self) -> float:
        return normalised_error(self.one, self.other)

    @property
    def agree(self) -> bool:
        return abs(self.error) <= 1


def place_charts(
    checks: Iterable[PlaceCheck], false_alarms: float = FALSE_ALARMS, restarts: Iterable[Restart] = ()
) -> tuple[PlaceChart, ...]:
    """The charts of all places, by place, workload and figure, the older ones first; checks in the order of time.

    `false_alarms` is the share of a place's checks with a false alarm of any of its figures. `restarts` begin charts
    anew, oldest first.
    """
    restarted: dict[CheckedPlace, list[str]] = {}
    for each in restarts:
        restarted.setdefault(CheckedPlace(each.place, each.exporter), []).append(each.made_utc)
    grouped: dict[tuple[CheckedPlace, Conditions, Metric], list[PlaceCheck]] = {}
    of_work: dict[tuple[CheckedPlace, str], list[PlaceCheck]] = {}
    figures: dict[CheckedPlace, set[tuple[str, Metric]]] = {}
    for measured in checks:
        before = [utc for utc in restarted.get(measured.place, ()) if utc <= measured.started_utc]
        conditions = measured.conditions._replace(restarted_utc=max(before, default=""))
        check = replace(measured, conditions=conditions)
        of_work.setdefault((check.place, check.work), []).append(check)
        for metric in check.figures:
            grouped.setdefault((check.place, check.conditions, metric), []).append(check)
            figures.setdefault(check.place, set()).add((check.work, metric))

    def drawn(place: CheckedPlace, conditions: Conditions, metric: Metric, group: list[PlaceCheck]) -> PlaceChart:
        checked = tuple(each.figures[metric] for each in group)
        all_checks, last_utc = of_work[place, group[-1].work], group[-1].started_utc
        later = [each.started_utc for each in all_checks if each.started_utc > last_utc]
        again = [utc for utc in restarted.get(place, ()) if utc > last_utc]
        current = group[-1].run_id == all_checks[-1].run_id and not again
        limits = limits_for(len(figures[place]), false_alarms)
        return PlaceChart(
            place=place,
            work=group[-1].work,
            conditions=conditions,
            metric=metric,
            times=tuple(each.started_utc for each in group),
            runs=tuple(each.run_id for each in group),
            checked=checked,
            drawn=chart((each.value for each in checked), limits),
            current=current,
            ended_utc=None if current else min((*later[:1], *again), default=None),
        )

    charts = [drawn(*key, group) for key, group in grouped.items()]
    return tuple(sorted(charts, key=lambda one: (one.place, one.work, one.times)))


def state_of(charts: Iterable[PlaceChart], place: CheckedPlace) -> Control:
    """The worst state of a place's current figures; unknown without any."""
    states = {each.state for each in charts if each.place == place and each.current} or {Control.UNKNOWN}
    return next((each for each in (Control.OUT, Control.UNKNOWN) if each in states), Control.IN)


def agreements(charts: Sequence[PlaceChart], one: str, other: str) -> list[Agreement]:
    """How two places agree, by the figures of their meters that both have under the same kernel on the same board.

    Raises ConfigError for an unknown place, for a name that several labs have, and if there is no such figure.
    """
    places = {each.place for each in charts}
    ours, theirs = (_metered(charts, named_place(places, name)) for name in (one, other))
    found = [
        Agreement(key[0], work, mine, theirs[key][0], same_meter=meter == theirs[key][1])
        for key, (mine, meter, work) in ours.items()
        if key in theirs
    ]
    if not found:
        raise ConfigError(
            f"places {one} and {other} have no figure of a meter in common",
            hint="run the same standard with the same kernel on boards of one type at both, at least twice",
        )
    return found


def _metered(charts: Iterable[PlaceChart], place: CheckedPlace) -> dict[_Subject, tuple[Level, str, str]]:
    """The levels of a place by what they are of, each with its meter and its work."""
    levels: dict[_Subject, tuple[Level, str, str]] = {}
    for each in charts:
        if each.place == place and each.current and (level := each.level) is not None:
            series = each.conditions.series.series
            subject = each.metric, series.workload, series.board, each.conditions.kernel
            levels[subject] = level, each.conditions.meter, each.work
    return levels


def named_place(places: Collection[CheckedPlace], name: str) -> CheckedPlace:
    """The place NAME, or NAME@EXPORTER. Raises ConfigError for an unknown one, and if several labs have it."""
    found = sorted(each for each in places if name in (each.name, place_text(each)))
    if not found:
        raise ConfigError.unknown("place", name, [each.name for each in sorted(places)])
    if len(found) > 1:
        raise ConfigError(f"{len(found)} labs have a place {name}", hint=f"write {place_text(found[0])}")
    return found[0]


def place_text(place: CheckedPlace) -> str:
    """`bench-3@rack3`."""
    return f"{place.name}@{place.exporter}" if place.exporter else place.name


def doubts_beside(folders: Iterable[Path]) -> tuple[Doubt, ...]:
    """When places were out of control, by the checks in the folders that hold these runs; damaged runs are left out."""
    runs = runs_beside(folders)
    checks, _ = read_checks(runs)
    restarts, _ = read_restarts({run.parent for run in runs})
    return tuple(doubt for each in place_charts(checks, restarts=restarts) for doubt in each.doubts)


def place_states(charts: Sequence[PlaceChart]) -> Iterator[tuple[CheckedPlace, Control, list[Doubt]]]:
    """Each place with its state, and with the doubts that go on."""
    for place in sorted({each.place for each in charts}):
        current = [each for each in charts if each.place == place and each.current]
        yield place, state_of(charts, place), [each.doubts[-1] for each in current if each.drawn.alarm]
