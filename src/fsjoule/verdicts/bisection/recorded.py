"""Earlier runs as evidence: the boots of the same kernels, byte for byte, on such a board, by the same suite. Pure.

What was measured at another time has another level, so only runs with two kernels of the range say anything of a loss.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from fsjoule.model import Measurement
from fsjoule.model.metrics import figure_of, step_in
from fsjoule.model.series import Series, what_differs
from fsjoule.statistics.bisection.question import BootFigures, Purpose
from fsjoule.store.bisection import RecordedBoot
from fsjoule.verdicts.bisection.figures import metric_of, worse

# Each level has a slope of its own in the filters; the newest count.
_MOST_LEVELS: Final = 8


def recorded_boots(
    found: Sequence[tuple[RecordedBoot, int]], figures: Sequence[str], *, seeded: bool = False
) -> tuple[BootFigures, ...]:
    """Boots with the position of each one's kernel, as evidence; a level with one position only tells of no loss.

    Each run has a level; if boots are `seeded`, each of its repetitions.
    """
    runs: dict[str, list[tuple[RecordedBoot, int]]] = defaultdict(list)
    for each, position in found:
        runs[f"run {each.run_id}" + f" {each.repetition}" * seeded].append((each, position))
    telling = {run: boots for run, boots in runs.items() if len({position for _, position in boots}) > 1}
    newest = sorted(telling, key=lambda run: (telling[run][0][0].started_utc, run))[-_MOST_LEVELS:]
    last = max((each.boot for run in newest for each, _ in telling[run]), default=0)
    return tuple(
        BootFigures(
            position=position,
            number=each.boot - last - 1,
            figures=tuple(worse(figure, each.figures.get(figure)) for figure in figures),
            board=run,
            purpose=Purpose.RECORDED,
            steps=tuple(each.steps.get(figure, 0.0) for figure in figures),
        )
        for run in newest
        for each, position in sorted(telling[run], key=lambda pair: pair[0].boot)
    )


def boots_of_kernel(
    run_id: str,
    measurements: Iterable[Measurement],
    wanted: Mapping[str, Series],
    figures: Sequence[str],
) -> tuple[tuple[RecordedBoot, ...], str]:
    """The boots of a kernel's measurements in a run, and why they do not count, in words; empty if they do.

    `wanted` has the series of this bisection by the measurement's name.
    """
    boots: dict[int, dict[str, list[Measurement]]] = defaultdict(lambda: defaultdict(list))
    by_series = {series: name for name, series in wanted.items()}
    strangers: dict[str, Series] = {}
    for each in measurements:
        series = Series(each.series, each.simulated)
        if series in by_series and each.valid:
            boots[each.boot][by_series[series]].append(each)
        elif each.slug in wanted:
            strangers[each.slug] = series
    if boots:
        return tuple(_boot(run_id, boot, measured, figures) for boot, measured in sorted(boots.items())), ""
    for name, series in strangers.items():
        if parts := what_differs(series, wanted[name]):
            return (), "; ".join(f"{part} was {was}, is {is_}" for part, (was, is_) in parts.items())
    return (), "it has no valid measurement of these figures"


def series_of(measurements: Iterable[Measurement], figures: Sequence[str]) -> dict[str, Series]:
    """The series of those measurements that have the figures, by their names."""
    names = {figure.rpartition(" ")[0] for figure in figures}
    return {each.slug: Series(each.series, each.simulated) for each in measurements if each.slug in names}


def _boot(
    run_id: str, boot: int, measured: Mapping[str, Sequence[Measurement]], figures: Sequence[str]
) -> RecordedBoot:
    """One boot; repetitions that share it are one figure."""
    found: dict[str, float | None] = {}
    steps: dict[str, float] = {}
    for figure in figures:
        metric, told = metric_of(figure), measured.get(figure.rpartition(" ")[0], ())
        values = [value for each in told if (value := figure_of(each, metric)) is not None]
        found[figure] = median(values) if values else None
        if step := max((step_in(each, metric) for each in told), default=0.0):
            steps[figure] = step
    started = min(each.started_utc for all_ in measured.values() for each in all_)
    repetition = min(each.repetition for all_ in measured.values() for each in all_)
    return RecordedBoot(run_id, boot, started, found, steps, repetition)
