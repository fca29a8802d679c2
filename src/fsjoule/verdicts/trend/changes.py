"""Changes in histories: the detector's nominations, and the answers of fresh boots. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fsjoule.model.kernel import Kernel
from fsjoule.model.series import Order
from fsjoule.statistics.changepoints import Nomination
from fsjoule.statistics.nights import NightsVerdict
from fsjoule.statistics.outcome import Confirmed
from fsjoule.store.confirmations import Confirmation
from fsjoule.store.states import ChangeState, KeptState
from fsjoule.verdicts.trend.history import History, HistoryPoint


class ChangeStatus(StrEnum):
    NOMINATED = "suspected"
    CONFIRMED = "confirmed"
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A history has another level from `since` on; `last` is the point before it.

    `before` and `after` are the points whose kernels fresh boots should compare. `confirmation` is their answer, if
    any; an undecided one leaves the change nominated. `kept` are the index's states of it, oldest first.
    """

    history: History
    nomination: Nomination
    status: ChangeStatus = ChangeStatus.NOMINATED
    confirmation: Confirmation | None = None
    kept: tuple[KeptState, ...] = ()

    @property
    def state(self) -> ChangeState:
        """The furthest that is known of it. What somebody accepted stays so, whatever boots say."""
        known = {each.state for each in self.kept}
        if ChangeState.ACCEPTED in known:
            return ChangeState.ACCEPTED
        if self.status is not ChangeStatus.NOMINATED:
            known.add(ChangeState(self.status.value))
        return max(known, key=list(ChangeState).index, default=ChangeState.NEW)

    @property
    def ratio(self) -> float:
        """The level from `since` on over the level before."""
        return self.nomination.ratio

    @property
    def verdict(self) -> NightsVerdict | None:
        """What all nights before and after say, without fresh boots."""
        return self.nomination.verdict

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
    found: Iterable[tuple[History, Sequence[Nomination]]],
    confirmations: Sequence[Confirmation],
    order: Order,
    kernels: Mapping[int, Kernel],
    *,
    kept: Sequence[KeptState] = (),
) -> list[LevelChange]:
    """The changes that were nominated in histories: confirmed first, refuted last, larger before smaller."""
    by_history: dict[tuple[str, str], list[Confirmation]] = {}
    for each in confirmations:
        by_history.setdefault((each.series, each.metric), []).append(each)
    states: dict[str, list[KeptState]] = {}
    for one in kept:
        states.setdefault(one.series, []).append(one)
    changes = [
        _with_states(_judged(LevelChange(history, nomination), by_history, order, kernels), states, order, kernels)
        for history, nominations in found
        for nomination in nominations
    ]
    rank = [ChangeStatus.CONFIRMED, ChangeStatus.NOMINATED, ChangeStatus.REFUTED]
    return sorted(changes, key=lambda change: (rank.index(change.status), -abs(change.ratio - 1)))


def _judged(
    change: LevelChange,
    confirmations: Mapping[tuple[str, str], Sequence[Confirmation]],
    order: Order,
    kernels: Mapping[int, Kernel],
) -> LevelChange:
    """The change with its newest confirmation; a decided confirmation outweighs an undecided one."""
    told = confirmations.get((change.history.series.key, change.history.metric.value), ())
    about = [each for each in told if _is_about(each, change, order, kernels)]
    if not about:
        return change
    newest = max(about, key=lambda each: (each.outcome is not Confirmed.UNDECIDED, each.made_utc))
    status = ChangeStatus.NOMINATED if newest.outcome is Confirmed.UNDECIDED else ChangeStatus(newest.outcome)
    return LevelChange(change.history, change.nomination, status, newest)


def _is_about(confirmation: Confirmation, change: LevelChange, order: Order, kernels: Mapping[int, Kernel]) -> bool:
    """Whether the change is between the confirmed points, wherever the detector sees it now, in their direction."""
    before, after = confirmation.before, confirmation.after
    sides = (Kernel(before.kernel_release, before.kernel_version), Kernel(after.kernel_release, after.kernel_version))
    between = (before.started_utc, after.started_utc)
    return _same_direction(confirmation.nominated_ratio, change) and _lies(change, order, kernels, between, sides)


def _with_states(
    change: LevelChange, states: Mapping[str, Sequence[KeptState]], order: Order, kernels: Mapping[int, Kernel]
) -> LevelChange:
    """The change with the states that are about it."""
    found = tuple(
        each
        for each in states.get(change.history.series.key, ())
        if each.metric in (None, change.history.metric.value)
        and _same_direction(each.ratio, change)
        and _lies(change, order, kernels, each.between_utc, each.kernels)
    )
    return replace(change, kept=found) if found else change


def _same_direction(ratio: float | None, change: LevelChange) -> bool:
    return ratio is None or (ratio < 1) == (change.ratio < 1)


def _lies(
    change: LevelChange,
    order: Order,
    kernels: Mapping[int, Kernel],
    between_utc: tuple[str, str] | None,
    sides: tuple[Kernel, Kernel] | None,
) -> bool:
    """Whether the change begins after the first of two points, and not after the second.

    Over time the points' times count if they are known, else their kernels.
    """
    if order is Order.TIME and between_utc is not None:
        return between_utc[0] < change.since.started_utc <= between_utc[1]
    since, last = (kernels.get(point.kernel or 0) for point in (change.since, change.last))
    if sides is None or since is None or last is None:
        return False
    begin, end = (side.order for side in sides)
    if order is Order.KERNEL:
        return begin < since.order <= end
    return begin <= last.order < since.order <= end
