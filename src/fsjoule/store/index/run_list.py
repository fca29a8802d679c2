"""The runs of an index, newest first, by pages; and what the index holds of one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Select, func, select

from fsjoule.model.kernel import Kernel
from fsjoule.model.series import Origin
from fsjoule.store.index.catalogue import Catalogue
from fsjoule.store.index.database import Index
from fsjoule.store.index.schema import measurements, run_kernels, runs

_LAST: Final = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class WhichRuns:
    """Selects the runs that match every given part, and any choice within a part. `begins` is the start of the id."""

    run_ids: tuple[str, ...] = ()
    begins: str = ""
    boards: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run's row at its last import, its kernels by label, and how many measurements the index has of it.

    `path` is its folder, perhaps on another machine.
    """

    run_id: str
    path: str
    started_utc: str
    status: str
    simulated: bool
    suite: str
    board: str | None
    branch: str | None
    commit: str | None
    job: str | None
    origin: Origin
    kernels: dict[str, Kernel]
    measurements: int
    valid: int


def count_runs(index: Index, which: WhichRuns) -> int:
    with index.reading() as connection:
        return connection.execute(_chosen(select(func.count()).select_from(runs), which)).scalar_one()


def list_runs(index: Index, which: WhichRuns, *, first: int = 0, count: int) -> list[ListedRun]:
    """So many runs, newest first, without the `first` ones."""
    columns = runs.c
    names = (columns.started_utc, columns.status, columns.simulated, columns.suite, columns.board)
    more = (columns.branch, columns.commit_id, columns.job, columns.place, columns.exporter, columns.meter)
    newest = _chosen(select(columns.id, columns.run_id, columns.path, *names, *more), which)
    newest = newest.order_by(columns.started_utc.desc(), columns.id.desc()).offset(first).limit(count)
    with index.reading() as connection:
        rows = connection.execute(newest).all()
        numbers = [row.id for row in rows]
        labels = select(run_kernels).where(run_kernels.c.run.in_(numbers)).order_by(run_kernels.c.label)
        booted = connection.execute(labels).all()
        counts = (
            select(measurements.c.run, func.count(), func.count().filter(measurements.c.valid.is_(True)))
            .where(measurements.c.run.in_(numbers))
            .group_by(measurements.c.run)
        )
        counted = {run: (all_, valid) for run, all_, valid in connection.execute(counts)}
        kernels = Catalogue(connection).kernels
    return [
        ListedRun(
            *row[1:11],
            origin=Origin(*row[11:]),
            kernels={label: kernels[number] for run, label, number in booted if run == row.id},
            measurements=counted.get(row.id, (0, 0))[0],
            valid=counted.get(row.id, (0, 0))[1],
        )
        for row in rows
    ]


def find_run(index: Index, run_id: str) -> ListedRun | None:
    """The run with this id."""
    return next(iter(list_runs(index, WhichRuns(run_ids=(run_id,)), count=1)), None)


def _chosen(statement: Select[*tuple[Any, ...]], which: WhichRuns) -> Select[*tuple[Any, ...]]:
    columns = runs.c
    among = (
        (columns.run_id, which.run_ids),
        (columns.board, which.boards),
        (columns.suite, which.suites),
        (columns.branch, which.branches),
        (columns.status, which.statuses),
    )
    for column, choices in among:
        if choices:
            statement = statement.where(column.in_(choices))
    if which.begins:
        # Text is compared by bytes, so that the database's index serves.
        statement = statement.where(columns.run_id >= which.begins, columns.run_id < which.begins + _LAST)
    return statement
