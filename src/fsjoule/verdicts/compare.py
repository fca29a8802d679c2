"""Compares two sides: one figure per boot, and the verdicts on all series in one request. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np

from fsjoule.errors import ConfigError
from fsjoule.model.metrics import CRASH_METRICS, FIO_METRICS, HELD_METRICS, TIMED_METRICS, Figure, Metric
from fsjoule.model.series import Point, Series, Side, comparable, step_share
from fsjoule.statistics.comparison import Comparison, Verdict, compare, usable_pairs
from fsjoule.statistics.figures import complaint, one_per_boot
from fsjoule.statistics.outcome import Criteria
from fsjoule.store.finding import Finding, Subject, kernel_warnings
from fsjoule.verdicts.comparison import Compared, Judged
from fsjoule.verdicts.drift import Doubt
from fsjoule.verdicts.remarks import (
    Boot,
    Comparable,
    baseline_first,
    boot_of,
    check_boards,
    compared_side,
    drift_notes,
    is_balanced,
    kernel_labels,
    kernel_names,
    order_notes,
    origin_notes,
    series_names,
    shares_blocks,
    single_notes,
    version_notes,
)

_SEVERAL_BOARDS = (
    "the run was measured on several boards: kernels were compared within a board, repetition by repetition, so that "
    "the boards' levels cancel out"
)

Points = Mapping[Series, Sequence[Point]]


def compare_sides(
    baseline: Side,
    candidate: Side,
    criteria: Criteria | None = None,
    *,
    metrics: Sequence[Metric] = (),
    across_boards: bool = False,
    doubts: Sequence[Doubt] = (),
) -> Compared:
    """One verdict per common series and metric; `metrics` limits the metrics.

    `doubts` are times in which places were out of control: a note names sides that were measured there then.

    Kernels whose boots took turns in the same runs are compared repetition by repetition, within a board. Different
    boards are compared only with `across_boards`.

    Two sides with one kernel each are compared whatever the kernels. If a side has several, each kernel is compared
    with itself. Raises ConfigError, which says what differs, for sides that share measurements or have nothing
    comparable.
    """
    wanted = criteria or Criteria()
    _check_apart(baseline, candidate)
    check_boards(baseline, candidate, across=across_boards)
    several_boards = shares_blocks(baseline, candidate)
    ours, theirs = _valid(baseline), _valid(candidate)
    comparable(ours, theirs)
    by_kernel = any(len({point.kernel for point in chain(*side.values())}) > 1 for side in (ours, theirs))
    our_cells, their_cells = (_cells(side, by_kernel=by_kernel) for side in (ours, theirs))
    common = [cell for cell in our_cells if cell in their_cells]
    common.sort(key=lambda cell: _usual(our_cells[cell]) is not FIO_METRICS)
    if not common:
        raise _no_kernel_in_common(baseline, candidate, ours, theirs)
    labels = series_names(baseline, candidate)
    used, used_too = ([point for cell in common for point in side[cell]] for side in (our_cells, their_cells))
    share, same_runs = baseline_first(used, used_too), _run_ids(used) == _run_ids(used_too)
    paired = several_boards or (is_balanced(share) and same_runs)
    # Boots of both sides did not take turns. A board in guest time has no level that changes from run to run.
    steady = baseline.steady and candidate.steady
    in_order = not paired and not steady
    how = {"paired": paired, "in_order": in_order}
    comparisons, lacking = _comparisons(common, our_cells, their_cells, labels, metrics, **how)
    told = compared_side(baseline, used, [cell for cell in our_cells if cell not in their_cells], labels)
    told_too = compared_side(candidate, used_too, [cell for cell in their_cells if cell not in our_cells], labels)
    guest_time = baseline.guest_time and candidate.guest_time
    findings = tuple(
        judged(comparison, verdict, wanted, guest_time=guest_time)
        for comparison, verdict in zip(comparisons, compare(comparisons, wanted), strict=True)
    )
    notes = [
        *version_notes(baseline, candidate),
        *origin_notes(baseline, candidate),
        *drift_notes(baseline, candidate, doubts),
        *order_notes(told, told_too, share),
        *[_SEVERAL_BOARDS] * several_boards,
        *["each kernel was compared with itself, because the sides have several"] * by_kernel,
        *lacking,
        *single_notes(findings),
    ]
    return Compared(
        baseline=told,
        candidate=told_too,
        criteria=wanted,
        findings=findings,
        baseline_first=share,
        interleaved=is_balanced(share),
        paired=paired,
        by_runs=in_order,
        notes=tuple(notes),
        damaged={**baseline.damaged, **candidate.damaged},
        folders={**baseline.folders, **candidate.folders},
        kernel_warnings=kernel_warnings(_warned(baseline), _warned(candidate)),
    )


def _warned(side: Side) -> Iterable[tuple[Boot, tuple[str, ...]]]:
    return ((boot_of(point), point.kernel_warnings) for point in chain(*side.points.values()))


def _check_apart(baseline: Side, candidate: Side) -> None:
    """Raise ConfigError for measurements on both sides, which would be compared with themselves."""
    ours, theirs = ({(p.run_id, p.number) for p in chain(*side.points.values())} for side in (baseline, candidate))
    shared = ours & theirs
    if not shared:
        return
    if ours == theirs:
        what = f"both sides are the same {len(ours)} measurements: {baseline.title}"
    else:
        what = f"{len(shared)} measurements are on both sides: {baseline.title}, and {candidate.title}"
    raise ConfigError(what, hint="name two runs, kernels or branches; two kernels of one run: KERNEL@RUN KERNEL@RUN")


def _run_ids(points: Iterable[Point]) -> set[str]:
    return {point.run_id for point in points}


def _valid(side: Side) -> dict[Series, list[Point]]:
    valid = {series: [point for point in group if point.valid] for series, group in side.points.items()}
    found = {series: group for series, group in valid.items() if group}
    if not found:
        count = sum(map(len, side.points.values()))
        why = f"its {count} measurements are invalid" if count else "it has no matching measurement"
        hint = "fsjoule show RUN, or fsjoule index series, lists what was measured, and where"
        raise ConfigError(f"{side.title} cannot be compared: {why}", hint=hint)
    return found


def _cells(side: Points, *, by_kernel: bool) -> dict[Comparable, list[Point]]:
    if not by_kernel:
        return {Comparable(series, None): list(group) for series, group in side.items()}
    cells: dict[Comparable, list[Point]] = {}
    for series, group in side.items():
        for point in sorted(group, key=lambda point: point.kernel.order if point.kernel else ""):
            cells.setdefault(Comparable(series, point.kernel), []).append(point)
    return cells


def _no_kernel_in_common(baseline: Side, candidate: Side, ours: Points, theirs: Points) -> ConfigError:
    said = " and ".join(
        f"{side.title} has {', '.join(kernel_labels(chain(*points.values())))}"
        for side, points in ((baseline, ours), (candidate, theirs))
    )
    return ConfigError(
        f"the sides have several kernels, but no common one: {said}",
        hint="name one kernel of each: KERNEL@RUN, KERNEL@branch:NAME",
    )


def _comparisons(
    common: Sequence[Comparable],
    ours: Mapping[Comparable, Sequence[Point]],
    theirs: Mapping[Comparable, Sequence[Point]],
    labels: Mapping[Series, str],
    metrics: Sequence[Metric],
    *,
    paired: bool,
    in_order: bool,
) -> tuple[list[Comparison[Subject]], list[str]]:
    """The comparisons, and notes on metrics that neither side has."""
    comparisons: list[Comparison[Subject]] = []
    kernels = kernel_names(cell.kernel for cell in common)
    lacking: dict[Metric, int] = {}
    for cell in common:
        both = [*ours[cell], *theirs[cell]]
        subject = Subject(
            key=cell.series.key,
            series=cell.series.series,
            simulated=cell.series.simulated,
            label=labels[cell.series],
            kernel=kernels.get(cell.kernel, ""),
        )
        for metric in metrics or _usual(both):
            if any(metric in point.figures for point in both):
                figures = _pairs if paired else _boots
                one, two = figures(ours[cell], theirs[cell], metric)
                runs = _runs(ours[cell], theirs[cell], metric) if in_order else None
                comparisons.append(Comparison(subject, metric, one, two, paired, runs, step_share(both, metric)))
            elif not metrics and not (metric.row.only_writes or metric.row.seldom):
                lacking[metric] = lacking.get(metric, 0) + 1
    if metrics and not comparisons:
        raise ConfigError(f"no series of the two sides has {' or '.join(metrics)}")
    return comparisons, [
        f"{metric}: not compared in {n} series, because neither side has it" for metric, n in lacking.items()
    ]


def _usual(both: Iterable[Point]) -> tuple[Metric, ...]:
    """Those that the workload of a series is compared by."""
    present = {metric for point in both for metric in point.figures}
    kinds = (FIO_METRICS, CRASH_METRICS, HELD_METRICS)
    return next((metrics for metrics in kinds if present.intersection(metrics)), TIMED_METRICS)


def _figures(points: Iterable[Point], metric: Metric) -> tuple[Figure, ...]:
    return one_per_boot((boot_of(point), point.figures.get(metric)) for point in points)


def _boots(
    ours: Iterable[Point], theirs: Iterable[Point], metric: Metric
) -> tuple[tuple[Figure, ...], tuple[Figure, ...]]:
    return _figures(ours, metric), _figures(theirs, metric)


def _pairs(
    ours: Iterable[Point], theirs: Iterable[Point], metric: Metric
) -> tuple[tuple[Figure, ...], tuple[Figure, ...]]:
    """The figures of both sides, repetition by repetition; a repetition that only one side has is no pair."""
    blocks: list[dict[tuple[str, int], list[Point]]] = [{}, {}]
    for side, points in zip(blocks, (ours, theirs), strict=True):
        for point in points:
            side.setdefault((point.run_id, point.repetition), []).append(point)
    common = [block for block in blocks[0] if block in blocks[1]]
    one, two = (tuple(_figures(side[block], metric)[0] for block in common) for side in blocks)
    return one, two


def _runs(ours: Iterable[Point], theirs: Iterable[Point], metric: Metric) -> tuple[tuple[float, bool], ...]:
    """The median of each run's usable boots in the order of time, and whether it is the candidate's."""
    found: list[tuple[str, float, bool]] = []
    for side, points in ((False, ours), (True, theirs)):
        runs: dict[str, list[Point]] = {}
        for point in points:
            runs.setdefault(point.run_id, []).append(point)
        for group in runs.values():
            middle = median(_figures(group, metric))
            if middle is not None:
                found.append((min(point.started_utc for point in group), middle, side))
    return tuple((figure, side) for _, figure, side in sorted(found))


def judged(
    comparison: Comparison[Subject], verdict: Verdict[Subject], criteria: Criteria, *, guest_time: bool
) -> Judged:
    boots = (verdict.n_baseline, verdict.n_candidate)
    ratio = verdict.ratio
    if comparison.paired:
        baseline, candidate = (
            float(np.exp(np.log(side).mean())) if len(side) else None for side in usable_pairs(comparison)
        )
    else:
        baseline, candidate = median(comparison.baseline), median(comparison.candidate)
    return Finding(
        subject=verdict.subject,
        metric=verdict.metric,
        outcome=verdict.outcome,
        ratio=None if ratio is None else ratio.value,
        interval=None if ratio is None or min(boots) == 1 else ratio.interval,
        matters=criteria.smallest_effect,
        baseline=baseline,
        candidate=candidate,
        boots=boots,
        basis=verdict,
        guest_time=guest_time,
    )


def median(figures: Sequence[Figure]) -> Figure:
    usable = [figure for figure in figures if figure is not None and complaint(figure) is None]
    return float(np.median(usable)) if usable else None
