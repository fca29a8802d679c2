"""Explaining a change: profiles of two kernels are measured now, or those that a run has kept are read."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import Final

from fsjoule import lab
from fsjoule.errors import ConfigError, ResultError
from fsjoule.model import Measurement, SeriesKey, Symbols
from fsjoule.model.labels import series_labels
from fsjoule.runs.pairs import measure_pairs
from fsjoule.runs.profiler import check_profiled
from fsjoule.runs.request import Choice
from fsjoule.statistics.outcome import Outcome
from fsjoule.store.reader import LoadedRun, load_run
from fsjoule.verdicts.explanation.changes import Explanation, Windows, explain
from fsjoule.verdicts.explanation.functions import Executed, executed
from fsjoule.verdicts.gated import Gated

_KEEP: Final = "measure with --profile, on a board in guest time"


def explain_measured(
    choice: Choice, environment: lab.EnvironmentFile, *, say: Callable[[str], None], command: tuple[str, ...]
) -> tuple[Path, tuple[Explanation, ...]]:
    """Measure pairs of boots of a paired, profiled choice's two kernels; the run folder, and what differs.

    Raises ConfigError for a board that is not in guest time and for two kernels that are one, and as
    `pairs.measure_pairs` does.
    """
    check_profiled(environment)
    if len(set(choice.kernels)) == 1:
        raise ConfigError(f"both sides are kernel {choice.kernels[0]}: there is nothing to explain")
    run = measure_pairs(choice, environment, enough=lambda _pair: None, say=say, command=command)
    loaded = load_run(run.folder)
    return run.folder, explain_run(loaded, *loaded.run.plan.kernels)


def explain_run(
    loaded: LoadedRun,
    baseline: str,
    candidate: str,
    *,
    filesystems: tuple[str, ...] = (),
    workload: str | None = None,
    series: Container[SeriesKey] | None = None,
) -> tuple[Explanation, ...]:
    """Explain the difference between two kernels of a run with profiles, for each series.

    `filesystems`, `workload` and `series` choose the series; the default is all.
    Raises ConfigError for what the run has not, ResultError for a run without profiles, or without a boot's symbols.
    """
    kernels, sides_of = loaded.run.plan.kernels, (baseline, candidate)
    for kernel in sides_of:
        if kernel not in kernels:
            raise ConfigError.unknown(f"kernel of the run {loaded.path.name}", kernel, kernels)
    if baseline == candidate:
        raise ConfigError(f"both sides are kernel {baseline}: there is nothing to explain")
    chosen = [each for each in loaded.measurements if each.valid and each.kernel in sides_of]
    chosen = _with(chosen, "filesystem", filesystems, lambda each: (each.series.filesystem,))
    names = () if workload is None else (workload,)
    chosen = _with(chosen, "workload", names, lambda each: (each.workload.slug, each.workload.operation.value))
    kept = _Kept(loaded)
    labels = series_labels([each.series for each in chosen])
    found: list[Explanation] = []
    for key in dict.fromkeys(each.series for each in chosen if series is None or each.series in series):
        sides = [[each for each in chosen if (each.series, each.kernel) == (key, kernel)] for kernel in sides_of]
        first, last = (Windows(kernel, kept.windows(side)) for kernel, side in zip(sides_of, sides, strict=True))
        if first.windows and last.windows:
            measured = sides[0][0]
            unit = "operation" if measured.throughput_mib_per_s is None else "MiB"
            title = f"{labels[key]} {measured.workload.slug}"
            found.append(explain(title, unit, first, last, simulated=measured.simulated))
    if not found:
        raise kept.why_not(baseline, candidate)
    return tuple(found)


def explain_gated(gated: Gated) -> tuple[Explanation, ...]:
    """Explain each series that regressed in a gate, by the profiles of the gate's own run.

    Raises ResultError for a gate whose run has none.
    """
    if gated.folder is None:
        raise ResultError("the gate measured nothing: there are no profiles", hint=_KEEP)
    worse = {one.subject.series for one in gated.findings if one.outcome is Outcome.REGRESSED}
    return explain_run(load_run(Path(gated.folder)), gated.baseline.name, gated.candidate.name, series=worse)


class _Kept:
    """The profiles that a run has kept, by function."""

    def __init__(self, loaded: LoadedRun) -> None:
        self._loaded = loaded
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

    def why_not(self, baseline: str, candidate: str) -> ResultError:
        """Why nothing can be explained."""
        path = self._loaded.path
        if self._without_symbols:
            boots = ", ".join(map(str, sorted(self._without_symbols)))
            return ResultError(
                f"{path} has profiles, but no symbols of boot {boots}",
                hint="its kernel was built without CONFIG_KALLSYMS, or the run was broken off on that boot",
            )
        return ResultError(f"{path} has no profiles of both {baseline} and {candidate} for any series", hint=_KEEP)


def _with(
    measurements: Sequence[Measurement], what: str, wanted: Sequence[str], names: Callable[[Measurement], Sequence[str]]
) -> list[Measurement]:
    """The measurements with one of the wanted names; all if none is wanted. Raises ConfigError for an unknown name."""
    known = dict.fromkeys(names(each)[0] for each in measurements)
    for name in wanted:
        if not any(name in names(each) for each in measurements):
            raise ConfigError.unknown(f"{what} of these kernels' valid measurements", name, known)
    return [each for each in measurements if not wanted or set(wanted).intersection(names(each))]
