"""Explanations: profiles of two kernels, and timelines of measurements whose events are traced.

They are measured now, or those that a run has kept are read.
"""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fsjoule import lab
from fsjoule.bench.onboard import marks as onboard
from fsjoule.errors import ConfigError, MeasurementInvalid, ResultError
from fsjoule.host.paths import project_dir
from fsjoule.meter.energy.timeline import timeline
from fsjoule.model import SAMPLED, Measurement, SeriesKey, Symbols
from fsjoule.model.kernel import kernels_of
from fsjoule.model.kernel_events import KernelEvents
from fsjoule.model.labels import series_labels
from fsjoule.model.layer import NO_LAYERS
from fsjoule.model.series import Series
from fsjoule.report.timeline import TimelineView
from fsjoule.runs.open_run import held_run
from fsjoule.runs.pairs import measure_pairs
from fsjoule.runs.request import RunRequest, matching, with_profiles
from fsjoule.statistics.outcome import Outcome
from fsjoule.store.events import EVENTS_FILE, decode_events
from fsjoule.store.gate import Gated
from fsjoule.store.objects.address import is_address
from fsjoule.store.objects.cache import at_hand
from fsjoule.store.profiles import PROFILE_FILE
from fsjoule.store.reader import LoadedRun, load_run
from fsjoule.store.states import ChangeState, KeptState
from fsjoule.verdicts.comparison import Compared
from fsjoule.verdicts.explanation.changes import Explanation, Windows, explain
from fsjoule.verdicts.explanation.functions import Executed, executed

_KEEP: Final = "measure with --profile, on a board in guest time"
_HINT: Final = "fsjoule timeline --lg-env FILE measures with the kernel's events"


def explain_measured(
    choice: RunRequest, environment: lab.EnvironmentFile, *, command: tuple[str, ...]
) -> tuple[LoadedRun, tuple[Explanation, ...]]:
    """Measure pairs of boots of a paired, profiled choice's two kernels; the run, and what differs.

    A board that is not in guest time is sampled. Raises ConfigError for a board that cannot be, for two kernels that
    are one, and as `pairs.measure_pairs` does.
    """
    if len(set(choice.kernels)) == 1:
        raise ConfigError(f"both sides are kernel {choice.kernels[0]}: there is nothing to explain")
    run = measure_pairs(with_profiles(choice, environment), environment, enough=lambda _pair: None, command=command)
    loaded = load_run(run.folder)
    return loaded, explain_run(loaded, *loaded.run.plan.kernels)


def explain_run(
    loaded: LoadedRun,
    baseline: str,
    candidate: str,
    *,
    filesystems: tuple[str, ...] = (),
    select: str | None = None,
    series: Container[SeriesKey] | None = None,
) -> tuple[Explanation, ...]:
    """Explain the difference between two kernels of a run with profiles, for each series; or between two stacks.

    Stacks are named as for `--stack`; the run has one kernel then. `filesystems`, `select` (-k, by their titles) and
    `series` choose the series; the default is all.
    Raises ConfigError for what the run has not, ResultError for a run without profiles, or without a boot's symbols.
    """
    stacks = {each.series.stack or NO_LAYERS for each in loaded.measurements}
    by_stack = len(loaded.run.plan.kernels) == 1 and {baseline, candidate} <= stacks
    for kernel in () if by_stack else (baseline, candidate):
        if kernel not in loaded.run.plan.kernels:
            choices = [*loaded.run.plan.kernels, *(sorted(stacks) if len(stacks) > 1 else ())]
            raise ConfigError.unknown(f"kernel of the run {loaded.path.name}", kernel, choices)
    if baseline == candidate:
        raise ConfigError(f"both sides are {baseline}: there is nothing to explain")
    profiles = _Kept(loaded)

    def side_of(measurement: Measurement) -> str:
        return measurement.series.stack or NO_LAYERS if by_stack else measurement.kernel

    valid = [each for each in loaded.measurements if _is_usable(each) and side_of(each) in (baseline, candidate)]
    known = dict.fromkeys(each.series.filesystem_title for each in valid)
    for name in filesystems:
        if not any(each.series.has_filesystem(name) for each in valid):
            raise ConfigError.unknown("filesystem of these kernels' valid measurements", name, known)
    valid = [each for each in valid if not filesystems or any(map(each.series.has_filesystem, filesystems))]
    matches = matching(select)
    names = {each.series: f"{each.series.filesystem_title}-{each.workload.slug}" for each in valid}
    valid = [each for each in valid if matches(names[each.series])]
    if not valid:
        there = ", ".join(dict.fromkeys(names.values()))
        raise ConfigError(f"-k {select}: no measurement has a name that matches", hint=f"there are {there}")
    chosen = [each for each in valid if series is None or each.series in series]
    sides = [
        _Side(name, profiles, [each for each in chosen if side_of(each) == name]) for name in (baseline, candidate)
    ]
    if by_stack:  # one series on both sides
        sides = [replace(side, measurements=[_without_layers(each) for each in side.measurements]) for side in sides]
    return _explained(*sides)


def explained_states(
    loaded: LoadedRun, baseline: str, candidate: str, explanations: Iterable[Explanation]
) -> list[KeptState]:
    """For the index: the changes of these series between the two kernels are explained, in any figure."""
    kernels, explained = kernels_of(loaded.run), {each.series for each in explanations}
    if not kernels.keys() >= {baseline, candidate}:
        return []
    measured = {each.series: each for each in loaded.measurements if each.valid}
    labels = series_labels(list(measured))
    older, newer = sorted((kernels[baseline], kernels[candidate]), key=lambda kernel: kernel.order)
    return [
        KeptState(
            Series(key, each.simulated or loaded.run.simulated).key,
            ChangeState.EXPLAINED,
            kernels=(older, newer),
            run_id=loaded.run.run_id,
        )
        for key, each in measured.items()
        if _title(labels, each) in explained
    ]


def explain_pair(baseline: tuple[str, LoadedRun], candidate: tuple[str, LoadedRun]) -> tuple[Explanation, ...]:
    """Explain the difference between two runs of a kernel each, by the names that they are to have here.

    Raises ResultError if one of them has no profiles, or no symbols.
    """
    sides = [
        _Side(name, _Kept(loaded), [each for each in loaded.measurements if _is_usable(each)])
        for name, loaded in (baseline, candidate)
    ]
    return _explained(*sides)


def explain_gated(gated: Gated) -> tuple[Explanation, ...]:
    """Explain each series that regressed in a gate, by the profiles of the gate's own run.

    Raises ResultError for a gate whose run has none.
    """
    if gated.folder is None:
        raise ResultError("the gate measured nothing: there are no profiles", hint=_KEEP)
    worse = {one.subject.series for one in gated.findings if one.outcome is Outcome.REGRESSED}
    return explain_run(load_run(Path(gated.folder)), gated.baseline.name, gated.candidate.name, series=worse)


def explain_compared(compared: Compared, *, fetches: bool = True) -> tuple[Explanation, ...]:
    """Explain the series that changed between two kernels of one run, or differ far on single boots.

    Empty if nothing did, if the sides are no kernels of one run, or if that run has no profiles.
    Without `fetches` a run in an object store has none here.
    Raises ResultError if its profiles cannot be read.
    """
    series = {one.subject.series for one in compared.findings if one.changed or one.far}
    folders = [folder for folder in compared.folders.values() if folder.is_dir() or (fetches and is_address(folder))]
    if not series or len(compared.folders) != 1 or not folders:
        return ()
    loaded = load_run(at_hand(folders[0]))
    names = (compared.baseline.name, compared.candidate.name)
    profiled = any(PROFILE_FILE in loaded.files(each.number).files for each in loaded.measurements)
    if not profiled or not set(names) <= set(loaded.run.plan.kernels):
        return ()
    return explain_run(loaded, *names, series=series)


@dataclass(frozen=True, slots=True)
class _Side:
    """A kernel's valid measurements, and the profiles of their run."""

    kernel: str
    kept: _Kept
    measurements: Sequence[Measurement]

    def windows(self, key: SeriesKey) -> Windows:
        return Windows(self.kernel, self.kept.windows(each for each in self.measurements if each.series == key))


def _explained(baseline: _Side, candidate: _Side) -> tuple[Explanation, ...]:
    """Explain each series that both sides have measured with a profile."""
    measured = {each.series: each for each in (*baseline.measurements, *candidate.measurements)}
    labels = series_labels(list(measured))
    explanations: list[Explanation] = []
    for key, each in measured.items():
        first, last = baseline.windows(key), candidate.windows(key)
        if first.windows and last.windows:
            unit = "operation" if each.throughput_mib_per_s is None else "MiB"
            explanations.append(explain(_title(labels, each), unit, first, last, simulated=each.simulated))
    if not explanations:
        if lacking := baseline.kept.without() or candidate.kept.without():
            raise lacking
        where = " and ".join(dict.fromkeys(str(side.kept.path) for side in (baseline, candidate)))
        board = str(project_dir() / "env" / "deterministic.yaml")
        words = ("fsjoule", "explain", baseline.kernel, candidate.kernel, "--lg-env", board)
        raise ResultError(
            f"{where}: no profiles of both {baseline.kernel} and {candidate.kernel} for any series",
            hint=f"measure them with profiles: {shlex.join(words)}",
        )
    return tuple(explanations)


def _without_layers(measurement: Measurement) -> Measurement:
    return replace(measurement, series=replace(measurement.series, storage=measurement.series.device))


def _title(labels: Mapping[SeriesKey, str], measurement: Measurement) -> str:
    return f"{labels[measurement.series]} {measurement.workload.slug}"


class _Kept:
    """The profiles that a run has kept, by function."""

    def __init__(self, loaded: LoadedRun) -> None:
        self._loaded = loaded
        self.path = loaded.path
        self._symbols: dict[int, Symbols | None] = {}
        self._without_symbols: set[int] = set()
        self._programs = loaded.programs()

    def windows(self, measurements: Iterable[Measurement]) -> list[tuple[Executed, float]]:
        """Windows that have a profile and their boot's symbols, with the MiB that each moved (1 for an operation)."""
        windows: list[tuple[Executed, float]] = []
        for each in measurements:
            profile = self._loaded.profile(each.number)
            if profile is None:
                continue
            if each.boot not in self._symbols:
                self._symbols[each.boot] = self._loaded.symbols(each.boot)
            symbols = self._symbols[each.boot]
            if symbols is None:
                self._without_symbols.add(each.boot)
                continue
            units = (each.throughput_mib_per_s or 0.0) * (each.duration_s or 0.0)
            windows.append((executed(profile, symbols, self._programs), units or 1.0))
        return windows

    def without(self) -> ResultError | None:
        """Why profiles of this run tell nothing: boots without symbols."""
        if not self._without_symbols:
            return None
        boots = ", ".join(map(str, sorted(self._without_symbols)))
        return ResultError(
            f"{self.path} has profiles, but no symbols of boot {boots}",
            hint="its kernel was built without CONFIG_KALLSYMS, or the run was broken off on that boot",
        )


def _is_usable(measurement: Measurement) -> bool:
    """Whether its profile tells what the work executed."""
    return measurement.valid or measurement.invalid_reasons == (SAMPLED,)


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


def _marks(events: KernelEvents, number: int) -> tuple[str, str]:
    """A measurement's marks among its events; in guest time they have the number within the boot."""
    start, stop = (
        next((mark for mark in events.marks if mark[:1] == usual[0]), usual)
        for usual in (onboard.start_mark(number), onboard.stop_mark(number))
    )
    return start, stop


def _read(loaded: LoadedRun, measurement: Measurement) -> TimelineView:
    number, name = measurement.number, f"measurement {measurement.number}, {measurement.slug}"
    content, trace, window = loaded.attachment(number, EVENTS_FILE), loaded.trace(number), measurement.window
    if content is None or trace is None or window is None:
        raise ResultError(f"{name} has no energy: {'; '.join(measurement.invalid_reasons)}")
    try:
        events = decode_events(content, loaded.path / EVENTS_FILE)
        found = timeline(trace, window, _marks(events, number), events)
    except MeasurementInvalid as error:
        raise ResultError(f"{name}: {'; '.join(error.reasons)}") from error
    profile, symbols = loaded.profile(number), loaded.symbols(measurement.boot)
    functions = None
    if profile is not None and symbols is not None:
        functions = dict(executed(profile, symbols, loaded.programs()).times)
    return TimelineView(measurement, trace, found, functions)
