"""Queries of an index: its series, their figures in order, its size.

They return only valid measurements, unless invalid ones are requested. A missing figure is absent from `figures`, never
zero.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Column, ColumnElement, Connection, Integer, Row, Select, bindparam, func, select
from sqlalchemy import cast as sql_cast

from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Metric
from fsjoule.model.series import EVERYTHING, Order, Origin, Point, Series, Where
from fsjoule.store import selection
from fsjoule.store.index.catalogue import Catalogue
from fsjoule.store.index.database import Index
from fsjoule.store.index.schema import INDEX_VERSION, UNCERTAINTY_COLUMNS, measurements, runs


@dataclass(frozen=True, slots=True)
class SeriesCount:
    """Counts of a series' measurements, runs and kernels, with invalid measurements."""

    series: Series
    measurements: int
    valid: int
    runs: int
    kernels: int
    first_utc: str
    last_utc: str


@dataclass(frozen=True, slots=True)
class Stats:
    schema: str
    runs: int
    measurements: int
    valid: int
    series: int
    boards: int
    kernels: tuple[Kernel, ...]
    first_utc: str | None
    last_utc: str | None


def points(
    index: Index,
    where: Where = EVERYTHING,
    *,
    metrics: Sequence[Metric] = tuple(Metric),
    order: Order = Order.TIME,
    at_most: int | None = None,
) -> dict[Series, tuple[Point, ...]]:
    """The selected measurements by series, sorted, each in the given order; fewer metrics are faster.

    With `at_most` only so many of each series, the newest: this takes as long in a large index as in a small one.
    """
    found: dict[int, list[Point]] = {}
    with index.reading() as connection:
        catalogue = Catalogue(connection)
        reader = _PointReader(metrics, catalogue)
        if at_most is None:
            rows = connection.execute(restricted(reader.statement(), where, catalogue)).all()
        else:
            rows = _newest(connection, reader.statement(newest_first=True), where, catalogue, at_most)
        for row in rows:
            found.setdefault(row[0], []).append(reader.point(row))
    if order is Order.KERNEL:
        # Only of these points, because the index may have thousands of kernels.
        used = {point.kernel for group in found.values() for point in group}
        keys = {kernel: (kernel.order, kernel.label) if kernel else () for kernel in used}
        for group in found.values():
            # Points of one kernel stay in the order of time; an unknown kernel comes first.
            group.sort(key=lambda point: keys[point.kernel])
    names = catalogue.series
    return {names[number]: tuple(found[number]) for number in sorted(found, key=lambda number: names[number].rank)}


def _newest(
    connection: Connection, statement: Select[*tuple[Any, ...]], where: Where, catalogue: Catalogue, at_most: int
) -> list[Row[*tuple[Any, ...]]]:
    """The newest rows of each selected series, oldest first, each series by itself in the order of its index."""
    chosen = catalogue.matching(where)
    statement = statement.where(measurements.c.series == bindparam("one")).limit(at_most)
    statement = restricted(statement, where, catalogue, series_too=False)
    return [
        row
        for number in (catalogue.series if chosen is None else chosen)
        for row in reversed(connection.execute(statement, {"one": number}).all())
    ]


def list_series(index: Index, where: Where = EVERYTHING) -> tuple[SeriesCount, ...]:
    """The series that have selected measurements; invalid ones count too."""
    columns = measurements.c
    # Only columns of the index measurements_by_series, so that the table itself is not read.
    counts = (
        columns.series,
        func.count(),
        func.sum(sql_cast(columns.valid, Integer)),
        func.count(columns.run.distinct()),
        func.count(columns.kernel.distinct()),
        func.min(columns.started_utc),
        func.max(columns.started_utc),
    )
    with index.reading() as connection:
        catalogue = Catalogue(connection)
        statement = restricted(select(*counts), where, catalogue, invalid_too=True).group_by(columns.series)
        found = [SeriesCount(catalogue.series[row[0]], *row[1:]) for row in connection.execute(statement)]
    return tuple(sorted(found, key=lambda count: count.series.rank))


def check_names(index: Index, where: Where, title: str = "the index") -> None:
    """As `selection.check_names`, for the index's series and branches."""
    with index.reading() as connection:
        series = Catalogue(connection).series.values()
        branches = connection.scalars(select(runs.c.branch).distinct()).all() if where.branches else ()
    selection.check_names(where, title, series, branches)


def find_series(index: Index, start: str) -> list[Series]:
    """The series with measurements whose keys start with `start`, sorted."""
    with index.reading() as connection:
        catalogue = Catalogue(connection)
        chosen = catalogue.matching(Where(series=(start,)))
        numbers = catalogue.series if chosen is None else chosen
        matching = [catalogue.series[number] for number in _used(connection, measurements.c.series, list(numbers))]
    return sorted(matching, key=lambda one: one.rank)


def run_folders(index: Index, run_ids: Sequence[str]) -> dict[str, Path]:
    """The folder of each run at its last import, perhaps on another machine; newest run first."""
    statement = select(runs.c.run_id, runs.c.path).where(runs.c.run_id.in_(run_ids)).order_by(runs.c.started_utc.desc())
    with index.reading() as connection:
        return {run_id: Path(path) for run_id, path in connection.execute(statement)}


def stats(index: Index) -> Stats:
    counts = (
        func.count(),
        func.coalesce(func.sum(sql_cast(measurements.c.valid, Integer)), 0),
        func.min(measurements.c.started_utc),
        func.max(measurements.c.started_utc),
    )
    with index.reading() as connection:
        catalogue = Catalogue(connection)
        measured, valid, first, last = connection.execute(select(*counts)).one()
        used = _used(connection, measurements.c.series, catalogue.series)
        kernels = _used(connection, measurements.c.kernel, catalogue.kernels)
        return Stats(
            schema=INDEX_VERSION,
            runs=connection.execute(select(func.count()).select_from(runs)).scalar_one(),
            measurements=measured,
            valid=valid,
            series=len(used),
            boards=len({catalogue.series[number].series.board for number in used}),
            kernels=tuple(sorted((catalogue.kernels[number] for number in kernels), key=lambda kernel: kernel.order)),
            first_utc=first,
            last_utc=last,
        )


class _PointReader:
    """Knows the position of each figure in a row of its statement."""

    def __init__(self, metrics: Sequence[Metric], catalogue: Catalogue) -> None:
        self._kernels = catalogue.kernels
        self._columns: list[Column[Any]] = [
            measurements.c.series,
            runs.c.run_id,
            measurements.c.number,
            measurements.c.started_utc,
            measurements.c.kernel,
            runs.c.branch,
            runs.c.commit_id,
            measurements.c.boot,
            measurements.c.repetition,
            measurements.c.invalid_reasons,
            measurements.c.kernel_warnings,
            runs.c.place,
            runs.c.exporter,
            runs.c.meter,
        ]
        self._origins: dict[tuple[Any, ...], Origin] = {}
        self._identity = len(self._columns)
        self._figures = [(metric, self._place(metric.row.column)) for metric in metrics]
        uncertain = [(metric, UNCERTAINTY_COLUMNS[metric]) for metric in metrics if metric in UNCERTAINTY_COLUMNS]
        self._uncertainties = [(metric, self._place(column)) for metric, column in uncertain]

    def _place(self, column: str) -> int:
        self._columns.append(measurements.c[column])
        return len(self._columns) - 1

    def statement(self, *, newest_first: bool = False) -> Select[*tuple[Any, ...]]:
        columns = measurements.c
        joined = measurements.join(runs, columns.run == runs.c.id)
        in_time = (columns.started_utc, columns.run, columns.number)
        order = [column.desc() for column in in_time] if newest_first else (columns.series, *in_time)
        return select(*self._columns).select_from(joined).order_by(*order)

    def point(self, row: Row[*tuple[Any, ...]]) -> Point:
        """The point of a row; by position for speed, because this is done for every measurement."""
        _, run_id, number, started_utc, kernel, branch, commit, boot, repetition, reasons, warned, *where = row[
            : self._identity
        ]
        origin = self._origins.setdefault(tuple(where), Origin(*where))
        return Point(
            run_id,
            number,
            started_utc,
            None if kernel is None else self._kernels[kernel],
            branch,
            commit,
            boot,
            repetition,
            _texts(reasons),
            {metric: row[place] for metric, place in self._figures if row[place] is not None},
            {metric: row[place] for metric, place in self._uncertainties if row[place] is not None},
            origin,
            _texts(warned),
        )


def _texts(array: str | None) -> tuple[str, ...]:
    return () if array is None else tuple(cast("list[str]", json.loads(array)))


def restricted(
    statement: Select[*tuple[Any, ...]],
    where: Where,
    catalogue: Catalogue,
    *,
    invalid_too: bool = False,
    series_too: bool = True,
) -> Select[*tuple[Any, ...]]:
    """The statement limited to measurements that `where` selects; without `series_too` of any series."""
    columns = measurements.c
    chosen_series = catalogue.matching(where) if series_too else None
    if chosen_series is not None:
        statement = statement.where(columns.series.in_(chosen_series))
    if where.kernels:
        statement = statement.where(columns.kernel.in_(catalogue.numbers_of(where.kernels)))
    of_runs = run_conditions(where)
    if of_runs:
        statement = statement.where(columns.run.in_(select(runs.c.id).where(*of_runs).scalar_subquery()))
    if where.since_utc is not None:
        statement = statement.where(columns.started_utc >= where.since_utc)
    if where.until_utc is not None:
        statement = statement.where(columns.started_utc < where.until_utc)
    return statement if invalid_too or where.invalid_too else statement.where(columns.valid.is_(True))


def run_conditions(where: Where) -> list[ColumnElement[bool]]:
    """The conditions on runs; none if `where` selects runs of any id and branch."""
    return [
        column.in_(choices)
        for column, choices in ((runs.c.run_id, where.runs), (runs.c.branch, where.branches))
        if choices
    ]


def _used(connection: Connection, column: Column[Any], numbers: Sequence[int] | dict[int, Any]) -> list[int]:
    """The kernels or series that any measurement has; each takes one look into an index."""
    found: list[int] = []
    for number in numbers:
        statement = select(column).where(column == number).limit(1)
        if connection.execute(statement).first() is not None:
            found.append(number)
    return found
