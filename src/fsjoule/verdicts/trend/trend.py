"""A trend: the histories of an index, and their changes.

A judged series is kept as text: its histories with what the detector nominates. Whether fresh boots confirm a change,
and what became of it, is no part of it: that is looked up each time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from importlib.metadata import version
from typing import Any, Final, Self, cast

from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Order, Series
from fsjoule.statistics.changepoints import ChangePointFinder, Nomination, nominate
from fsjoule.statistics.finder import RupturesFinder
from fsjoule.statistics.memory import LEAST_POINTS, LEVEL_NIGHTS, Lately, Memory
from fsjoule.statistics.nights import NightsVerdict
from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.ratios import Interval
from fsjoule.store.confirmations import Confirmation
from fsjoule.store.trend_rows import KeptVerdict, Reader, RunNames
from fsjoule.verdicts.trend.causes import Cause, causes
from fsjoule.verdicts.trend.changes import LevelChange, changes_of
from fsjoule.verdicts.trend.history import History, HistoryPoint, histories

# Raise it with every change of what is found in given rows: of the rows that a trend reads, of histories, statistics or
# the text below. A test keeps a digest of what is found in fixed rows, and fails if that changes and this does not.
METHOD: Final = 1
_LIBRARIES: Final = ("numpy", "ruptures", "scipy")


@dataclass(frozen=True, slots=True)
class JudgedSeries:
    """Histories of one series with their nominations. `measurements` counts their rows; `older`: there are more."""

    histories: tuple[tuple[History, tuple[Nomination, ...]], ...]
    measurements: int
    older: bool

    @property
    def text(self) -> str:
        found = [
            {
                "metric": history.metric.value,
                "label": history.label,
                "points": history.points,
                "unusable": history.unusable,
                "memory": history.memory and astuple(history.memory),
                "nominations": [astuple(each) for each in nominations],
            }
            for history, nominations in self.histories
        ]
        kept = {"measurements": self.measurements, "older": self.older, "histories": found}
        return json.dumps(kept, separators=(",", ":"))

    @classmethod
    def from_text(cls, series: Series, text: str) -> Self:
        """What `text` was made from."""
        kept = cast("dict[str, Any]", json.loads(text))
        found = tuple((_history(series, one), _nominations(one)) for one in kept["histories"])
        return cls(found, kept["measurements"], kept["older"])


def judged(
    made: Iterable[History], finder: ChangePointFinder, order: Order, *, measurements: int, older: bool
) -> JudgedSeries:
    # Kernels come in no bursts: a point is the median of a kernel's nights.
    level = LEVEL_NIGHTS if order is Order.TIME else LEAST_POINTS
    found: list[tuple[History, tuple[Nomination, ...]]] = []
    for one in made:
        told = nominate(
            [point.figure for point in one.points], finder, more_is_better=one.metric.more_is_better, level=level
        )
        found.append((replace(one, memory=told.memory), told.nominations))
    return JudgedSeries(tuple(found), measurements, older)


def method() -> bytes:
    """A digest of the method, the detector's parameters, and the libraries that decide what is found."""
    parts = (METHOD, repr(RupturesFinder()), [version(each) for each in _LIBRARIES])
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()


def _history(series: Series, kept: Mapping[str, Any]) -> History:
    points = tuple(
        HistoryPoint(run, kernel, started, figure, tuple(boots), runs)
        for run, kernel, started, figure, boots, runs in kept["points"]
    )
    return History(series, Metric(kept["metric"]), points, kept["label"], kept["unusable"], _memory(kept["memory"]))


def _memory(kept: Sequence[Any] | None) -> Memory | None:
    if kept is None:
        return None
    *others, lately = kept
    return Memory(*others, lately=lately and Lately(*lately))


def _nominations(kept: Mapping[str, Any]) -> tuple[Nomination, ...]:
    return tuple(
        Nomination(index, before, after, ratio, None if verdict is None else _verdict(verdict))
        for index, before, after, ratio, verdict in kept["nominations"]
    )


def _verdict(kept: Sequence[Any]) -> NightsVerdict:
    outcome, ratio, interval, (before, after), more, reason = kept
    bounds = None if interval is None else Interval(*interval)
    return NightsVerdict(Outcome(outcome), ratio, bounds, (before, after), more, reason)


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
