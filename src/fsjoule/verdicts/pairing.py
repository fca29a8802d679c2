"""Two sides into verdicts: series by series, a figure a boot, and all of them in one request. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from fsjoule.errors import ConfigError
from fsjoule.metrics import FIO_METRICS, TIMED_METRICS, Figure, Metric
from fsjoule.report.comparison import Compared, ComparedSide, Invalid, Judged, Subject
from fsjoule.report.summary import series_labels
from fsjoule.statistics import Comparison, Criteria, Verdict, compare, one_per_boot
from fsjoule.statistics.figures import complaint
from fsjoule.store.index import IndexedSeries, Kernel, Point, comparable
from fsjoule.verdicts.sides import Side

Points = Mapping[IndexedSeries, Sequence[Point]]
Boot = tuple[str, Kernel | None, int]

# Interleaved boots give 1/2, one side after the other 0 or 1; two pairs, in an order drawn at random, 1/4 to 3/4.
_BALANCED: Final = (0.25, 0.75)
_DRIFT: Final = "drift of 0.3 % a boot, 39.5 % of comparisons without a change called one a regression"


class _Cell(NamedTuple):
    """What may be compared: a series, and a kernel where both sides have the same several."""

    series: IndexedSeries
    kernel: Kernel | None


def compare_sides(
    baseline: Side,
    candidate: Side,
    criteria: Criteria | None = None,
    *,
    metrics: Sequence[Metric] = (),
    damaged: Mapping[str, str] | None = None,
) -> Compared:
    """One verdict for each series that both sides have and each metric, of those in `metrics` if there are any.

    Sides of one kernel each are compared whatever the kernels. If one of them has several, like is compared with like:
    each kernel with itself. Raises ConfigError, with what differs, for sides that share measurements or have nothing
    that may be compared.
    """
    wanted = criteria or Criteria()
    _check_apart(baseline, candidate)
    ours, theirs = _valid(baseline), _valid(candidate)
    comparable(ours, theirs)
    by_kernel = any(len(_kernels(side)) > 1 for side in (ours, theirs))
    our_cells, their_cells = (_cells(side, by_kernel=by_kernel) for side in (ours, theirs))
    common = [cell for cell in our_cells if cell in their_cells]
    if not common:
        raise _no_kernel_in_common(baseline, candidate, ours, theirs)
    labels = _labels(chain(ours, theirs), baseline, candidate)
    comparisons, lacking = _comparisons(common, our_cells, their_cells, labels, metrics)
    compared = [[point for cell in common for point in side[cell]] for side in (our_cells, their_cells)]
    share = _baseline_first(*compared)
    interleaved = _BALANCED[0] <= share <= _BALANCED[1]
    sides = tuple(
        _told(side, used, [_named(cell, labels) for cell in here if cell not in there], labels)
        for side, used, here, there in (
            (baseline, compared[0], our_cells, their_cells),
            (candidate, compared[1], their_cells, our_cells),
        )
    )
    notes = [*_order_notes(*sides, share, interleaved=interleaved), *_kernel_notes(by_kernel=by_kernel), *lacking]
    judged = map(_judged, comparisons, compare(comparisons, wanted))
    return Compared(*sides, wanted, tuple(judged), share, interleaved, tuple(notes), dict(damaged or {}))


def _check_apart(baseline: Side, candidate: Side) -> None:
    """A measurement that is on both sides would be compared with itself."""
    ours, theirs = ({(p.run_id, p.number) for p in chain(*side.points.values())} for side in (baseline, candidate))
    shared = ours & theirs
    if not shared:
        return
    if ours == theirs:
        what = f"both sides are the same {len(ours)} measurements: {baseline.title}"
    else:
        what = f"{len(shared)} measurements are on both sides: {baseline.title}, and {candidate.title}"
    raise ConfigError(what, hint="name two runs, kernels or branches; two kernels of one run: KERNEL@RUN KERNEL@RUN")


def _valid(side: Side) -> dict[IndexedSeries, list[Point]]:
    valid = {series: [point for point in group if point.valid] for series, group in side.points.items()}
    found = {series: group for series, group in valid.items() if group}
    if not found:
        count = sum(map(len, side.points.values()))
        why = f"its {count} measurements are invalid" if count else "it has no measurement of that kind"
        raise ConfigError(f"{side.title} cannot be compared: {why}")
    return found


def _kernels(side: Points) -> set[Kernel | None]:
    return {point.kernel for point in chain(*side.values())}


def _cells(side: Points, *, by_kernel: bool) -> dict[_Cell, list[Point]]:
    if not by_kernel:
        return {_Cell(series, None): list(group) for series, group in side.items()}
    cells: dict[_Cell, list[Point]] = {}
    for series, group in side.items():
        for point in sorted(group, key=lambda point: point.kernel.order if point.kernel else ""):
            cells.setdefault(_Cell(series, point.kernel), []).append(point)
    return cells


def _no_kernel_in_common(baseline: Side, candidate: Side, ours: Points, theirs: Points) -> ConfigError:
    said = " and ".join(
        f"{side.title} has {', '.join(_kernel_labels(chain(*points.values())))}"
        for side, points in ((baseline, ours), (candidate, theirs))
    )
    return ConfigError(
        f"the sides have several kernels, and none in common: {said}",
        hint="name one kernel of each: KERNEL@RUN, KERNEL@branch:NAME",
    )


def _comparisons(
    common: Sequence[_Cell],
    ours: Mapping[_Cell, Sequence[Point]],
    theirs: Mapping[_Cell, Sequence[Point]],
    labels: Mapping[IndexedSeries, str],
    metrics: Sequence[Metric],
) -> tuple[list[Comparison[Subject]], list[str]]:
    """What to compare, and notes on what neither side has."""
    found: list[Comparison[Subject]] = []
    lacking: dict[Metric, int] = {}
    for cell in common:
        both = [*ours[cell], *theirs[cell]]
        subject = Subject(
            key=cell.series.key,
            series=cell.series.series,
            simulated=cell.series.simulated,
            label=labels[cell.series],
            kernel=cell.kernel.label if cell.kernel else "",
        )
        for metric in metrics or _usual(both):
            if any(metric in point.figures for point in both):
                found.append(Comparison(subject, metric, _figures(ours[cell], metric), _figures(theirs[cell], metric)))
            # What only reads has no write amplification, and what is no fio job none of its figures.
            elif not metrics and metric is not Metric.WRITE_AMPLIFICATION:
                lacking[metric] = lacking.get(metric, 0) + 1
    if metrics and not found:
        raise ConfigError(f"no series of the two sides has {' or '.join(metrics)}")
    return found, [f"{metric}: not compared in {n} series, as neither side has it" for metric, n in lacking.items()]


def _usual(both: Iterable[Point]) -> tuple[Metric, ...]:
    fio = any(metric in point.figures for point in both for metric in FIO_METRICS)
    return FIO_METRICS if fio else TIMED_METRICS


def _figures(points: Iterable[Point], metric: Metric) -> tuple[Figure, ...]:
    return one_per_boot((_boot(point), point.figures.get(metric)) for point in points)


def _boot(point: Point) -> Boot:
    return point.run_id, point.kernel, point.boot


def _judged(comparison: Comparison[Subject], verdict: Verdict[Subject]) -> Judged:
    return Judged(verdict, _median(comparison.baseline), _median(comparison.candidate))


def _median(figures: Sequence[Figure]) -> Figure:
    usable = [figure for figure in figures if figure is not None and complaint(figure) is None]
    return float(np.median(usable)) if usable else None


# ---------------------------------------------------------------------------------------------------- what is told


def _labels(series: Iterable[IndexedSeries], *sides: Side) -> dict[IndexedSeries, str]:
    """What tells each series from the others: its filesystem and workload, and what else is not the same in all."""
    known = dict.fromkeys(chain(series, *(side.points for side in sides)))
    filesystems = series_labels(one.series for one in known)
    parts = {one: _parts(one) for one in known}
    varying = [i for i, values in enumerate(zip(*parts.values(), strict=True)) if len(set(values)) > 1]
    labels: dict[IndexedSeries, str] = {}
    for one in known:
        more = "".join(f", {parts[one][i]}" for i in varying)
        labels[one] = f"{filesystems[one.series]} {one.series.workload}{more}"
    return labels


def _parts(one: IndexedSeries) -> tuple[str, ...]:
    key = one.series
    return key.suite, key.board, key.storage, key.provision.value, "simulated" if one.simulated else "real"


def _named(cell: _Cell, labels: Mapping[IndexedSeries, str]) -> str:
    return f"{labels[cell.series]}, kernel {cell.kernel.label}" if cell.kernel else labels[cell.series]


def _told(
    side: Side, used: Sequence[Point], only_here: Sequence[str], labels: Mapping[IndexedSeries, str]
) -> ComparedSide:
    times = sorted(point.started_utc for point in used)
    return ComparedSide(
        kind=side.kind,
        name=side.name,
        title=side.title,
        kernels=_kernel_labels(used),
        runs=tuple(sorted({point.run_id for point in used})),
        commits=tuple(sorted({point.commit for point in used if point.commit})),
        boots=len(_boot_times(used)),
        measurements=len(used),
        first_utc=times[0],
        last_utc=times[-1],
        invalid=tuple(
            Invalid(point.run_id, point.number, labels[series], point.invalid_reasons)
            for series, group in side.points.items()
            for point in group
            if not point.valid
        ),
        only_here=tuple(only_here),
    )


def _kernel_labels(points: Iterable[Point]) -> tuple[str, ...]:
    found = {point.kernel for point in points}
    known = sorted((kernel for kernel in found if kernel), key=lambda kernel: kernel.order)
    return (*(kernel.label for kernel in known), *["a kernel that is not known"] * (None in found))


def _boot_times(points: Iterable[Point]) -> dict[Boot, str]:
    """When each boot made its first measurement."""
    times: dict[Boot, str] = {}
    for point in points:
        boot = _boot(point)
        times[boot] = min(times.get(boot, point.started_utc), point.started_utc)
    return times


def _baseline_first(ours: Iterable[Point], theirs: Iterable[Point]) -> float:
    """The share of pairs of boots, one of each side, of which the baseline's was earlier; equal times count half."""
    before = list(_boot_times(ours).values())
    after = sorted(_boot_times(theirs).values())
    later = sum(2 * len(after) - bisect_left(after, time) - bisect_right(after, time) for time in before)
    return later / (2 * len(before) * len(after))


def _order_notes(baseline: ComparedSide, candidate: ComparedSide, share: float, *, interleaved: bool) -> list[str]:
    if interleaved:
        return []
    first, second = ("baseline", "candidate") if share > _BALANCED[1] else ("candidate", "baseline")
    mostly = "" if share in (0.0, 1.0) else "most of "
    times = " against ".join(f"{side.first_utc} to {side.last_utc}" for side in (baseline, candidate))
    note = (
        f"not interleaved: {mostly}the boots of the {first} ran before those of the {second} ({times}). "
        f"A drift between them is not excluded: it looks like a change. With a {_DRIFT} (docs/statistics.md). "
        "Kernels measured in one run take turns: --kernel A,B"
    )
    return [note]


def _kernel_notes(*, by_kernel: bool) -> list[str]:
    return ["each kernel was compared with itself, as the sides have several"] if by_kernel else []
