"""A series as a trend has judged it: its histories with what the detector nominates, as text to be kept.

Whether fresh boots confirm a change, and what became of it, is no part of it: that is looked up each time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from importlib.metadata import version
from typing import Any, Final, Self, cast

from fsjoule.model.metrics import Metric
from fsjoule.model.series import Order, Series
from fsjoule.statistics.changepoints import ChangePointFinder, Nomination, nominate
from fsjoule.statistics.finder import RupturesFinder
from fsjoule.statistics.memory import LEAST_POINTS, LEVEL_NIGHTS, Lately, Memory
from fsjoule.statistics.nights import NightsVerdict
from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.ratios import Interval
from fsjoule.verdicts.trend.history import History, HistoryPoint

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
