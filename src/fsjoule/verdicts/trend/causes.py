"""Causes: changes of all boards that begin at the same kernel or commit, and whether they are still so. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

from fsjoule.model.kernel import Kernel
from fsjoule.store.states import ChangeState
from fsjoule.verdicts.trend.changes import LevelChange
from fsjoule.verdicts.trend.history import HistoryPoint

# So many of the newest points say whether a change is still so: the fewest that the detector takes for a level.
_NEWEST: Final = 3
# A detector is at times one or two points off. Neighbours belong together; what is two points away does not, if it has
# a following of its own: this many series, and more than half as many as the most frequent place.
_NEIGHBOURS: Final = 1
_FOLLOWING: Final = 3

CLOSED: Final = frozenset({ChangeState.ACCEPTED, ChangeState.REFUTED})


class Fate(StrEnum):
    """What a cause is to whoever looks in the morning."""

    OPEN = "open"  # a loss that is still there
    GAIN = "gain"  # a gain that is still there
    OVER = "over"  # the newest points are back where they were
    CLOSED = "closed"  # accepted by somebody, or refuted by fresh boots


@dataclass(frozen=True)
class Cause:
    """Changes in one direction with one begin, the largest first; `lead` stands for them.

    `still` are those whose newest points keep the new level, closed ones left out. `cured` is the first point of the
    newest level that ended one of them; None if none has ended with a change.
    """

    fate: Fate
    lead: LevelChange
    changes: tuple[LevelChange, ...]
    still: tuple[LevelChange, ...]
    cured: HistoryPoint | None = None

    @property
    def worse(self) -> bool:
        return self.lead.worse

    @property
    def present(self) -> bool:
        """Whether it is still so, and nobody has closed it."""
        return self.fate in (Fate.OPEN, Fate.GAIN)

    @property
    def since(self) -> HistoryPoint:
        """The first bad point of most of its series (of a gain, the first good one)."""
        return self.lead.since

    @property
    def last(self) -> HistoryPoint:
        """The last good point of most of its series."""
        return self.lead.last

    @cached_property
    def boards(self) -> tuple[str, ...]:
        return tuple(sorted({change.history.series.series.board for change in self.changes}))

    @cached_property
    def simulated(self) -> bool:
        return all(change.history.series.simulated for change in self.changes)


def causes(changes: Sequence[LevelChange], kernels: Mapping[int, Kernel]) -> tuple[Cause, ...]:
    """The causes of changes: open losses first, then gains, what is over, what is closed; the newest first in each.

    Changes belong together if they have one direction and begin at the same kernels; where the kernel stayed the same,
    at the same time. All of a history's changes must be given. A gain that only ends a loss is no cause; a loss that
    ends a gain is one.
    """
    ends = {id(change): end for change, end in _ends(changes)}
    back = {id(end) for end in ends.values() if end is not None and not end.worse}
    made = [
        _cause(lead, group, ends)
        for worse in (True, False)
        for lead, group in _grouped([c for c in changes if c.worse is worse and id(c) not in back], kernels)
    ]
    newest = sorted(made, key=lambda cause: cause.since.started_utc, reverse=True)
    return tuple(sorted(newest, key=lambda cause: list(Fate).index(cause.fate)))


def _ends(changes: Sequence[LevelChange]) -> Iterator[tuple[LevelChange, LevelChange | None]]:
    """The changes whose history is back at the level before, each with the change that ended it, if there is one."""
    histories: dict[int, list[LevelChange]] = {}
    for change in changes:
        histories.setdefault(id(change.history), []).append(change)
    for several in histories.values():
        several.sort(key=lambda change: change.nomination.index)
        figures = [point.figure for point in several[0].history.points]
        edges = [*(change.nomination.index for change in several), len(figures)]
        levels = [statistics.median(figures[start:end]) for start, end in pairwise(edges)]
        newest = statistics.median(figures[-_NEWEST:])
        for number, (change, level) in enumerate(zip(several, levels, strict=True)):
            if _is_back(change, level, newest):
                later = zip(several[number + 1 :], levels[number + 1 :], strict=True)
                yield change, next((each for each, at in later if _is_back(change, level, at)), None)


def _is_back(change: LevelChange, level: float, now: float) -> bool:
    """Whether the figure `now` is nearer to the level before a change than to the `level` after it."""
    return abs(math.log(now / level * change.ratio)) < abs(math.log(now / level))


def _cause(lead: LevelChange, group: Sequence[LevelChange], ends: Mapping[int, LevelChange | None]) -> Cause:
    changes = tuple(sorted(group, key=lambda change: -abs(math.log(change.ratio))))
    open_ = [change for change in changes if change.state not in CLOSED]
    still = tuple(change for change in open_ if id(change) not in ends)
    if not open_:
        fate = Fate.CLOSED
    elif not still:
        fate = Fate.OVER
    else:
        fate = Fate.OPEN if lead.worse else Fate.GAIN
    cures = [end.since for end in map(ends.get, map(id, changes)) if end is not None]
    cured = max(cures, key=lambda point: point.started_utc) if cures and not still else None
    return Cause(fate, lead, changes, still, cured)


# ---------------------------------------------------------------------------------------------------- grouping


class _Begin(NamedTuple):
    """Where a change begins. `place` is that on which series agree: the kernels before and since, or kernel and day.

    `order` is that of the kernel since, `kernels` the first and the last between the points that fresh boots would
    compare; None where a kernel is unknown.
    """

    change: LevelChange
    series: str
    place: tuple[int | None, int | None, str]
    order: str
    kernels: tuple[str, str] | None


def _begins(changes: Iterable[LevelChange], kernels: Mapping[int, Kernel]) -> Iterator[_Begin]:
    orders_of: dict[int, str] = {}  # they take long to make
    for change in changes:
        last, since = change.last.kernel, change.since.kernel
        found = {point.kernel for point in (change.before, change.last, change.since, change.after)}
        for number in found - orders_of.keys():
            if number is not None and number in kernels:
                orders_of[number] = kernels[number].order
        orders = sorted(orders_of[number] for number in found if number in orders_of)
        yield _Begin(
            change,
            change.history.series.key,
            (last, since, change.since.started_utc[:10] if last == since else ""),
            orders_of.get(since or 0, ""),
            (orders[0], orders[-1]) if len(orders) == len(found) else None,
        )


def _grouped(
    changes: Sequence[LevelChange], kernels: Mapping[int, Kernel]
) -> Iterator[tuple[LevelChange, list[LevelChange]]]:
    """Changes by where they begin; the change that stands for a group lies where most series see the begin."""
    left: list[_Begin] = sorted(_begins(changes, kernels), key=lambda each: each.change.since.started_utc)
    while left:
        votes = Counter(place for place, _ in {(each.place, each.series) for each in left})
        newest = {each.place: number for number, each in enumerate(left)}
        top = max(votes, key=lambda place: (votes[place], newest[place]))
        lead = max((each for each in left if each.place == top), key=lambda each: abs(math.log(each.change.ratio)))
        own = {each for each in votes if votes[each] >= _FOLLOWING and 2 * votes[each] > votes[top]} - {top}
        group = [
            each
            for each in left
            if each is lead
            or (_together(lead, each) and (each.place not in own or _are_neighbours(lead.change, each.change)))
        ]
        yield lead.change, [each.change for each in group]
        taken = set(map(id, group))
        left = [each for each in left if id(each) not in taken]


def _together(one: _Begin, other: _Begin) -> bool:
    """Whether each begins where the detector may have meant the other's begin."""
    if one.kernels and other.kernels:
        (first, last), (other_first, other_last) = one.kernels, other.kernels
        if first > other_last or other_first > last:
            return False  # boards that test other kernels on the same night
        if first < other.order <= last and other_first < one.order <= other_last:
            return True
    a, b = one.change, other.change
    return _lies(b, a.before, a.after) and _lies(a, b.before, b.after)


def _are_neighbours(one: LevelChange, other: LevelChange) -> bool:
    return _lies(other, *_margin(one)) and _lies(one, *_margin(other))


def _lies(change: LevelChange, first: HistoryPoint, last: HistoryPoint) -> bool:
    """Whether it begins after the first of two points of a board, and not after the day of the last."""
    return first.started_utc < change.since.started_utc <= f"{last.started_utc[:10]}T23:59:59Z"


def _margin(change: LevelChange) -> tuple[HistoryPoint, HistoryPoint]:
    points, at = change.history.points, change.nomination.index
    return points[max(0, at - 1 - _NEIGHBOURS)], points[min(len(points) - 1, at + _NEIGHBOURS)]
