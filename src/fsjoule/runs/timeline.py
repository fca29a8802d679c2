"""Timelines: measurements whose events are traced now, or those that a run has kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fsjoule import lab
from fsjoule.bench.onboard import marks as onboard
from fsjoule.errors import ConfigError, MeasurementInvalid, ResultError
from fsjoule.meter.energy.timeline import timeline
from fsjoule.model import Measurement
from fsjoule.report.timeline import TimelineView
from fsjoule.runs.open_run import held_run
from fsjoule.runs.request import RunRequest, matching, with_profiles
from fsjoule.store.events import EVENTS_FILE, decode_events
from fsjoule.store.reader import LoadedRun, load_run
from fsjoule.verdicts.explanation.functions import executed

_HINT: Final = "fsjoule timeline --lg-env FILE measures with the kernel's events"


def measure_timelines(
    request: RunRequest, environment: lab.EnvironmentFile, *, command: tuple[str, ...]
) -> tuple[LoadedRun, tuple[TimelineView, ...]]:
    """Measure with the kernel's events, and with profiles where they cost nothing. Raises as `held_run` does."""
    exact = with_profiles(request, environment).profiled
    with held_run(replace(request, profiled=exact, traced=True), environment, command=command) as run:
        for entry in run.bench.plan.entries:
            run.bench.measure(entry)
        folder = run.folder
    loaded = load_run(folder)
    return loaded, read_timelines(loaded)


def read_timelines(
    loaded: LoadedRun, *, filesystems: Sequence[str] = (), select: str | None = None
) -> tuple[TimelineView, ...]:
    """The timelines of a run's measurements, of these filesystems and with names that match (-k).

    Raises ConfigError if none is chosen, ResultError if those chosen have no events, or none that fits.
    """
    matches = matching(select)
    chosen = [
        each
        for each in loaded.measurements
        if matches(f"{each.series.filesystem_title}-{each.workload.slug}")
        and (not filesystems or any(map(each.series.has_filesystem, filesystems)))
    ]
    if not chosen:
        there = ", ".join(dict.fromkeys(f"{m.series.filesystem_title}-{m.workload.slug}" for m in loaded.measurements))
        raise ConfigError("no measurement of the run is chosen", hint=f"there are {there or 'none'}")
    traced = [each for each in chosen if EVENTS_FILE in loaded.files(each.number).files]
    if not traced:
        raise ResultError(f"the run {loaded.path.name} has no events of the kernel", hint=_HINT)
    return tuple(_read(loaded, each) for each in traced)


def _read(loaded: LoadedRun, measurement: Measurement) -> TimelineView:
    number, name = measurement.number, f"measurement {measurement.number}, {measurement.slug}"
    content, trace, window = loaded.attachment(number, EVENTS_FILE), loaded.trace(number), measurement.window
    if content is None or trace is None or window is None:
        raise ResultError(f"{name} has no energy: {'; '.join(measurement.invalid_reasons)}")
    try:
        marks = onboard.start_mark(number), onboard.stop_mark(number)
        found = timeline(trace, window, marks, decode_events(content, loaded.path / EVENTS_FILE))
    except MeasurementInvalid as error:
        raise ResultError(f"{name}: {'; '.join(error.reasons)}") from error
    profile, symbols = loaded.profile(number), loaded.symbols(measurement.boot)
    functions = None
    if profile is not None and symbols is not None:
        functions = dict(executed(profile, symbols, loaded.programs()).times)
    return TimelineView(measurement, trace, found, functions)
