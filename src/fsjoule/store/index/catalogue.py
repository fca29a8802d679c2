"""The small tables of an index, with some hundreds of rows, held in memory during a query.

So a query reads only the large table, by its own indexes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import lru_cache
from typing import Final, cast

from sqlalchemy import Connection, select

from fsjoule.model import Provision, SeriesKey
from fsjoule.model.kernel import Kernel
from fsjoule.model.series import Series, Where
from fsjoule.store.index.schema import kernels, series

# In the order of the arguments of `series_of`.
COLUMNS: Final = (
    "suite",
    "board",
    "storage",
    "filesystem",
    "make_options",
    "mount_options",
    "provision",
    "workload",
    "simulated",
)


class Catalogue:
    def __init__(self, connection: Connection) -> None:
        rows = connection.execute(select(series.c.id, *(series.c[name] for name in COLUMNS)))
        self.series: Final = {number: series_of(*columns) for number, *columns in rows}
        statement = select(kernels.c.id, kernels.c.release, kernels.c.version)
        self.kernels: Final = {
            number: Kernel(release, version) for number, release, version in connection.execute(statement)
        }

    def matching(self, where: Where) -> list[int] | None:
        """The numbers of the series that `where` selects; None for all."""
        numbers = [number for number, one in self.series.items() if where.takes_series(one)]
        return None if len(numbers) == len(self.series) else numbers

    def numbers_of(self, wanted: Iterable[Kernel]) -> list[int]:
        chosen = set(wanted)
        return [number for number, kernel in self.kernels.items() if kernel in chosen]


def series_row(one: Series) -> dict[str, object]:
    """The row of a series without its number."""
    columns: dict[str, object] = {**asdict(one.series), "simulated": one.simulated, "key": one.key}
    columns["make_options"] = json.dumps(one.series.make_options)
    columns["mount_options"] = json.dumps(one.series.mount_options)
    columns["provision"] = one.series.provision.value
    del columns["title"]  # runs of several users meet here
    return columns


@lru_cache(maxsize=10_000)
def series_of(*columns: str | bool) -> Series:
    """The series of a row's columns. Cached, because every query reads all series, and they never change."""
    row = dict(zip(COLUMNS, columns, strict=True))
    texts = {name: str(row[name]) for name in ("suite", "board", "storage", "filesystem", "workload")}
    key = SeriesKey(
        **texts,
        make_options=tuple(cast("list[str]", json.loads(str(row["make_options"])))),
        mount_options=tuple(cast("list[str]", json.loads(str(row["mount_options"])))),
        provision=Provision(str(row["provision"])),
    )
    return Series(key, bool(row["simulated"]))
