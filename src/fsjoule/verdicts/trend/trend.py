"""A trend: the histories of an index, and their changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fsjoule.model.kernel import Kernel
from fsjoule.model.series import Order
from fsjoule.statistics.changepoints import ChangePointFinder
from fsjoule.statistics.finder import RupturesFinder
from fsjoule.statistics.memory import Lately
from fsjoule.store.confirmations import Confirmation
from fsjoule.store.trend_rows import KeptVerdict, Reader, RunNames
from fsjoule.verdicts.trend.causes import Cause, causes
from fsjoule.verdicts.trend.changes import LevelChange, changes_of
from fsjoule.verdicts.trend.history import History, histories
from fsjoule.verdicts.trend.judged import JudgedSeries, judged, method


@dataclass(frozen=True, slots=True)
class News:
    """Series by their numbers in the index, each with the digest of what it was judged from; and the question."""

    question: bytes
    judged: Mapping[int, tuple[bytes, JudgedSeries]]

    @property
    def verdicts(self) -> dict[int, KeptVerdict]:
        """As an index keeps them."""
        return {number: KeptVerdict(digest, one.text) for number, (digest, one) in self.judged.items()}


NOTHING_NEW: Final = News(b"", {})


@dataclass(frozen=True, slots=True)
class Trend:
    """Histories and changes. `kernels` and `runs` are by the points' numbers; `runs` has all, or only the changes'.

    `cut_short` counts series with older measurements beyond the limit, `too_short` histories with too few points for
    finding a change. `news` is what was judged now, and not taken from the index.
    """

    order: Order
    histories: tuple[History, ...]
    changes: tuple[LevelChange, ...]
    kernels: dict[int, Kernel]
    runs: dict[int, RunNames]
    series: int
    measurements: int
    cut_short: int
    too_short: int
    news: News = field(default=NOTHING_NEW, compare=False, repr=False)

    @property
    def unchanged(self) -> int:
        """The number of histories that are long enough and have no change."""
        return len(self.histories) - self.too_short - len({id(change.history) for change in self.changes})

    @property
    def causes(self) -> tuple[Cause, ...]:
        return causes(self.changes, self.kernels)

    @property
    def boards(self) -> frozenset[str]:
        return frozenset(history.series.series.board for history in self.histories)

    @property
    def drifts(self) -> tuple[History, ...]:
        """Histories that drift slowly, which is no change."""
        return tuple(one for one in self.histories if one.memory is not None and one.memory.drift is not None)

    @property
    def lately(self) -> tuple[tuple[History, Lately], ...]:
        """Histories whose newest nights are far off, which is no change yet; the worst first."""
        # What is newest over kernels is the same nights once more.
        known = self.histories if self.order is Order.TIME else ()
        found = [(one, one.memory.lately) for one in known if one.memory and one.memory.lately]
        gain = {id(one): newest.ratio if one.metric.more_is_better else 1 / newest.ratio for one, newest in found}
        return tuple(sorted(found, key=lambda each: gain[id(each[0])]))

    def with_changes(self) -> list[tuple[History, list[LevelChange]]]:
        """Every history with its changes, oldest first."""
        changes: dict[int, list[LevelChange]] = {id(history): [] for history in self.histories}
        for change in sorted(self.changes, key=lambda each: each.nomination.index):
            changes[id(change.history)].append(change)
        return [(history, changes[id(history)]) for history in self.histories]


def trend_of(
    read: Reader,
    *,
    confirmations: Sequence[Confirmation] = (),
    all_names: bool = False,
    finder: ChangePointFinder | None = None,
) -> Trend:
    """The trend of what `read` gives; a series that would be judged from the same as before is not judged again.

    `finder` defaults to `RupturesFinder`, and must find the same.
    """
    detector = RupturesFinder()
    found = read(method())
    numbers = {one: number for number, one in found.series.items()}
    news = {
        numbers[one.series]: judged(
            histories(one, found.metrics, found.order, kernels=found.kernels, labels=found.labels, wanted=found.wanted),
            finder or detector,
            found.order,
            measurements=len(one.rows),
            older=one.older,
        )
        for one in found.rows
    }
    series = [
        news[number] if number in news else JudgedSeries.from_text(one, found.judged[number])
        for number, one in found.series.items()
    ]
    made = [each for one in series for each in one.histories]
    changes = changes_of(made, confirmations, found.order, found.kernels, kept=found.states)
    points = (
        (point for history, _ in made for point in history.points)
        if all_names
        else (point for change in changes for point in (change.last, change.since, change.before, change.after))
    )
    return Trend(
        found.order,
        tuple(history for history, _ in made),
        tuple(changes),
        found.kernels,
        found.names({point.run for point in points}),
        series=len(series),
        measurements=sum(one.measurements for one in series),
        cut_short=sum(one.older for one in series),
        too_short=sum(len(history.points) < 2 * detector.least_points for history, _ in made),
        news=News(found.question, {number: (found.digests[number], one) for number, one in news.items()}),
    )
