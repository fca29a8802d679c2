"""A trend: the histories of an index, and their changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fsjoule.model.metrics import Metric
from fsjoule.statistics.changepoints import ChangePointFinder
from fsjoule.statistics.finder import RupturesFinder
from fsjoule.store.confirmations import Confirmation
from fsjoule.store.index.database import Index
from fsjoule.store.index.kernels import Kernel
from fsjoule.store.index.newestrows import RunNames, kernel_labels, newest, reference_runs, run_names
from fsjoule.store.index.records import Order, Where
from fsjoule.store.index.states import kept_states
from fsjoule.verdicts.trend.changes import Change, changes_of
from fsjoule.verdicts.trend.history import USUAL, History, histories, several_kernels


@dataclass(frozen=True, slots=True)
class Trend:
    """Histories and changes. `kernels` and `runs` are by the points' numbers; `runs` has all, or only the changes'.

    `cut_short` counts series with older measurements beyond the limit, `too_short` histories with too few points for
    finding a change.
    """

    order: Order
    histories: tuple[History, ...]
    changes: tuple[Change, ...]
    kernels: dict[int, Kernel]
    runs: dict[int, RunNames]
    series: int
    measurements: int
    cut_short: int
    too_short: int

    @property
    def unchanged(self) -> int:
        """The number of histories that are long enough and have no change."""
        return len(self.histories) - self.too_short - len({id(change.history) for change in self.changes})

    def with_changes(self) -> list[tuple[History, list[Change]]]:
        """Every history with its changes, oldest first."""
        changes: dict[int, list[Change]] = {id(history): [] for history in self.histories}
        for change in sorted(self.changes, key=lambda each: each.nomination.index):
            changes[id(change.history)].append(change)
        return [(history, changes[id(history)]) for history in self.histories]


def trend_of(
    index: Index,
    where: Where,
    *,
    order: Order = Order.TIME,
    metrics: Sequence[Metric] = (),
    at_most: int | None = None,
    of_each: int = 1,
    confirmations: Sequence[Confirmation] = (),
    all_names: bool = False,
    finder: ChangePointFinder | None = None,
) -> Trend:
    """The trend of the newest measurements of all series in `where`, in total `at_most`, of each series `of_each`.

    `metrics` default to throughput and energy of fio's jobs, duration and energy of timed operations. `finder` defaults
    to `RupturesFinder`, and must find the same.
    """
    asked = tuple(metrics) or USUAL
    found = newest(index, where, asked, at_most=at_most, of_each=of_each)
    labelled = several_kernels(found.series) | reference_runs(index)
    labels = kernel_labels(index, labelled) if order is Order.TIME else {}
    made = [
        history
        for rows in found.series
        for history in histories(rows, asked, order, kernels=found.kernels, labels=labels, wanted=metrics)
    ]
    detector = RupturesFinder()
    changes = changes_of(made, finder or detector, confirmations, order, found.kernels, kept=kept_states(index))
    points = (
        (point for history in made for point in history.points)
        if all_names
        else (point for change in changes for point in (change.last, change.since, change.before, change.after))
    )
    return Trend(
        order,
        tuple(made),
        tuple(changes),
        found.kernels,
        run_names(index, {point.run for point in points}),
        series=len(found.series),
        measurements=sum(len(rows.rows) for rows in found.series),
        cut_short=sum(rows.older for rows in found.series),
        too_short=sum(len(history.points) < 2 * detector.least_points for history in made),
    )
