"""The index of all runs: a database that is made from run folders and can be made again.

::

    run folders ── reading ── writing ──> tables ──> queries ──> points of series
                      └─ importing ─┘     schema     selection

`open_index` opens one, in SQLite or PostgreSQL; `import_runs` and `rebuild` fill it; `points` gives the figures of
series in the order of time or of kernels. docs/index.md describes the tables for those who ask in SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsjoule.lazily import lazily

if TYPE_CHECKING:
    from fsjoule.store.index.columns import COLUMNS
    from fsjoule.store.index.database import DEFAULT_NAME, VARIABLE, Index, index_url, open_index
    from fsjoule.store.index.importing import ImportReport, Progress, Watcher, import_runs, rebuild
    from fsjoule.store.index.kernels import Kernel
    from fsjoule.store.index.newestrows import Newest, NewestRows, RunNames, kernel_labels, newest, run_names
    from fsjoule.store.index.queries import list_kernels, list_series, points, run_folders, run_origins, stats
    from fsjoule.store.index.reading import Fault, check_folders, find_runs
    from fsjoule.store.index.records import Order, Origin, Point, SeriesCount, Stats, Where
    from fsjoule.store.index.selection import Selection, UnknownNameError, comparable, resolve, resolve_kernel
    from fsjoule.store.index.serieskeys import IndexedSeries, what_differs
else:
    __getattr__ = lazily(
        __name__,
        {
            "columns": "COLUMNS",
            "database": "DEFAULT_NAME VARIABLE Index index_url open_index",
            "importing": "ImportReport Progress Watcher import_runs rebuild",
            "kernels": "Kernel",
            "newestrows": "Newest NewestRows RunNames kernel_labels newest run_names",
            "queries": "list_kernels list_series points run_folders run_origins stats",
            "reading": "Fault check_folders find_runs",
            "records": "Order Origin Point SeriesCount Stats Where",
            "selection": "Selection UnknownNameError comparable resolve resolve_kernel",
            "serieskeys": "IndexedSeries what_differs",
        },
    )

__all__ = [
    "COLUMNS",
    "DEFAULT_NAME",
    "VARIABLE",
    "Fault",
    "ImportReport",
    "Index",
    "IndexedSeries",
    "Kernel",
    "Newest",
    "NewestRows",
    "Order",
    "Origin",
    "Point",
    "Progress",
    "RunNames",
    "Selection",
    "SeriesCount",
    "Stats",
    "UnknownNameError",
    "Watcher",
    "Where",
    "check_folders",
    "comparable",
    "find_runs",
    "import_runs",
    "index_url",
    "kernel_labels",
    "list_kernels",
    "list_series",
    "newest",
    "open_index",
    "points",
    "rebuild",
    "resolve",
    "resolve_kernel",
    "run_folders",
    "run_names",
    "run_origins",
    "stats",
    "what_differs",
]
