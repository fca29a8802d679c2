"""A run in KCIDB's JSON, in which CI systems tell kernelci.org of their tests (https://docs.kernelci.org/kcidb/).

A kernel is a checkout and a build, a figure of a measurement is a test. A test is DONE with its number, ERROR if its
measurement is invalid, SKIP if the figure needs a meter and the board has none on purpose, and MISS if it is absent for
another reason (the meter failed).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from fsjoule.errors import ConfigError, NoMeterError
from fsjoule.model import KernelFacts, Measurement, Run
from fsjoule.model.labels import counted
from fsjoule.model.metrics import Metric, figure_of, metrics_told, uncertainty_of

SCHEMA_VERSION: Final = {"major": 5, "minor": 3}
_ORIGIN: Final = re.compile(r"[a-z0-9_]+")
_BUILD: Final = re.compile(r"[a-z0-9_]+:\S+")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_DIGITS: Final = 16
_NO_METER: Final = f"no energy: {NoMeterError().what}"  # a measurement's note


def to_kcidb(run: Run, measurements: Sequence[Measurement], origin: str, build: str | None = None) -> str:
    """The run as a JSON document. `origin` is the CI system's name there. Raises ConfigError for a wrong one.

    `build` is the number of the run's only kernel, if KCIDB knows its build already: it and its checkout are left out.
    """
    check_origin(origin)
    if build is not None and (not _BUILD.fullmatch(build) or len(run.kernels) != 1):
        raise ConfigError(
            f"{build!r} is not the build of this run's {counted(len(run.kernels), 'kernel')}",
            hint="a build is ORIGIN:NUMBER, and a run of one kernel has one",
        )
    builds = {kernel.label: build or f"{origin}:{_identity(kernel)}" for kernel in run.kernels}
    kernels = {builds[kernel.label]: kernel for kernel in reversed(run.kernels)}  # of equal ones the first
    document = {
        "version": SCHEMA_VERSION,
        "checkouts": [] if build else [_checkout(kernel, each, origin) for each, kernel in kernels.items()],
        "builds": [] if build else [_build(kernel, each, origin) for each, kernel in kernels.items()],
        "tests": [
            test
            for measurement in measurements
            if measurement.kernel in builds
            for test in _tests(run, measurement, builds[measurement.kernel], origin)
        ],
    }
    # Whoever edits a run folder may rename its kernels.
    if measurements and not document["tests"]:
        raise ConfigError(f"the run {run.run_id} does not say on which kernel it measured")
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def check_origin(origin: str) -> None:
    """Raise ConfigError for what cannot be a CI system's name."""
    if not _ORIGIN.fullmatch(origin):
        raise ConfigError(f"--origin {origin!r} is no name of a CI system", hint="use a-z, 0-9 and _")


def _identity(kernel: KernelFacts) -> str:
    """Equal kernels are one build, whichever run measured them."""
    return kernel.digest[:_DIGITS] or _UNSAFE.sub("_", f"{kernel.release}-{kernel.label}")


def _checkout(kernel: KernelFacts, build: str, origin: str) -> dict[str, Any]:
    told = {"id": build, "origin": origin, "valid": True, "comment": kernel.package or kernel.release or kernel.asked}
    return told | ({"git_commit_name": kernel.git_describe} if kernel.git_describe else {})


def _build(kernel: KernelFacts, build: str, origin: str) -> dict[str, Any]:
    told = {"id": build, "checkout_id": build, "origin": origin, "status": "PASS"}
    return {**told, "comment": f"kernel {kernel.label}, {kernel.origin.value}"}


def _tests(run: Run, measurement: Measurement, build: str, origin: str) -> Iterator[dict[str, Any]]:
    simulated = measurement.simulated or run.simulated
    group = "fsjoule-simulated" if simulated else "fsjoule"
    for metric in metrics_told(measurement):
        parts = (group, measurement.series.suite, measurement.slug, metric.value)
        test: dict[str, Any] = {
            "id": f"{origin}:{run.run_id}-{measurement.number}-{metric.value}",
            "build_id": build,
            "origin": origin,
            "path": ".".join(_UNSAFE.sub("_", part) for part in parts),
            "comment": f"{measurement.slug}: {metric.value}{' (simulated)' if simulated else ''}",
            "start_time": measurement.started_utc,
            "environment": _environment(run, measurement, simulated=simulated),
            "misc": {"fsjoule": _more(run, measurement, metric)},
        }
        if run.job is not None and run.job.url:
            test["log_url"] = run.job.url
        if measurement.duration_s is not None:
            test["duration"] = measurement.duration_s
        figure = figure_of(measurement, metric)
        if not measurement.valid:
            test |= {"status": "ERROR", "log_excerpt": "\n".join(measurement.invalid_reasons)}
        elif figure is None:
            test["status"] = "SKIP" if metric.row.metered and _NO_METER in measurement.notes else "MISS"
        else:
            number = {"value": figure} | ({"unit": metric.unit} if metric.unit else {})
            test |= {"status": "DONE", "number": number}
        yield test


def _environment(run: Run, measurement: Measurement, *, simulated: bool) -> dict[str, Any]:
    series = measurement.series
    facts = {
        "place": measurement.place or run.place_names,
        "storage": series.storage,
        "filesystem": series.filesystem,
        "mount_options": " ".join(series.mount_options),
        "meter": run.meter_names,
    }
    comment = f"{series.board}{', simulated' if simulated else ''}"
    return {"comment": comment, "misc": {name: text for name, text in facts.items() if text}}


def _more(run: Run, measurement: Measurement, metric: Metric) -> dict[str, Any]:
    found = {"run": run.run_id, "boot": measurement.boot, "repetition": measurement.repetition}
    uncertainty = uncertainty_of(measurement, metric)
    return found if uncertainty is None else {**found, "standard_uncertainty": uncertainty}
