"""A run folder's measurements as points of series, for whoever compares folders and for an index alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fsjoule.errors import ResultError
from fsjoule.model import Measurement, Run
from fsjoule.model.kernel import Kernel, kernels_of
from fsjoule.model.metrics import Metric, figure_of, uncertainty_of
from fsjoule.model.series import Origin, Point, Series
from fsjoule.store.folder import MEASUREMENTS_FOLDER
from fsjoule.store.reader import LoadedRun, load_run
from fsjoule.store.run_folders import FolderFault

# A longer name is surely a mistake, and PostgreSQL could not index it.
_LONGEST_NAME: Final = 99
_LARGEST_NUMBER: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RunPoints:
    """A run and its measurements as points, each with its series. `kernels` are those that it booted, by label."""

    loaded: LoadedRun
    kernels: Mapping[str, Kernel]
    origin: Origin
    points: tuple[tuple[Series, Point], ...]
    damaged: tuple[FolderFault, ...]

    @property
    def run(self) -> Run:
        return self.loaded.run


def read_points(folder: Path) -> RunPoints | FolderFault:
    """Read a run folder and name its damaged parts. A FolderFault if nothing of it is usable."""
    try:
        return points_of(load_run(folder))
    except ResultError as error:
        return FolderFault(folder, error.what)
    except (OSError, ValueError) as error:
        return FolderFault(folder, f"it cannot be read: {error}")


def points_of(loaded: LoadedRun) -> RunPoints:
    """Raises ResultError if a name in run.json is none; measurements with such numbers are named as damaged."""
    run = loaded.run
    kernels = kernels_of(run)
    for name, text in _names(run, kernels):
        if not text.isprintable() or not 0 < len(text) <= _LONGEST_NAME:
            raise ResultError(
                f"{name}: {text[:_LONGEST_NAME]!r} is not a name of up to {_LONGEST_NAME} printable characters"
            )
    origin = Origin(run.place_names or None, run.exporter_names if run.labs else None, run.meter_names or None)
    points: list[tuple[Series, Point]] = []
    damaged = [FolderFault(loaded.path / MEASUREMENTS_FOLDER / name, why) for name, why in loaded.damaged.items()]
    for measurement in loaded.measurements:
        try:
            # An emulated meter on a real board makes it simulated; a simulated run has nothing else.
            series = Series(measurement.series, measurement.simulated or run.simulated)
            points.append((series, _point(run, measurement, kernels.get(measurement.kernel), origin)))
        except ResultError as error:
            damaged.append(FolderFault(loaded.folders[measurement.number], error.what))
    return RunPoints(loaded, kernels, origin, tuple(points), tuple(damaged))


def utc(text: str) -> str:
    """A checked time in the form of points: UTC, to the second, so that texts sort as times."""
    return datetime.fromisoformat(text).astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _point(run: Run, measurement: Measurement, kernel: Kernel | None, origin: Origin) -> Point:
    counts = {"number": measurement.number, "boot": measurement.boot, "repetition": measurement.repetition}
    for name, count in counts.items():
        if not 0 <= count <= _LARGEST_NUMBER:
            raise ResultError(f"{name}: {count} is impossible")
    figures = {metric: figure_of(measurement, metric) for metric in Metric}
    uncertainties = {metric: uncertainty_of(measurement, metric) for metric in Metric}
    return Point(
        **counts,
        run_id=run.run_id,
        started_utc=utc(measurement.started_utc),
        kernel=kernel,
        branch=run.versions.get("branch"),
        commit=run.versions.get("commit"),
        invalid_reasons=measurement.invalid_reasons,
        figures={metric: figure for metric, figure in figures.items() if figure is not None},
        uncertainties={metric: figure for metric, figure in uncertainties.items() if figure is not None},
        origin=origin,
        kernel_warnings=measurement.kernel_warnings,
    )


def _names(run: Run, kernels: Mapping[str, Kernel]) -> Iterator[tuple[str, str]]:
    yield "run_id", run.run_id
    for label, kernel in kernels.items():
        yield "the kernel's label", label
        yield "kernel_release", kernel.release
        yield "the kernel's version", kernel.version or "-"
