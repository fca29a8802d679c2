"""How long an index keeps runs. Documents of states say which were pruned, so that no import brings them back unasked.

Run folders are not touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from fsjoule.model import REFERENCE_KERNEL
from fsjoule.store.files import Watcher, unwatched
from fsjoule.store.index.database import Index
from fsjoule.store.index.schema import change_states, kernels, measurements, runs, series
from fsjoule.store.index.states import merge, pruning_of
from fsjoule.store.index.writer import portions, remove_runs
from fsjoule.store.states import add_states


class KeepReason(StrEnum):
    """Why an older run stays."""

    BRANCH = "branch"  # it is of a branch that is kept longer
    REFERENCE = "reference"  # its kernel was measured beside the one under test
    CHANGE = "change"  # a change in a history, whose state the index keeps, begins, ends or was shown there


@dataclass(frozen=True, slots=True)
class Retention:
    """Runs are kept that started at `since_utc` or later; on `branches` from their own time on ("" is always)."""

    since_utc: str
    branches: Mapping[str, str] = field(default_factory=dict[str, str])


class OldRun(NamedTuple):
    """A run that is not kept. `path` is its folder at its last import, perhaps on another machine."""

    run_id: str
    started_utc: str
    branch: str | None
    path: str


@dataclass(frozen=True, slots=True)
class Pruning:
    """The runs that a retention removes, oldest first, and counts of the older ones that stay, by reason."""

    runs: tuple[OldRun, ...]
    measurements: int
    kept: Mapping[KeepReason, int]


def planned(index: Index, retention: Retention) -> Pruning:
    """What `prune` would remove."""
    with index.reading() as connection:
        found, kept = _choose(connection, retention)
        count = sum(_measurements(connection, some) for some in portions([run.run_id for run in found]))
    return Pruning(found, count, kept)


def prune(index: Index, retention: Retention, *, watch: Watcher = unwatched) -> Pruning:
    """Remove the runs that are not kept, with their measurements. `watch` gets the runs that are gone.

    Others can read and write meanwhile. After an interruption each run is whole or gone: repeat it.
    """
    with index.reading() as connection:
        found, kept = _choose(connection, retention)
    done = count = 0
    for run_ids in portions([run.run_id for run in found]):
        with index.writing() as connection:
            count += _measurements(connection, run_ids)
            remove_runs(connection, run_ids)
            pruning = pruning_of(connection, run_ids)
            merge(connection, [pruning])
            add_states(index.states, pruning)  # last: a refused pruning leaves no document
        done += len(run_ids)
        watch(done, len(found))
    return Pruning(found, count, kept)


def _choose(connection: Connection, retention: Retention) -> tuple[tuple[OldRun, ...], dict[KeepReason, int]]:
    columns = (runs.c.run_id, runs.c.started_utc, runs.c.branch, runs.c.path, runs.c.kernel_role)
    statement = select(*columns).where(runs.c.started_utc < retention.since_utc).order_by(runs.c.started_utc)
    evidence = _evidence(connection)
    found: list[OldRun] = []
    kept = dict.fromkeys(KeepReason, 0)
    for run_id, started_utc, branch, path, role in connection.execute(statement):
        if branch in retention.branches and started_utc >= retention.branches[branch]:
            kept[KeepReason.BRANCH] += 1
        elif role == REFERENCE_KERNEL:
            kept[KeepReason.REFERENCE] += 1
        elif run_id in evidence:
            kept[KeepReason.CHANGE] += 1
        else:
            found.append(OldRun(run_id, started_utc, branch, path))
    return tuple(found), kept


def _evidence(connection: Connection) -> set[str]:
    """The runs of changes whose states are kept: which showed them, of their commits, and of their two points."""
    states = connection.execute(select(change_states).where(~change_states.c.taken_back)).mappings().all()
    commits = {state["commit_id"] for state in states if state["commit_id"]}
    found = {state["run_id"] for state in states if state["run_id"]}
    found |= set(connection.execute(select(runs.c.run_id).where(runs.c.commit_id.in_(commits))).scalars())
    columns = measurements.c
    points = select(runs.c.run_id).join(measurements, columns.run == runs.c.id).where(columns.valid.is_(True))
    points = points.join(series, columns.series == series.c.id)
    for state in states:
        of_series = points.where(series.c.key == state["series"])
        times = [state[name] for name in ("before_utc", "after_utc") if state[name] is not None]
        if times:
            found |= set(connection.execute(of_series.where(columns.started_utc.in_(times))).scalars())
            continue
        # Only kernels are known: the newest run of each.
        newest = of_series.join(kernels, columns.kernel == kernels.c.id).order_by(columns.started_utc.desc()).limit(1)
        for side in ("before", "after"):
            kernel = (kernels.c.release == state[f"{side}_release"], kernels.c.version == state[f"{side}_version"])
            found |= set(connection.execute(newest.where(*kernel)).scalars())
    return found


def _measurements(connection: Connection, run_ids: Sequence[str]) -> int:
    mine = select(runs.c.id).where(runs.c.run_id.in_(run_ids)).scalar_subquery()
    return connection.execute(
        select(func.count()).select_from(measurements).where(measurements.c.run.in_(mine))
    ).scalar_one()
