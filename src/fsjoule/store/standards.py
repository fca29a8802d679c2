"""Checks of places: what a run of the check standard found at one place, read from run folders.

A check standard is work that should stay the same (the suite `standard`, or any other). A check is one run's figure at
a place: the median over its boots, because nights differ by more than boots of a night, and one boot may stall.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Final, NamedTuple

from fsjoule.errors import ResultError
from fsjoule.host.inside import DOCUMENT_BYTES, read_inside
from fsjoule.model import Measurement, MeterInfo, PlainInfo, PoolPlace, Run
from fsjoule.model.kernel import Kernel, kernels_of
from fsjoule.model.meter import READ_S, TURN_S
from fsjoule.model.metrics import Metric, figure_of, uncertainty_of
from fsjoule.model.series import Series
from fsjoule.store.folder import RUN_FILE
from fsjoule.store.points import utc
from fsjoule.store.reader import load_run

STANDARD: Final = "standard"
# How fast the board works, and the watts that it takes: energy is their product.
FIGURES: Final = tuple(metric for metric in Metric if metric.row.speed or metric is Metric.POWER)


class CheckedPlace(NamedTuple):
    """A place, and the exporter that tells it from another lab's place of that name; "" if it has none."""

    name: str
    exporter: str


class Conditions(NamedTuple):
    """What a check's figures depend on. If one of these changes, another level is right, and a new chart begins.

    `calibration` is whatever the meter is corrected by, as text that only serves to compare. `restarted_utc` is when
    the place's charts were last begun anew by hand; "": never.
    """

    series: Series
    kernel: Kernel | None
    meter: str
    calibration: str
    restarted_utc: str = ""


class Checked(NamedTuple):
    """A figure above 0 in the metric's unit; `uncertainty` (k=1) is None for one that is not the meter's."""

    value: float
    uncertainty: float | None


@dataclass(frozen=True, slots=True)
class PlaceCheck:
    """One run's figures of one workload at a place. `started_utc` is its first measurement's.

    `work` is the workload's short name, which stays when its arguments change.
    """

    run_id: str
    started_utc: str
    place: CheckedPlace
    work: str
    conditions: Conditions
    figures: Mapping[Metric, Checked]


def read_checks(folders: Iterable[Path], suite: str = STANDARD) -> tuple[list[PlaceCheck], dict[str, str]]:
    """The checks of these run folders in the order of time, and damaged folders with reasons.

    Copies of a run count once. Measurements that are invalid, or of no lab, are no checks.
    """
    checks: dict[tuple[str, CheckedPlace, Conditions], PlaceCheck] = {}
    damaged: dict[str, str] = {}
    for folder in folders:
        try:
            if not _may_be_of(folder, suite):
                continue
            loaded = load_run(folder)
        except (ResultError, OSError) as error:
            damaged[str(folder)] = str(error)
            continue
        damaged |= {str(loaded.path / name): why for name, why in loaded.damaged.items()}
        for check in _checks(loaded.run, loaded.measurements, suite):
            checks.setdefault((check.run_id, check.place, check.conditions), check)
    return sorted(checks.values(), key=lambda check: (check.started_utc, check.run_id)), damaged


def runs_beside(folders: Iterable[Path]) -> list[Path]:
    """The run folders in the folders that hold these runs, these included; a folder that is gone has none."""
    found: set[Path] = set()
    for top in {folder.parent for folder in folders}:
        with suppress(OSError):
            found |= {each for each in top.iterdir() if (each / RUN_FILE).is_file()}
    return sorted(found)


def _may_be_of(folder: Path, suite: str) -> bool:
    """Whether a run names the suite at all. Most runs do not, and this is read faster than their measurements."""
    content = read_inside(folder, RUN_FILE, at_most=DOCUMENT_BYTES)
    return content is not None and f'"{suite}"'.encode() in content


def _checks(run: Run, measurements: Iterable[Measurement], suite: str) -> Iterable[PlaceCheck]:
    kernels = kernels_of(run)
    pool = {each.lab.place: each for each in run.places}
    if run.lab is not None:
        pool.setdefault("", PoolPlace(run.lab, run.meter))
    grouped: dict[tuple[CheckedPlace, Conditions], list[Measurement]] = {}
    for one in measurements:
        at = pool.get(one.place)
        if not one.valid or at is None or one.series.suite != suite:
            continue
        meter = at.meter or run.meter
        serial, calibration = ("", "") if meter is None else (meter.serial_number, _calibration(meter))
        series = Series(one.series, one.simulated or run.simulated)
        place = CheckedPlace(at.lab.place, at.lab.exporter_names)
        conditions = Conditions(series, kernels.get(one.kernel), serial, calibration)
        grouped.setdefault((place, conditions), []).append(one)
    for (place, conditions), group in grouped.items():
        found = {metric: checked for metric in FIGURES if (checked := _checked(group, metric)) is not None}
        started_utc = utc(min(one.started_utc for one in group))
        yield PlaceCheck(run.run_id, started_utc, place, group[0].workload.label, conditions, found)


def _checked(group: Iterable[Measurement], metric: Metric) -> Checked | None:
    boots: dict[int, list[float]] = {}
    uncertainties: list[float] = []
    for one in group:
        figure, uncertainty = figure_of(one, metric), uncertainty_of(one, metric)
        if figure is not None and figure > 0:
            boots.setdefault(one.boot, []).append(figure)
            uncertainties += [] if uncertainty is None else [uncertainty]
    if not boots:
        return None
    return Checked(median(map(median, boots.values())), fmean(uncertainties) if uncertainties else None)


def _calibration(meter: MeterInfo) -> str:
    if isinstance(meter, PlainInfo):
        # How long a reading takes is timed anew at each start.
        return repr(sorted((name, value) for name, value in meter.settings.items() if name not in (READ_S, TURN_S)))
    of_file = meter.file and (meter.file.shunt, meter.file.calibration)
    return repr((meter.calibration, meter.shunt_uohm, of_file))
