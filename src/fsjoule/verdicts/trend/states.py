"""What became of changes, kept in the index: accepted by somebody, confirmed or explained by fresh boots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fsjoule.errors import ConfigError
from fsjoule.model.kernel import Kernel
from fsjoule.model.series import Order
from fsjoule.statistics.outcome import Confirmed
from fsjoule.store.confirmations import Confirmation
from fsjoule.store.states import ChangeState, KeptState
from fsjoule.verdicts.trend.changes import LevelChange
from fsjoule.verdicts.trend.trend import Trend

_LEAST_COMMIT = 6
_SHORT = 12


def changes_at(read: Callable[[Order], Trend], series: str, at: str) -> tuple[Trend, list[LevelChange]]:
    """The changes of a series since a commit (six digits at least), a run or a kernel, over time or else over kernels.

    `read` gives the trend of the series. Raises ConfigError, which names the changes that there are.
    """
    known: list[str] = []
    for order in Order:
        trend = read(order)
        names = {id(change): _names(change, trend) for change in trend.changes}
        found = [
            change
            for change in trend.changes
            if at in names[id(change)][:2] or (len(at) >= _LEAST_COMMIT and names[id(change)][2].startswith(at))
        ]
        if found:
            return trend, found
        known += (
            f"{change.history.metric.value} since {commit[:_SHORT] or run}"
            for change in trend.changes
            for run, _, commit in [names[id(change)]]
        )
    raise ConfigError(
        f"series {series} has no change since {at!r}",
        hint=f"it has {', '.join(dict.fromkeys(known))}" if known else f"see: fsjoule trend --series {series}",
    )


def accepted(trend: Trend, changes: Sequence[LevelChange], why: str) -> list[KeptState]:
    """The states of changes that are taken as they are, with the reason."""
    return [state_of(change, trend, ChangeState.ACCEPTED, why=why) for change in changes]


def acceptances(changes: Sequence[LevelChange]) -> set[KeptState]:
    """What the index keeps of somebody's having accepted these changes."""
    return {each for change in changes for each in change.kept if each.state is ChangeState.ACCEPTED}


def state_of(
    change: LevelChange, trend: Trend, state: ChangeState, *, why: str | None = None, commit: str | None = None
) -> KeptState:
    """A state of one change, for whatever run the detector will see it at."""
    sides = [trend.kernels.get(point.kernel or 0) for point in (change.before, change.after)]
    before, after = sides
    return KeptState(
        series=change.history.series.key,
        state=state,
        metric=change.history.metric.value,
        ratio=change.ratio,
        between_utc=(change.before.started_utc, change.after.started_utc),
        kernels=(before, after) if before and after else None,
        commit=commit or trend.runs[change.since.run].commit,
        why=why,
    )


def outcomes(found: Iterable[Confirmation], *, explained: bool) -> list[KeptState]:
    """The states of changes that fresh boots have confirmed, and whose profiles explain them."""
    states = (ChangeState.CONFIRMED, ChangeState.EXPLAINED) if explained else (ChangeState.CONFIRMED,)
    confirmed = [told for told in found if told.outcome is Confirmed.CONFIRMED]
    return [_of_confirmed(told, state) for told in confirmed for state in states]


def _of_confirmed(told: Confirmation, state: ChangeState) -> KeptState:
    before, after = told.before, told.after
    return KeptState(
        series=told.series,
        state=state,
        metric=told.metric,
        ratio=told.nominated_ratio,
        between_utc=(before.started_utc, after.started_utc),
        kernels=(
            Kernel(before.kernel_release, before.kernel_version),
            Kernel(after.kernel_release, after.kernel_version),
        ),
        run_id=told.run_id,
        made_utc=told.made_utc,
    )


def _names(change: LevelChange, trend: Trend) -> tuple[str, str, str]:
    """The run, kernel and commit since which it is there; empty where unknown."""
    run, kernel = trend.runs[change.since.run], trend.kernels.get(change.since.kernel or 0)
    return run.run_id, kernel.release if kernel else "", run.commit or ""
