"""A lab as OpenMetrics 1.0 text. All metrics are gauges, so that Prometheus' textfile collector reads them, too."""

# The library has no types for its text: strict checking would only report their absence.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric as Family
from prometheus_client.openmetrics.exposition import generate_latest

from fsjoule.model.places import WINDOWS_S, Lab, PlaceHealth


class _Gauge(Family):
    """A metric with its samples. Its unit, if it has one, is the end of its name."""

    def __init__(self, name: str, told: str) -> None:
        unit = next((each for each in ("seconds", "ratio") if name.endswith(f"_{each}")), "")
        super().__init__(f"fsjoule_{name}", told, "gauge", unit)

    def add(self, value: float | None, **labels: str) -> None:
        """Add a sample, unless there is nothing to tell."""
        if value is not None:
            self.add_sample(self.name, labels, value)


class _Families:
    """A lab as the library collects it."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def collect(self) -> Iterator[Family]:
        for of in (_of_lab, _of_places, _of_use):
            yield from of(self._lab)


def to_openmetrics(lab: Lab) -> str:
    """The text. Every metric of a place has the label `place`; the ones with a `window` cover the last day or week."""
    return str(generate_latest(_Families(lab)), "utf-8")


def _of_lab(lab: Lab) -> Iterator[Family]:
    looked = _Gauge("lab_looked_timestamp_seconds", "When the coordinator was asked.")
    looked.add(lab.looked_s)
    yield looked
    waiting = _Gauge("reservations_waiting", "Reservations that wait for a place.")
    waiting.add(len(lab.queue))
    yield waiting
    waits = _Gauge("reservation_waiting_seconds", "How long each reservation has waited, in the order of service.")
    for number, each in enumerate(lab.queue, start=1):
        tags = ",".join(f"{key}={value}" for key, value in sorted(each.tags.items()))
        waits.add(
            max(lab.looked_s - each.since_s, 0.0),
            number=str(number),
            owner=each.owner,
            tags=tags,
            priority=f"{each.priority:g}",
        )
    yield waits


def _of_places(lab: Lab) -> Iterator[Family]:
    states = _Gauge("place_state", "1 for the place's state, 0 for the others.")
    since = _Gauge("place_state_timestamp_seconds", "When the place's state began.")
    in_a_row = _Gauge("place_faults_in_a_row", "Its last runs in a row that ended with a fault of the lab.")
    held = _Gauge("place_held", "1 if somebody has the place, else 0.")
    held_s = _Gauge("place_held_seconds", "How long its holder has had the place, at least.")
    last = _Gauge("place_last_run_timestamp_seconds", "When the place's last run began.")
    for place in lab.places:
        for each in PlaceHealth:
            states.add(float(place.health is each), place=place.name, state=each.value)
        since.add(place.since_s, place=place.name)
        in_a_row.add(place.faults_in_a_row, place=place.name)
        held.add(float(bool(place.holder)), place=place.name)
        if place.held_since_s is not None:
            held_s.add(max(lab.looked_s - place.held_since_s, 0.0), place=place.name, holder=place.holder)
        last.add(place.last_runs[0].began_s if place.last_runs else None, place=place.name)
    yield from (states, since, in_a_row, held, held_s, last)


def _of_use(lab: Lab) -> Iterator[Family]:
    held = _Gauge("place_runs_held_seconds", "The time that runs held the place.")
    measuring = _Gauge("place_measuring_seconds", "The time of measuring.")
    used = _Gauge("place_used_ratio", "The share of the window in which runs held the place.")
    efficiency = _Gauge("place_efficiency_ratio", "The time of measuring over the time that runs held the place.")
    runs = _Gauge("place_runs", "Runs that began, by how they ended.")
    faults = _Gauge("place_faults", "Faults of runs that began, by the part of the lab that failed.")
    for place in lab.places:
        for window in WINDOWS_S:
            usage = place.usage_in(window)
            where = {"place": place.name, "window": window}
            held.add(usage.held_s, **where)
            measuring.add(usage.measuring_s, **where)
            used.add(usage.used, **where)
            efficiency.add(usage.efficiency, **where)
            runs.add(usage.complete, **where, status="complete")
            runs.add(usage.aborted, **where, status="aborted")
            for part, number in sorted(usage.faults.items()):
                faults.add(number, **where, part=part)
    yield from (held, measuring, used, efficiency, runs, faults)
