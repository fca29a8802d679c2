"""A culprit is kept in the index, beside the changes in histories that it made."""

from __future__ import annotations

from pathlib import Path

from fsjoule.errors import ConfigError
from fsjoule.kernels.tree.repository import Repository
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Order, Series, Where
from fsjoule.statistics.bisection.answer import AnswerKind
from fsjoule.store.bisection import MeasuredBoot
from fsjoule.store.index.database import Index
from fsjoule.store.index.states import keep_states
from fsjoule.store.index.trend import trend_reader
from fsjoule.store.reader import load_run
from fsjoule.store.states import ChangeState
from fsjoule.verdicts.bisection.answer import pair
from fsjoule.verdicts.bisection.figures import metric_of
from fsjoule.verdicts.bisection.state import BisectionState
from fsjoule.verdicts.trend.history import HistoryPoint
from fsjoule.verdicts.trend.states import state_of
from fsjoule.verdicts.trend.trend import Trend, trend_of


def keep_answer(index: Index, state: BisectionState, repository: Repository) -> int:
    """Keep an answer's culprit for the series that it was measured in; returns for how many changes.

    Raises ResultError for a run folder that cannot be read.
    """
    sides = pair(state)
    if state.answered is None or state.answered.kind is not AnswerKind.CULPRIT or sides is None:
        return 0
    metrics = tuple(dict.fromkeys(map(metric_of, state.asked.figures)))
    return keep_culprit(index, state.added(sides[1].commit), repository, _measured(state.booted[-1]), metrics)


def keep_culprit(
    index: Index, culprit: str, repository: Repository, series: tuple[str, ...], metrics: tuple[Metric, ...]
) -> int:
    """Keep a culprit for each loss of these series that begins with it; returns how many.

    A loss begins with a commit if its kernel holds the commit, and the kernel before does not.
    """
    count = 0
    for order in Order:
        trend = trend_of(trend_reader(index, Where(series=series), order=order, metrics=metrics))
        states = [
            state_of(change, trend, ChangeState.BISECTED, commit=culprit)
            for change in trend.changes
            if change.worse
            and all(each.state is not ChangeState.BISECTED for each in change.kept)
            and _holds(repository, change.since, trend, culprit) is True
            and _holds(repository, change.last, trend, culprit) is False
        ]
        count += keep_states(index, states)
    return count


def _measured(boot: MeasuredBoot) -> tuple[str, ...]:
    loaded = load_run(Path(boot.folder))
    return tuple({Series(each.series, each.simulated).key for each in loaded.measurements})


def _holds(repository: Repository, point: HistoryPoint, trend: Trend, commit: str) -> bool | None:
    """Whether a point's kernel holds a commit; None if it was not built from this repository."""
    kernel = trend.kernels.get(point.kernel or 0)
    for name in (kernel.version.partition(" ")[0] if kernel else "", trend.runs[point.run].commit):
        if name:
            try:
                return repository.holds(repository.revision(name).commit, commit)
            except ConfigError:
                continue
    return None
