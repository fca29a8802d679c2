"""Changes in histories: the detector's nominations, and the answers of fresh boots. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fsjoule.statistics.changepoints import ChangePointFinder, Nomination, nominate
from fsjoule.statistics.outcome import Confirmed
from fsjoule.store.confirmations import Confirmation
from fsjoule.store.index.kernels import Kernel
from fsjoule.store.index.records import Order
from fsjoule.verdicts.trend.history import History, HistoryPoint


class Status(StrEnum):
    NOMINATED = "nominated"
    CONFIRMED = "confirmed"
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True)
class Change:
    """A history has another level from `since` on; `last` is the point before it.

    `before` and `after` are the points whose kernels fresh boots should compare. `confirmation` is their answer, if
    any; an undecided one leaves the change nominated.
    """

    history: History
    nomination: Nomination
    status: Status = Status.NOMINATED
    confirmation: Confirmation | None = None

    @property
    def ratio(self) -> float:
        """The level from `since` on over the level before."""
        return self.nomination.ratio

    @property
    def worse(self) -> bool:
        return (self.ratio < 1) is self.history.metric.more_is_better

    @property
    def since(self) -> HistoryPoint:
        return self.history.points[self.nomination.index]

    @property
    def last(self) -> HistoryPoint:
        return self.history.points[self.nomination.index - 1]

    @property
    def before(self) -> HistoryPoint:
        return self.history.points[self.nomination.before]

    @property
    def after(self) -> HistoryPoint:
        return self.history.points[self.nomination.after]


def changes_of(
    found: Iterable[History],
    finder: ChangePointFinder,
    confirmations: Sequence[Confirmation],
    order: Order,
    kernels: Mapping[int, Kernel],
) -> list[Change]:
    """The changes of all histories: confirmed first, refuted last, larger before smaller."""
    by_history: dict[tuple[str, str], list[Confirmation]] = {}
    for each in confirmations:
        by_history.setdefault((each.series, each.metric), []).append(each)
    changes = [
        _judged(Change(history, nomination), by_history, order, kernels)
        for history in found
        for nomination in nominate([point.figure for point in history.points], finder).nominations
    ]
    rank = [Status.CONFIRMED, Status.NOMINATED, Status.REFUTED]
    return sorted(changes, key=lambda change: (rank.index(change.status), -abs(change.ratio - 1)))


def _judged(
    change: Change,
    confirmations: Mapping[tuple[str, str], Sequence[Confirmation]],
    order: Order,
    kernels: Mapping[int, Kernel],
) -> Change:
    """The change with its newest confirmation; a decided confirmation outweighs an undecided one."""
    told = confirmations.get((change.history.series.key, change.history.metric.value), ())
    about = [each for each in told if _is_about(each, change, order, kernels)]
    if not about:
        return change
    newest = max(about, key=lambda each: (each.outcome is not Confirmed.UNDECIDED, each.made_utc))
    status = Status.NOMINATED if newest.outcome is Confirmed.UNDECIDED else Status(newest.outcome)
    return Change(change.history, change.nomination, status, newest)


def _is_about(confirmation: Confirmation, change: Change, order: Order, kernels: Mapping[int, Kernel]) -> bool:
    """Whether the change is between the confirmed points, wherever the detector sees it now, in their direction."""
    if (confirmation.nominated_ratio < 1) != (change.ratio < 1):
        return False
    sides = (confirmation.before, confirmation.after)
    if order is Order.TIME:
        begin, end = (side.started_utc for side in sides)
        at = change.since.started_utc
    else:
        begin, end = (Kernel(side.kernel_release, side.kernel_version).order for side in sides)
        kernel = kernels.get(change.since.kernel or 0)
        at = kernel.order if kernel else ""
    return begin < at <= end
