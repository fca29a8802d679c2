"""The trend of all series at once, from which pages choose. A worker keeps some: each takes a second."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from fsjoule.model.metrics import Metric
from fsjoule.report.service.settings import Settings
from fsjoule.statistics.finder import RupturesFinder
from fsjoule.store.change_points import remembered
from fsjoule.store.confirmations import confirmations
from fsjoule.store.index.database import Index
from fsjoule.store.index.records import Order, Where
from fsjoule.store.index.serieskeys import IndexedSeries
from fsjoule.store.index.states import ChangeState
from fsjoule.verdicts.trend.changes import Change
from fsjoule.verdicts.trend.trend import Trend, trend_of

CLOSED: Final = frozenset({ChangeState.ACCEPTED, ChangeState.REFUTED})
_KEPT: Final = 4

Shown = tuple[IndexedSeries, Metric]


@dataclass
class Overviews:
    """Trends by the state of the index and what was asked, the last used ones."""

    settings: Settings
    _kept: OrderedDict[tuple[object, ...], Trend] = field(default_factory=OrderedDict[tuple[object, ...], Trend])

    def of(self, index: Index, state: str, where: Where, order: Order, metrics: tuple[Metric, ...]) -> Trend:
        """The trend of all series in `where`, with the names of the runs of its changes."""
        key = (state, where, order, metrics)
        if key not in self._kept:
            for older in [each for each in self._kept if each[0] != state]:
                del self._kept[older]
            self._kept[key] = self.read(index, where, order, metrics, at_most=self.settings.most_measurements)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def read(
        self,
        index: Index,
        where: Where,
        order: Order,
        metrics: tuple[Metric, ...],
        *,
        at_most: int,
        all_names: bool = False,
    ) -> Trend:
        known, _ = confirmations(self.settings.confirmations)
        with remembered(RupturesFinder()) as finder:
            return trend_of(
                index,
                where,
                order=order,
                metrics=metrics,
                at_most=at_most,
                of_each=self.settings.least_of_each,
                confirmations=known,
                all_names=all_names,
                finder=finder,
            )


def is_open(change: Change) -> bool:
    """Whether somebody should look at it."""
    return change.state not in CLOSED


def fits(change: Change, state: str) -> bool:
    if state in ("open", "worse"):
        return is_open(change) and (change.worse or state == "open")
    return state in ("", "any") or change.state == state


def changes_by_series(trend: Trend) -> dict[Shown, list[Change]]:
    """All series and metrics in the trend's order, each with its changes."""
    found: dict[Shown, list[Change]] = {(each.series, each.metric): [] for each in trend.histories if each.points}
    for change in trend.changes:
        found[change.history.series, change.history.metric].append(change)
    return found


def rank(changes: Sequence[Change]) -> float:
    """The largest open loss first, then series with another change, then the rest; as in `trends.js`."""
    losses = [abs(math.log(change.ratio)) for change in changes if change.worse and is_open(change)]
    return -(2 + max(losses)) if losses else -1 if changes else 0


def only(trend: Trend, shown: Sequence[Shown]) -> Trend:
    """The part of a trend that is shown."""
    wanted = set(shown)
    histories = tuple(each for each in trend.histories if (each.series, each.metric) in wanted)
    changes = tuple(each for each in trend.changes if (each.history.series, each.history.metric) in wanted)
    return replace(trend, histories=histories, changes=changes)


def losses(trend: Trend) -> Iterator[Change]:
    """Open changes for the worse, those of the newest points first."""
    found = [change for change in trend.changes if change.worse and is_open(change)]
    return iter(sorted(found, key=lambda change: (change.since.started_utc, abs(math.log(change.ratio))), reverse=True))
