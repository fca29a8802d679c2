"""Pairs of boots: a baseline and a candidate boot in turn until the caller has seen enough figures.

`measure_pairs` does it on the board of an environment file, into an ordinary run folder; `run_pairs` is the loop
itself, over a bench.

Both boots of a pair share their seed (`suites.repetition_seed`): workloads come in the same order with the same random
offsets, which then affect both sides alike. The next pair has another seed, so that no seed's effect passes for the
kernel's.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from types import MappingProxyType
from typing import Final

from fsjoule import lab
from fsjoule.bench.boots import boot_key
from fsjoule.bench.run import Bench
from fsjoule.errors import InfrastructureError, LabError
from fsjoule.kernels import TakenKernel
from fsjoule.model import Measurement, Plan, Planned, Provision
from fsjoule.model.labels import counted
from fsjoule.model.metrics import Figure, figure_of, metrics_of, step_in
from fsjoule.model.series import Series
from fsjoule.runs.open_run import Observer, held_run
from fsjoule.runs.request import RunRequest
from fsjoule.statistics.figures import Turn
from fsjoule.store.points import read_points
from fsjoule.store.run_folders import FolderFault
from fsjoule.verdicts.drift import doubts_beside
from fsjoule.verdicts.gate import BootPair, Enough, Test
from fsjoule.verdicts.remarks import place_notes

_log: Final = logging.getLogger(__name__)

# More boots do not help a side whose boots fail this often in a row.
_FAILURES_IN_A_ROW: Final = 2


@dataclass(frozen=True, slots=True)
class PairedRun:
    """The run folder, the number of pairs, why the run ended, and how many of the boots are those of earlier runs."""

    folder: Path
    pairs: int
    ended: str
    known_boots: int = 0


def measure_pairs(
    request: RunRequest,
    environment: lab.EnvironmentFile,
    *,
    taken: tuple[TakenKernel, ...] = (),
    enough: Enough,
    command: tuple[str, ...],
    observer: Observer | None = None,
    earlier: Sequence[Path] = (),
) -> PairedRun:
    """Measure pairs of boots of the two kernels of a paired request, at most `request.repeat`.

    `taken`, `observer`, `earlier` and what is left behind are those of `held_run`.
    Raises ConfigError, and LabError when the lab fails twice in a row for one side.
    """
    with held_run(request, environment, taken=taken, command=command, observer=observer, earlier=earlier) as run:
        known = run.plan.known
        pairs, ended = run_pairs(run.bench, enough, known)
        run.end_early(ended)
    return PairedRun(run.folder, pairs, ended, known_of(run.plan.plan, known, pairs))


def known_of(plan: Plan, known: Collection[int], pairs: int) -> int:
    """How many boots of the first pairs have entries that are known."""
    return len({boot_key(entry) for entry in plan.entries if entry.number in known and entry.repetition <= pairs})


def run_pairs(bench: Bench, enough: Enough, known: Mapping[int, Measurement] = MappingProxyType({})) -> tuple[int, str]:
    """Measure the bench's plan pair by pair; returns the number of pairs and why the loop ended.

    What is `known`, by the plan's numbers, is not measured. A fault costs a boot its remaining figures. Raises LabError
    if one side fails twice in a row, scratch and root apart, and the fault at once if it ends the run.
    """
    baseline, candidate = bench.plan.kernels
    side = {baseline: Turn.BASELINE, candidate: Turn.CANDIDATE}
    series = len({entry.slug for entry in bench.plan.entries})
    failures = Counter[tuple[Turn, Provision]]()
    number = 0
    for number, entries in groupby(bench.plan.entries, key=lambda entry: entry.repetition):
        measured: dict[Turn, list[Measurement]] = {each: [] for each in Turn}
        faults: list[str] = []
        for (_, label, provision, _), boot in groupby(entries, key=boot_key):
            which = side[label]
            _log.info("pair %s of at most %s: %s, kernel %s", number, bench.plan.repeat, which, label)
            fault = _measure_boot(bench, boot, known, measured[which])
            # A side whose root never boots may well boot for its scratch filesystems in between.
            failures[which, provision] = 0 if fault is None else failures[which, provision] + 1
            if fault is None:
                continue
            faults.append(f"{which} {number}: {fault.what.splitlines()[0]}")
            if failures[which, provision] >= _FAILURES_IN_A_ROW:
                raise LabError(
                    f"the {which}, kernel {label}, failed {failures[which, provision]} times in a row: {fault.what}",
                    hint=fault.hint,
                ) from fault
        steps = steps_by_test(chain.from_iterable(measured.values()))
        none = _left_out(measured)
        figures = {test: each for test, each in _paired(measured).items() if test[0] not in none}
        pair = BootPair(number, figures, series - len(none), tuple(faults), _warned(measured), steps, frozenset(none))
        reason = enough(pair)
        if reason is not None:
            return number, f"{reason} after {counted(number, 'pair')}"
    return number, f"the budget of {counted(number, 'pair')} was used up"


def _measure_boot(
    bench: Bench, entries: Iterable[Planned], known: Mapping[int, Measurement], into: list[Measurement]
) -> InfrastructureError | None:
    """Measure the entries of one boot; returns the fault that ended it, or None."""
    fault: InfrastructureError | None = None
    for entry in entries:  # to the end in any case, because groupby needs it
        if fault is not None:
            continue
        try:
            into.append(known[entry.number] if entry.number in known else bench.measure(entry))
        except InfrastructureError as error:
            if error.ends_run:
                raise
            _log.info("%s: %s", entry.slug, error)
            fault = error
    return fault


def _paired(measured: Mapping[Turn, Sequence[Measurement]]) -> dict[Test, tuple[Figure, Figure]]:
    """Each test's figures on both sides, for all tests that either side has."""
    baseline, candidate = (figures_by_test(measured[side]) for side in Turn)
    return {test: (baseline.get(test), candidate.get(test)) for test in {**baseline, **candidate}}


def _left_out(measured: Mapping[Turn, Sequence[Measurement]]) -> set[Series]:
    """The segments from power-on, and the states, that neither boot has. A state that lost its power was held."""

    def empty(side: Turn) -> set[Series]:
        return {
            Series(each.series, each.simulated)
            for each in measured[side]
            if each.series.is_optional
            and each.valid
            and each.held is None
            and all(figure_of(each, metric) is None for metric in metrics_of(each.workload))
        }

    return empty(Turn.BASELINE) & empty(Turn.CANDIDATE)


def drift_notes(folder: Path) -> list[str]:
    """A note for each place that was out of control when it booted these pairs."""
    read = read_points(folder)
    points = [] if isinstance(read, FolderFault) else [point for _, point in read.points]
    return place_notes("both sides", points, doubts_beside([folder]))


def _warned(measured: Mapping[Turn, Sequence[Measurement]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    baseline, candidate = (chain.from_iterable(m.kernel_warnings for m in measured[side]) for side in Turn)
    return tuple(dict.fromkeys(baseline)), tuple(dict.fromkeys(candidate))


def figures_by_test(measurements: Iterable[Measurement]) -> dict[Test, Figure]:
    """The figures of one boot by test; None for missing or invalid ones."""
    return {
        (Series(each.series, each.simulated), metric): figure_of(each, metric) if each.valid else None
        for each in measurements
        for metric in metrics_of(each.workload)
    }


def steps_by_test(measurements: Iterable[Measurement]) -> dict[Test, float]:
    """The largest share by which a clock may have rounded a test's figures, for tests with such a clock."""
    steps: dict[Test, float] = {}
    for each in measurements:
        for metric in metrics_of(each.workload):
            if step := step_in(each, metric):
                test = Series(each.series, each.simulated), metric
                steps[test] = max(step, steps.get(test, 0.0))
    return steps
