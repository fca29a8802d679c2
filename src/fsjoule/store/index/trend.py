"""Reads from an index what a trend is made from; series that it has judged from the same before are not read."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Connection,
    Integer,
    Select,
    Text,
    any_,
    bindparam,
    cast,
    func,
    literal,
    select,
    true,
    tuple_,
)

from fsjoule.model import REFERENCE_KERNEL
from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Order, Origin, Series, Where
from fsjoule.store.index.catalogue import Catalogue
from fsjoule.store.index.database import Index
from fsjoule.store.index.judged import kept_verdicts
from fsjoule.store.index.queries import restricted, run_conditions
from fsjoule.store.index.schema import DIGEST_BYTES, measurements, run_kernels, runs, series
from fsjoule.store.index.states import kept_states
from fsjoule.store.trend_rows import KERNEL, RUN, USUAL, Labels, NewestRows, Reader, Row, RunNames, TrendRows

_PORTION: Final = 500  # SQLite takes only some thousands of values per statement
# A measurement that is read costs as much as some that are passed over; times the usual measurements of a run.
_RUN_COST: Final = 200


def trend_reader(
    index: Index,
    where: Where,
    *,
    order: Order = Order.TIME,
    metrics: Sequence[Metric] = (),
    at_most: int | None = None,
    of_each: int = 1,
    anew: bool = False,
) -> Reader:
    """A function that reads the newest measurements of all series in `where` for a method of judging.

    They are `at_most` in total, of each series `of_each`. `metrics` default to throughput and energy of fio's jobs,
    duration and energy of timed operations. With `anew` no series counts as judged.
    """
    return partial(_read, index, where, order=order, metrics=metrics, at_most=at_most, of_each=of_each, anew=anew)


def _read(
    index: Index,
    where: Where,
    method: bytes,
    *,
    order: Order,
    metrics: Sequence[Metric],
    at_most: int | None,
    of_each: int,
    anew: bool,
) -> TrendRows:
    # What is asked about each series: the newest verdict on each is kept.
    asked, question = tuple(metrics) or USUAL, _digest(order, list(metrics), sorted(where.branches))
    with index.reading() as connection:
        newest = Newest(connection, where, asked, at_most=at_most, of_each=of_each)
        catalogue, inputs = newest.catalogue, newest.inputs()
        labels: Labels = {}
        if order is Order.TIME:
            # The runs that measured a series on more than one kernel.
            found = (each.kernels for each in inputs.values())
            several = {run for pairs in found for run, count in Counter(run for run, _ in pairs).items() if count > 1}
            labels = kernel_labels(connection, several | _reference_runs(connection))
        by = catalogue.kernels
        digests = {
            number: _made_from(each, labels, order, metrics, kernels=by, method=method)
            for number, each in inputs.items()
        }
        kept = {} if anew else kept_verdicts(connection, question, list(digests))
        judged = {number: one.histories for number, one in kept.items() if one.made_from == digests[number]}
        rows = list(newest.rows(digests.keys() - judged.keys()))
    return TrendRows(
        order=order,
        metrics=asked,
        wanted=metrics,
        question=question,
        series={number: catalogue.series[number] for number in newest.numbers if number in digests},
        digests=digests,
        judged=judged,
        rows=rows,
        kernels=by,
        labels=labels,
        states=kept_states(index),
        names=partial(run_names, index),
    )


def _made_from(
    inputs: Inputs,
    labels: Labels,
    order: Order,
    metrics: Sequence[Metric],
    *,
    kernels: Mapping[int, Kernel],
    method: bytes,
) -> bytes:
    """A digest of all that a verdict on a series depends on."""
    named = sorted((*pair, labels[pair]) for pair in labels.keys() & inputs.kernels)
    numbers = sorted({number for _, number in inputs.kernels if number is not None}) if order is Order.KERNEL else []
    sorted_by = [(number, kernels[number].order) for number in numbers]
    return _digest(method, inputs.digest, named, sorted_by, order, list(metrics))


def _digest(*parts: object) -> bytes:
    return hashlib.blake2b(repr(parts).encode(), digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a verdict on a series is made from: a digest of its rows, and the runs and kernels in them."""

    digest: bytes
    kernels: frozenset[tuple[int, int | None]]


class Newest:
    """The newest measurements of each selected series, in total `at_most`, shared equally; only whole runs.

    Each series' share is `of_each` at least. Use it within the connection's transaction.
    """

    def __init__(
        self, connection: Connection, where: Where, metrics: Sequence[Metric], *, at_most: int | None, of_each: int = 1
    ) -> None:
        self._connection = connection
        self._where = where
        self.catalogue: Final = Catalogue(connection)
        chosen = self.catalogue.matching(where)
        numbers = self.catalogue.series if chosen is None else chosen
        self.numbers: Final = sorted(numbers, key=lambda number: self.catalogue.series[number].rank)
        self._share = None if at_most is None else max(of_each, at_most // max(1, len(self.numbers)))
        self._by_runs = _by_runs(connection, where, None if self._share is None else self._share * len(self.numbers))
        columns = measurements.c
        names = (columns.started_utc, columns.run, columns.number, columns.kernel, columns.boot)
        self._columns = (columns.series, *names, *(columns[metric.row.column] for metric in metrics))
        self._held: dict[int, list[Row]] | None = None

    def rows(self, numbers: Collection[int]) -> Iterator[NewestRows]:
        """The rows of some of these series; a series without any is left out."""
        held = self._read(numbers) if self._held is None else self._held
        made = (_within(self.catalogue.series[n], held[n], self._share) for n in self.numbers if n in numbers)
        return (each for each in made if each.rows)

    def inputs(self) -> dict[int, Inputs]:
        """Digests of all rows, by series; a series without any is left out.

        PostgreSQL makes them itself, which takes less time than to send the rows. SQLite's rows are here anyway.
        """
        if self._on_postgresql:
            return self._digested()
        self._held = self._read(self.numbers)
        return {
            number: Inputs(self._digest(len(rows), rows), frozenset((row[RUN], row[KERNEL]) for row in rows))
            for number, rows in self._held.items()
            if rows
        }

    @property
    def _on_postgresql(self) -> bool:
        return self._connection.dialect.name == "postgresql"

    def _read(self, numbers: Collection[int]) -> dict[int, list[Row]]:
        """The rows of these series, oldest first, each share with one more."""
        found: dict[int, list[Row]] = {number: [] for number in numbers}
        if not self._by_runs and not self._on_postgresql:
            one = self._of_one(bindparam("one"))
            for number in found:
                found[number] = [tuple(row[1:]) for row in self._connection.execute(one, {"one": number})]
        elif found:
            for number, *row in self._connection.execute(self._statement(numbers)):
                if number in found:
                    found[number].append(tuple(row))
        for rows in found.values():
            rows.sort()  # by time, run and number, which no two share
        return found

    def _digested(self) -> dict[int, Inputs]:
        found = self._statement(self.numbers).subquery()
        row = func.hash_record_extended(tuple_(*found.c), 0)
        asked = select(
            found.c.series,
            func.count(),
            # A sum, because rows come in any order. A row's hash is linear in those of its columns, so that rows which
            # exchange a value would keep their sum; a hash of the hash is not.
            func.sum(func.hashtextextended(cast(row, Text), 0)),
            func.array_agg(found.c.run),
            func.array_agg(found.c.kernel),
        ).group_by(found.c.series)
        return {
            number: Inputs(self._digest(count, total), frozenset(zip(runs_of, kernels_of, strict=True)))
            for number, count, total, runs_of, kernels_of in self._connection.execute(asked)
        }

    def _digest(self, count: int, content: object) -> bytes:
        share = self._share if self._share is not None and count > self._share else None
        return hashlib.blake2b(repr((share, count, content)).encode(), digest_size=DIGEST_BYTES).digest()

    def _statement(self, numbers: Collection[int]) -> Select[*tuple[Any, ...]]:
        """The rows of all selected series by their runs; else of these series in one statement, for PostgreSQL."""
        if self._by_runs:
            return restricted(select(*self._columns), self._where, self.catalogue)
        newest = self._of_one(series.c.id).lateral("newest")
        joined = select(newest).select_from(series.join(newest, true()))
        every = len(numbers) == len(self.catalogue.series)
        return joined if every else joined.where(series.c.id == any_(literal(list(numbers), ARRAY(Integer))))

    def _of_one(self, number: ColumnElement[int]) -> Select[*tuple[Any, ...]]:
        """One series in the order of the database's index, so that rows beyond the limit are not read."""
        columns = measurements.c
        in_time = (columns.started_utc.desc(), columns.run.desc(), columns.number.desc())
        one = select(*self._columns).where(columns.series == number).order_by(*in_time)
        one = restricted(one, self._where, self.catalogue, series_too=False)
        return one.limit(None if self._share is None else self._share + 1)


def _by_runs(connection: Connection, where: Where, at_most: int | None) -> bool:
    """Whether to read the selected runs, instead of each series backwards past all others until it has its share."""
    conditions = run_conditions(where)
    if not conditions:
        return False
    count = select(func.count()).select_from(runs)
    selected = connection.execute(count.where(*conditions)).scalar_one()
    return at_most is None or selected**2 * _RUN_COST < at_most * connection.execute(count).scalar_one()


def _within(series: Series, rows: Sequence[Row], share: int | None) -> NewestRows:
    """The newest rows, a share of them."""
    if share is None or len(rows) <= share:
        return NewestRows(series, rows, older=False)
    cut = rows[-share - 1][RUN]
    newest = rows[-share:]
    whole = [row for row in newest if row[RUN] != cut]
    # Except for a single run that is larger than the share.
    return NewestRows(series, whole or newest, older=True)


def run_names(index: Index, numbers: Iterable[int]) -> dict[int, RunNames]:
    names = (runs.c.id, runs.c.run_id, runs.c.started_utc, runs.c.branch, runs.c.commit_id, runs.c.path)
    columns = (*names, runs.c.place, runs.c.exporter, runs.c.meter)
    with index.reading() as connection:
        return {
            row[0]: RunNames(*row[1 : len(names)], origin=Origin(*row[len(names) :]))
            for portion in _portions(numbers)
            for row in connection.execute(select(*columns).where(runs.c.id.in_(portion)))
        }


def kernel_labels(connection: Connection, numbers: Iterable[int]) -> dict[tuple[int, int], str]:
    """Runs' labels for their kernels, by the numbers of run and kernel in this index."""
    columns = (run_kernels.c.run, run_kernels.c.kernel, run_kernels.c.label)
    return {
        (run, kernel): label
        for portion in _portions(numbers)
        for run, kernel, label in connection.execute(
            select(*columns).where(run_kernels.c.run.in_(portion)).order_by(run_kernels.c.label)
        )
    }


def _reference_runs(connection: Connection) -> set[int]:
    """The numbers of runs with a kernel that was measured beside the one under test."""
    return set(connection.execute(select(runs.c.id).where(runs.c.kernel_role == REFERENCE_KERNEL)).scalars())


def _portions(numbers: Iterable[int]) -> list[list[int]]:
    wanted = sorted(set(numbers))
    return [wanted[at : at + _PORTION] for at in range(0, len(wanted), _PORTION)]
