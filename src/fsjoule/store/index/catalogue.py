"""The small tables of an index, with some hundreds of rows, held in memory during a query.

So a query reads only the large table, by its own indexes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection, select

from fsjoule.store.index.kernels import Kernel
from fsjoule.store.index.records import Where
from fsjoule.store.index.schema import kernels, series
from fsjoule.store.index.serieskeys import COLUMNS, IndexedSeries, from_columns


class Catalogue:
    def __init__(self, connection: Connection) -> None:
        rows = connection.execute(select(series.c.id, *(series.c[name] for name in COLUMNS)))
        self.series: Final = {number: from_columns(*columns) for number, *columns in rows}
        chosen = select(kernels.c.id, kernels.c.release, kernels.c.version)
        self.kernels: Final = {
            number: Kernel(release, version) for number, release, version in connection.execute(chosen)
        }

    def matching(self, where: Where) -> list[int] | None:
        """The numbers of the series that `where` selects; None for all."""
        numbers = [number for number, one in self.series.items() if _is_meant(one, where)]
        return None if len(numbers) == len(self.series) else numbers

    def numbers_of(self, wanted: Iterable[Kernel]) -> list[int]:
        chosen = set(wanted)
        return [number for number, kernel in self.kernels.items() if kernel in chosen]


def rank(one: IndexedSeries) -> tuple[str, ...]:
    """The sort key for lists of series."""
    key = one.series
    return (key.suite, key.board, key.workload, key.filesystem, one.key)


def _is_meant(one: IndexedSeries, where: Where) -> bool:
    among = (
        (one.series.suite, where.suites),
        (one.series.board, where.boards),
        (one.series.filesystem, where.filesystems),
        (one.series.workload, where.workloads),
    )
    return (
        all(not choices or value in choices for value, choices in among)
        and (not where.series or one.key.startswith(where.series))
        and where.simulated in (None, one.simulated)
    )
