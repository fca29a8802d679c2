"""`fsjoule gate` over recorded boots, which are paired in the order of time. Pure but for `gate_recorded`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.model.metrics import Figure, Metric, metrics_of_series
from fsjoule.model.series import Point, Series, Side, comparable, step_share
from fsjoule.statistics.figures import one_per_boot
from fsjoule.statistics.policy import Policy
from fsjoule.store.gate import Gated, GateSide, GateVerdict
from fsjoule.store.selection import UnknownNameError
from fsjoule.verdicts.drift import doubts_beside
from fsjoule.verdicts.gate import BootPair, Judge, Test
from fsjoule.verdicts.remarks import check_boards, drift_notes, origin_notes, single_notes


def gate_recorded(
    baseline_name: str,
    candidate_name: str,
    read: Callable[[str], Side],
    policy: Policy,
    *,
    drift_not_excluded: bool = False,
    across_boards: bool = False,
    command: tuple[str, ...],
) -> Gated:
    """The gate's answer from recorded boots, pair by pair in the order of time, until it is clear.

    `read` gives the side of a name. A baseline that the index does not know yet gives NO_BASELINE. Raises ConfigError
    for an unknown candidate, and for sides that cannot be compared.
    """
    candidate = read(candidate_name)
    try:
        baseline = read(baseline_name)
    except UnknownNameError as error:
        return Gated(
            GateVerdict.NO_BASELINE,
            GateSide(baseline_name, f"{error.what}"),
            _named(candidate),
            policy,
            f"{baseline_name} has no measurements yet",
            command=command,
        )
    damaged = {**candidate.damaged, **baseline.damaged}
    if not any(baseline.points.values()):
        hint = "fsjoule show RUN, or fsjoule index series, lists what was measured, and where"
        raise ConfigError(f"{baseline.title} has no matching measurement", hint=hint)
    pairs, notes = recorded_pairs(
        baseline, candidate, drift_not_excluded=drift_not_excluded, across_boards=across_boards
    )
    guest_time = baseline.guest_time and candidate.guest_time
    budget = min(policy.budget_pairs, max(len(pairs), 1))
    judge = Judge(replace(policy, budget_pairs=budget), guest_time=guest_time)
    reason: str | None = None
    for pair in pairs:
        reason = judge.see(pair)
        if reason is not None:
            break
    judge.finish()
    if judge.verdict is GateVerdict.UNDECIDED and len(pairs) < policy.budget_pairs:
        reason = "there is no more than 1 pair" if len(pairs) == 1 else f"there are no more than {len(pairs)} pairs"
    return Gated(
        verdict=judge.verdict,
        baseline=_named(baseline),
        candidate=_named(candidate),
        policy=policy,
        ended=reason or "the budget was used up",
        pairs=judge.pairs,
        findings=judge.findings,
        notes=(
            *notes,
            *drift_notes(baseline, candidate, doubts_beside([*baseline.folders.values(), *candidate.folders.values()])),
            *single_notes(judge.findings),
            *(f"{path} was left out: {reason}" for path, reason in damaged.items()),
        ),
        faults=tuple(judge.faults),
        kernel_warnings=judge.kernel_warnings,
        command=command,
        folders={**baseline.folders, **candidate.folders},
    )


def _named(side: Side) -> GateSide:
    return GateSide(side.name, side.title)


_INTERLEAVE: Final = "measure both now: --lg-env FILE; or in one run: fsjoule bench --kernel A,B --repeat N"
_ANYWAY: Final = "--drift-not-excluded takes them as they are"

# A run and its repetition; without interleaving only the number of the boot on its side.
_Slot = tuple[str, int]


def recorded_pairs(
    baseline: Side, candidate: Side, *, drift_not_excluded: bool = False, across_boards: bool = False
) -> tuple[list[BootPair], list[str]]:
    """Pairs of both sides' boots, oldest first, and notes for readers.

    A pair is a repetition of one run with boots of both sides, one after the other. With `drift_not_excluded` the first
    boot of one side is paired with the first of the other, and so on. Raises ConfigError, with a hint, if there is no
    pair, or if the sides are the same or not comparable.
    """
    check_boards(baseline, candidate, across=across_boards)
    sides = (baseline, candidate)
    lacking = {series for side in sides for series in side.points if series.series.is_optional} - {
        series for side in sides for series, group in side.points.items() if any(point.figures for point in group)
    }
    common = comparable(*([each for each in _measured(side) if each not in lacking] for side in sides))
    both = [{series: side.points[series] for series in common} for side in sides]
    numbers = [{(point.run_id, point.number) for group in points.values() for point in group} for points in both]
    if numbers[0] & numbers[1]:
        raise ConfigError(
            f"{baseline.title} and {candidate.title} share {len(numbers[0] & numbers[1])} measurements",
            hint="name two kernels of one run: KERNEL@RUN KERNEL@RUN",
        )
    notes = origin_notes(baseline, candidate)
    for name, side in (("baseline", baseline), ("candidate", candidate)):
        if only := [series.label for series in side.points if series not in common and series not in lacking]:
            notes.append(f"only the {name} has {', '.join(only)}: not tested")
    if lacking:
        names = ", ".join(sorted(series.label for series in lacking))
        notes.append(f"not tested, because neither side has it: {names}")
    if drift_not_excluded:
        notes.append("boots were paired by age, interleaved or not: a drift between the sides is not excluded")
        slotted = [_by_boot(points) for points in both]
    else:
        _check_interleaved(baseline, candidate, both)
        slotted = [_by_repetition(points) for points in both]
    slots = [slot for slot in _in_time(both, slotted[0]) if slot in slotted[1]]
    pairs = [
        BootPair(
            number,
            _figures(common, slotted[0][slot], slotted[1][slot]),
            len(common),
            kernel_warnings=(_warned(slotted[0][slot]), _warned(slotted[1][slot])),
            steps=_steps(common, slotted[0][slot], slotted[1][slot]),
        )
        for number, slot in enumerate(slots, start=1)
    ]
    return pairs, notes


Slotted = Mapping[_Slot, Mapping[Series, Sequence[Point]]]


def _measured(side: Side) -> list[Series]:
    return [series for series, group in side.points.items() if any(point.valid for point in group)]


def _check_interleaved(baseline: Side, candidate: Side, both: Sequence[Mapping[Series, Sequence[Point]]]) -> None:
    """Raise ConfigError unless a run has both sides, and each repetition of such a run ends before the next."""
    boots: list[dict[_Slot, list[int]]] = [{}, {}]
    for side, points in zip(boots, both, strict=True):
        for group in points.values():
            for point in group:
                side.setdefault((point.run_id, point.repetition), []).append(point.boot)
    shared = {run for run, _ in boots[0]} & {run for run, _ in boots[1]}
    if not shared:
        raise ConfigError(
            f"{baseline.title} and {candidate.title} were measured in different runs: a drift between them would look "
            "like a change",
            hint=f"{_INTERLEAVE}; {_ANYWAY}",
        )
    slots = sorted({slot for side in boots for slot in side if slot[0] in shared})
    latest: dict[str, int] = {}
    for slot in slots:
        run, _ = slot
        boots_of_slot = [boot for side in boots for boot in side.get(slot, ())]
        if min(boots_of_slot) <= latest.get(run, 0):
            raise ConfigError(
                f"the boots of run {run} were not interleaved: its repetitions overlap",
                hint=f"{_INTERLEAVE}; {_ANYWAY}",
            )
        latest[run] = max(boots_of_slot)


def _by_repetition(points: Mapping[Series, Sequence[Point]]) -> Slotted:
    slots: dict[_Slot, dict[Series, list[Point]]] = {}
    for series, group in points.items():
        for point in group:
            slots.setdefault((point.run_id, point.repetition), {}).setdefault(series, []).append(point)
    return slots


def _by_boot(points: Mapping[Series, Sequence[Point]]) -> Slotted:
    """The boots that measured each series, numbered in the order of time."""
    slots: dict[_Slot, dict[Series, list[Point]]] = {}
    for series, group in points.items():
        boots: dict[tuple[object, ...], list[Point]] = {}
        for point in group:
            boots.setdefault((point.run_id, point.kernel, point.boot), []).append(point)
        for number, measured in enumerate(boots.values()):
            slots.setdefault(("", number), {})[series] = measured
    return slots


def _in_time(both: Sequence[Mapping[Series, Sequence[Point]]], slotted: Slotted) -> list[_Slot]:
    """The baseline's slots, in the order in which the runs began."""
    began: dict[str, str] = {}
    for points in both:
        for group in points.values():
            for point in group:
                began[point.run_id] = min(began.get(point.run_id, point.started_utc), point.started_utc)
    return sorted(slotted, key=lambda slot: (began.get(slot[0], ""), *slot))


def _figures(
    common: Iterable[Series],
    baseline: Mapping[Series, Sequence[Point]],
    candidate: Mapping[Series, Sequence[Point]],
) -> dict[Test, tuple[Figure, Figure]]:
    return {
        (series, metric): (_figure(baseline.get(series, ()), metric), _figure(candidate.get(series, ()), metric))
        for series in common
        for metric in metrics_of_series(series.series.workload)
    }


def _steps(
    common: Iterable[Series],
    baseline: Mapping[Series, Sequence[Point]],
    candidate: Mapping[Series, Sequence[Point]],
) -> dict[Test, float]:
    steps = {
        (series, metric): step_share((*baseline.get(series, ()), *candidate.get(series, ())), metric)
        for series in common
        for metric in metrics_of_series(series.series.workload)
    }
    return {test: step for test, step in steps.items() if step}


def _warned(points: Mapping[Series, Sequence[Point]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for group in points.values() for point in group for text in point.kernel_warnings))


def _figure(points: Sequence[Point], metric: Metric) -> Figure:
    """A boot's figure; None if it is missing or invalid."""
    figures = one_per_boot((0, point.figures.get(metric) if point.valid else None) for point in points)
    return figures[0] if figures else None
