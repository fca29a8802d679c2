"""The newest measurements of every series at once, as bare rows for a trend.

Unlike `points`, rows have numbers instead of names; names are looked up for the few rows that are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from sqlalchemy import Connection, Select, bindparam, func, select

from fsjoule.model import REFERENCE_KERNEL
from fsjoule.model.metrics import Metric
from fsjoule.store.index.catalogue import Catalogue, rank
from fsjoule.store.index.columns import COLUMNS
from fsjoule.store.index.database import Index
from fsjoule.store.index.kernels import Kernel
from fsjoule.store.index.queries import restricted, run_conditions
from fsjoule.store.index.records import UNKNOWN_ORIGIN, Origin, Where
from fsjoule.store.index.schema import measurements, run_kernels, runs
from fsjoule.store.index.serieskeys import IndexedSeries

# Positions in a row; figures start at `FIGURES`, in the requested order.
STARTED, RUN, NUMBER, KERNEL, BOOT, FIGURES = range(6)
_PORTION: Final = 500  # SQLite takes only some thousands of values per statement
# A measurement that is read costs as much as some that are passed over; times the usual measurements of a run.
_RUN_COST: Final = 200

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class NewestRows:
    """The newest valid measurements of a series, oldest first. `older` says that there are more."""

    series: IndexedSeries
    rows: Sequence[Row]
    older: bool


@dataclass(frozen=True, slots=True)
class Newest:
    """Rows of all selected series, sorted by series, and the kernels by the numbers in rows."""

    series: tuple[NewestRows, ...]
    kernels: dict[int, Kernel]


class RunNames(NamedTuple):
    """A run's names, and its folder at the time of the import."""

    run_id: str
    started_utc: str
    branch: str | None
    commit: str | None
    path: str
    origin: Origin = UNKNOWN_ORIGIN


def newest(index: Index, where: Where, metrics: Sequence[Metric], *, at_most: int | None, of_each: int = 1) -> Newest:
    """The newest measurements of each selected series, in total `at_most`, shared equally; only whole runs.

    Each series' share is `of_each` at least.
    """
    columns = measurements.c
    figures = [columns[COLUMNS[metric]] for metric in metrics]
    with index.reading() as connection:
        catalogue = Catalogue(connection)
        chosen = catalogue.matching(where)
        numbers = sorted(
            catalogue.series if chosen is None else chosen, key=lambda number: rank(catalogue.series[number])
        )
        share = None if at_most is None else max(of_each, at_most // max(1, len(numbers)))
        names = (columns.started_utc, columns.run, columns.number, columns.kernel, columns.boot)
        statement = select(columns.series, *names, *figures).order_by(columns.started_utc.desc())
        rows: dict[int, list[Row]] = {number: [] for number in numbers}
        if _by_runs(connection, where, None if share is None else share * len(numbers)):
            for number, *row in connection.execute(restricted(statement, where, catalogue)):
                rows[number].append(tuple(row))
        else:
            # In the order of the database's index, so that rows beyond the limit are not read.
            one = statement.where(columns.series == bindparam("one"))
            one = restricted(one, where, catalogue, series_too=False).limit(None if share is None else share + 1)
            for number in numbers:
                rows[number] = [tuple(row[1:]) for row in connection.execute(one, {"one": number})]
        made = (_oldest_first(catalogue.series[number], found, share) for number, found in rows.items())
        return Newest(tuple(each for each in made if each.rows), catalogue.kernels)


def _by_runs(connection: Connection, where: Where, at_most: int | None) -> bool:
    """Whether to read the selected runs, instead of each series backwards past all others until it has its share."""
    conditions = run_conditions(where)
    if not conditions:
        return False
    count = select(func.count()).select_from(runs)
    selected = connection.execute(count.where(*conditions)).scalar_one()
    return at_most is None or selected**2 * _RUN_COST < at_most * connection.execute(count).scalar_one()


def _oldest_first(series: IndexedSeries, rows: Sequence[Row], share: int | None) -> NewestRows:
    """The share of rows that come newest first."""
    older = share is not None and len(rows) > share
    ordered = sorted(rows[:share])
    if share is not None and older:
        cut = rows[share][RUN]
        whole = [row for row in ordered if row[RUN] != cut]
        # Except for a single run that is larger than the share.
        ordered = whole or ordered
    return NewestRows(series, ordered, older)


def run_names(index: Index, numbers: Iterable[int]) -> dict[int, RunNames]:
    named = (runs.c.id, runs.c.run_id, runs.c.started_utc, runs.c.branch, runs.c.commit_id, runs.c.path)
    columns = (*named, runs.c.place, runs.c.exporter, runs.c.meter)
    return {
        row[0]: RunNames(*row[1 : len(named)], origin=Origin(*row[len(named) :]))
        for portion in _portions(numbers)
        for row in _rows(index, select(*columns).where(runs.c.id.in_(portion)))
    }


def kernel_labels(index: Index, numbers: Iterable[int]) -> dict[tuple[int, int], str]:
    """Runs' labels for their kernels, by the numbers of run and kernel in this index."""
    columns = (run_kernels.c.run, run_kernels.c.kernel, run_kernels.c.label)
    return {
        (row[0], row[1]): row[2]
        for portion in _portions(numbers)
        for row in _rows(index, select(*columns).where(run_kernels.c.run.in_(portion)).order_by(run_kernels.c.label))
    }


def reference_runs(index: Index) -> set[int]:
    """The numbers of runs with a kernel that was measured beside the one under test."""
    return {row[0] for row in _rows(index, select(runs.c.id).where(runs.c.kernel_role == REFERENCE_KERNEL))}


def _rows(index: Index, statement: Select[*tuple[Any, ...]]) -> list[Row]:
    with index.reading() as connection:
        return cast("list[Row]", connection.execute(statement).all())


def _portions(numbers: Iterable[int]) -> list[list[int]]:
    wanted = sorted(set(numbers))
    return [wanted[at : at + _PORTION] for at in range(0, len(wanted), _PORTION)]
