"""The trend of all series at once, from which pages choose. A worker keeps some: each takes a second."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from fsjoule.model.metrics import Metric
from fsjoule.model.series import Order, Series, Where
from fsjoule.report.service.settings import Settings
from fsjoule.statistics.finder import RupturesFinder
from fsjoule.store.change_points import remembered
from fsjoule.store.confirmations import confirmations
from fsjoule.store.index.database import Index
from fsjoule.store.index.trend import trend_reader
from fsjoule.verdicts.trend.changes import LevelChange
from fsjoule.verdicts.trend.trend import Trend, trend_of

_KEPT: Final = 4

Shown = tuple[Series, Metric]


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
            read = trend_reader(
                index, where, order=order, metrics=metrics, at_most=at_most, of_each=self.settings.least_of_each
            )
            return trend_of(read, confirmations=known, all_names=all_names, finder=finder)


def fits(change: LevelChange, state: str, still: Collection[int]) -> bool:
    """Whether a change is of that state; `still` are the ids of those that are still so and not closed."""
    if state in ("open", "worse"):
        return id(change) in still and (change.worse or state == "open")
    return state in ("", "any") or change.state == state


def still_so(trend: Trend) -> frozenset[int]:
    """The ids of the changes that somebody should look at."""
    return frozenset(id(change) for cause in trend.causes for change in cause.still)


def changes_by_series(trend: Trend) -> dict[Shown, list[LevelChange]]:
    """All series and metrics in the trend's order, each with its changes."""
    found: dict[Shown, list[LevelChange]] = {(each.series, each.metric): [] for each in trend.histories if each.points}
    for change in trend.changes:
        found[change.history.series, change.history.metric].append(change)
    return found


def rank(changes: Sequence[LevelChange], still: Collection[int]) -> float:
    """The largest open loss first, then series with another change, then the rest; as in `trends.js`."""
    losses = [abs(math.log(change.ratio)) for change in changes if fits(change, "worse", still)]
    return -(2 + max(losses)) if losses else -1 if changes else 0


def only(trend: Trend, shown: Sequence[Shown]) -> Trend:
    """The part of a trend that is shown."""
    wanted = set(shown)
    histories = tuple(each for each in trend.histories if (each.series, each.metric) in wanted)
    changes = tuple(each for each in trend.changes if (each.history.series, each.history.metric) in wanted)
    return replace(trend, histories=histories, changes=changes)
