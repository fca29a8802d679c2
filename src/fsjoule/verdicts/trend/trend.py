"""A trend: the histories of an index, and their changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Order, Where
from fsjoule.statistics.changepoints import ChangePointFinder
from fsjoule.statistics.finder import RupturesFinder
from fsjoule.statistics.memory import Lately
from fsjoule.store.confirmations import Confirmation
from fsjoule.store.index.database import Index
from fsjoule.store.index.judged import KeptVerdict, keep_verdicts, kept_verdicts, may_keep
from fsjoule.store.index.newestrows import Newest, RunNames, kernel_labels, reference_runs, run_names
from fsjoule.store.index.states import kept_states
from fsjoule.verdicts.trend.causes import Cause, causes
from fsjoule.verdicts.trend.changes import Change, changes_of
from fsjoule.verdicts.trend.history import USUAL, History, Labels, histories, several_kernels
from fsjoule.verdicts.trend.judged import JudgedSeries, judged, made_from, question, rules


@dataclass(frozen=True, slots=True)
class News:
    """Series by their numbers in the index, each with the digest of what it was judged from; and the question."""

    question: bytes
    judged: Mapping[int, tuple[bytes, JudgedSeries]]


NOTHING_NEW: Final = News(b"", {})


@dataclass(frozen=True, slots=True)
class Trend:
    """Histories and changes. `kernels` and `runs` are by the points' numbers; `runs` has all, or only the changes'.

    `cut_short` counts series with older measurements beyond the limit, `too_short` histories with too few points for
    finding a change. `news` is what was judged now, and not taken from the index.
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
    anew: bool = False,
) -> Trend:
    """The trend of the newest measurements of all series in `where`, in total `at_most`, of each series `of_each`.

    `metrics` default to throughput and energy of fio's jobs, duration and energy of timed operations. `finder` defaults
    to `RupturesFinder`, and must find the same. A series that would be judged from the same as the index's verdict on
    it is not judged again, unless `anew`.
    """
    detector = RupturesFinder()
    asked = tuple(metrics) or USUAL
    about, made_by = question(where, order, metrics), rules()
    with index.reading() as connection:
        newest = Newest(connection, where, asked, at_most=at_most, of_each=of_each)
        catalogue, inputs = newest.catalogue, newest.inputs()
        labels: Labels = {}
        if order is Order.TIME:
            several = several_kernels(each.kernels for each in inputs.values())
            labels = kernel_labels(connection, several | reference_runs(connection))
        by = catalogue.kernels
        digests = {n: made_from(each, labels, order, metrics, kernels=by, rules=made_by) for n, each in inputs.items()}
        kept = {} if anew else kept_verdicts(connection, about, list(digests))
        known = {number: one for number, one in kept.items() if one.made_from == digests[number]}
        rows = list(newest.rows(digests.keys() - known.keys()))
    numbers = {one: number for number, one in catalogue.series.items()}
    news = {
        numbers[found.series]: judged(
            histories(found, asked, order, kernels=catalogue.kernels, labels=labels, wanted=metrics),
            finder or detector,
            order,
            measurements=len(found.rows),
            older=found.older,
        )
        for found in rows
    }
    series = [
        news[number] if number in news else JudgedSeries.from_text(catalogue.series[number], known[number].histories)
        for number in newest.numbers
        if number in digests
    ]
    made = [each for one in series for each in one.histories]
    changes = changes_of(made, confirmations, order, catalogue.kernels, kept=kept_states(index))
    points = (
        (point for history, _ in made for point in history.points)
        if all_names
        else (point for change in changes for point in (change.last, change.since, change.before, change.after))
    )
    return Trend(
        order,
        tuple(history for history, _ in made),
        tuple(changes),
        catalogue.kernels,
        run_names(index, {point.run for point in points}),
        series=len(series),
        measurements=sum(one.measurements for one in series),
        cut_short=sum(one.older for one in series),
        too_short=sum(len(history.points) < 2 * detector.least_points for history, _ in made),
        news=News(about, {number: (digests[number], one) for number, one in news.items()}),
    )


def keep_news(index: Index, trend: Trend) -> None:
    """Keep in the index what was judged for this trend, if its user may write there."""
    if trend.news.judged and may_keep(index):
        found = {number: KeptVerdict(digest, one.text) for number, (digest, one) in trend.news.judged.items()}
        keep_verdicts(index, trend.news.question, found)
