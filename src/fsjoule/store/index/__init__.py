"""The index of all runs: a database that can always be made again from run folders.

::

    run folders ── run_rows ── writer ──> tables ──> queries ──> points of series
                       └─ importer ─┘     schema     selection

Called by: `report`, `runs`, `cli`.

Entry points: `database.open_index` opens one, in SQLite or PostgreSQL; `importer.import_runs` and `importer.rebuild`
fill it; `queries.points` returns the figures of series in the order of time or of kernels. docs/database.md describes
the tables for queries in SQL.
"""
