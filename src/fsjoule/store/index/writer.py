"""Writes runs into the tables, a batch in one transaction.

Several processes may write at once. Every batch takes its rows in the same order (kernels, series, runs, each sorted),
so that no two batches can block each other, and a run's row is locked while its measurements are compared with stored
ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from sqlalchemy import Connection, RowMapping, Table, delete, insert, select, update

from fsjoule.model.kernel import Kernel
from fsjoule.model.series import Series
from fsjoule.store.index.catalogue import series_row
from fsjoule.store.index.database import insert_into
from fsjoule.store.index.run_rows import ReadMeasurement, ReadRun
from fsjoule.store.index.schema import kernels, measurements, pruned_runs, run_kernels, runs, series
from fsjoule.store.index.states import IS_PRUNED
from fsjoule.store.run_folders import FolderFault

Digests = Mapping[int, bytes]
_AT_ONCE: Final = 500


@dataclass
class Written:
    """What was written. `measurements` counts new ones, `pruned` runs that stay out because they were pruned.

    `conflicts` are folders that were skipped, because the index has their run with another content.
    """

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    pruned: int = 0
    measurements: int = 0
    conflicts: list[FolderFault] = field(default_factory=list[FolderFault])


class Writer:
    """Writes batches, and remembers the numbers of kernels and series, which are never removed.

    Pruned runs are left out. After a failed batch take another writer.
    """

    def __init__(self) -> None:
        self._kernels: dict[Kernel, int] = {}
        self._series: dict[Series, int] = {}

    def write(self, connection: Connection, batch: Iterable[ReadRun], replacing: Collection[str] = ()) -> Written:
        """Write runs, each id once. The index's measurements of runs in `replacing` are deleted first."""
        batch = sorted(batch, key=lambda read: read.run_id)
        self._number_kernels(connection, {kernel for read in batch for kernel in read.kernels.values()})
        self._number_series(connection, {m.series for read in batch for m in read.measurements})
        new, stored = _claim(connection, [self._row(read) for read in batch])
        pruned = _pruned(connection, new)
        batch = [read for read in batch if read.run_id not in pruned]
        new -= pruned
        olds = [stored[read.run_id]["id"] for read in batch if read.run_id not in new]
        forgotten = [stored[read.run_id]["id"] for read in batch if read.run_id in replacing and read.run_id not in new]
        if forgotten:
            connection.execute(delete(measurements).where(measurements.c.run.in_(forgotten)))
            connection.execute(delete(run_kernels).where(run_kernels.c.run.in_(forgotten)))
        digests = _stored_digests(connection, olds)
        written = Written(new=len(new), pruned=len(pruned))
        rows: list[dict[str, object]] = []
        kernel_rows: list[dict[str, object]] = []
        for read in batch:
            row, known = stored[read.run_id], digests[stored[read.run_id]["id"]]
            if read.run_id not in new:
                difference = None if row["id"] in forgotten else _difference(read, row, known)
                if difference is not None:
                    written.conflicts.append(FolderFault(read.path, difference))
                    continue
                changed = self._update(connection, read, row, anew=row["id"] in forgotten)
                changed = changed or any(m.number not in known for m in read.measurements)
                written.changed += changed
                written.unchanged += not changed
            rows += [self._measurement_row(m, row["id"]) for m in read.measurements if m.number not in known]
            kernel_rows.extend(
                {"run": row["id"], "label": label, "kernel": self._kernels[kernel]}
                for label, kernel in read.kernels.items()
            )
        if kernel_rows:
            _insert_if_absent(connection, run_kernels, kernel_rows)
        if rows:
            _append(connection, rows)
        written.measurements = len(rows)
        return written

    def _row(self, read: ReadRun) -> dict[str, object]:
        return {**read.columns, "fixed_digest": read.fixed_digest, "final_digest": read.final_digest}

    def _measurement_row(self, read: ReadMeasurement, run: int) -> dict[str, object]:
        # A plain dictionary of all columns for speed, because there may be a million.
        row = dict(read.columns)
        row["run"] = run
        row["series"] = self._series[read.series]
        row["kernel"] = self._kernels[read.kernel] if read.kernel else None
        return row

    def _update(self, connection: Connection, read: ReadRun, row: RowMapping, *, anew: bool) -> bool:
        """Update a run's row; returns whether anything but its folder is new."""
        if row["final_digest"] is not None and read.final_digest is None and not anew:
            return False  # a copy made during the run
        found = self._row(read)
        # Known values stay: one of two unfinished copies may be from before the board's first boot.
        kept = {name for name, value in found.items() if value is None and not anew}
        changes = {name: value for name, value in found.items() if name not in kept and row[name] != value}
        if changes:
            connection.execute(update(runs).where(runs.c.id == row["id"]).values(changes))
        return anew or bool(changes.keys() - {"path"})

    def _number_kernels(self, connection: Connection, found: set[Kernel]) -> None:
        missing = sorted(found - self._kernels.keys(), key=lambda kernel: (kernel.release, kernel.version))
        if not missing:
            return
        rows = [{"release": k.release, "version": k.version, "sort_key": k.order} for k in missing]
        _insert_if_absent(connection, kernels, rows)
        statement = select(kernels.c.id, kernels.c.release, kernels.c.version).where(
            kernels.c.release.in_([kernel.release for kernel in missing])
        )
        numbers = {Kernel(release, version): number for number, release, version in connection.execute(statement)}
        self._kernels.update({kernel: numbers[kernel] for kernel in missing})

    def _number_series(self, connection: Connection, found: set[Series]) -> None:
        missing = {one.key: one for one in found if one not in self._series}
        if not missing:
            return
        _insert_if_absent(connection, series, [series_row(missing[key]) for key in sorted(missing)])
        statement = select(series.c.id, series.c.key).where(series.c.key.in_(missing))
        self._series.update({missing[key]: number for number, key in connection.execute(statement)})


def remove_runs(connection: Connection, run_ids: Sequence[str]) -> None:
    """Remove runs with their measurements."""
    # Locked first, because another process may be adding measurements to one of these runs.
    statement = select(runs.c.id).where(runs.c.run_id.in_(run_ids)).order_by(runs.c.run_id).with_for_update()
    numbers = list(connection.execute(statement).scalars())
    connection.execute(delete(measurements).where(measurements.c.run.in_(numbers)))
    connection.execute(delete(run_kernels).where(run_kernels.c.run.in_(numbers)))
    connection.execute(delete(runs).where(runs.c.id.in_(numbers)))


def portions(run_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Runs that are removed in one transaction."""
    for start in range(0, len(run_ids), _AT_ONCE):
        yield run_ids[start : start + _AT_ONCE]


def _difference(read: ReadRun, row: RowMapping, known: Digests) -> str | None:
    """How a run differs from the index's run with its id; None if it is the same."""
    if read.fixed_digest != row["fixed_digest"]:
        what = "time of start or plan"
    elif read.final_digest is not None and row["final_digest"] not in (None, read.final_digest):
        what = "run.json"
    else:
        others = [m.number for m in read.measurements if known.get(m.number, m.digest) != m.digest]
        if not others:
            return None
        what = f"measurement {', '.join(map(str, others))}"
    return f"the index has a run {read.run_id} from {row['path']} with another {what}"


def _claim(connection: Connection, rows: Sequence[Mapping[str, object]]) -> tuple[set[str], dict[str, RowMapping]]:
    """Insert missing runs; returns their ids, and the rows of all, locked until the transaction ends."""
    new: set[str] = set()
    stored: dict[str, RowMapping] = {}
    # Once is enough, unless another process's rebuild drops a run between the two statements.
    while absent := [row for row in rows if row["run_id"] not in stored]:
        new |= set(
            connection.execute(
                insert_into(connection, runs).on_conflict_do_nothing().returning(runs.c.run_id), absent
            ).scalars()
        )
        condition = runs.c.run_id.in_([row["run_id"] for row in absent])
        statement = select(runs).where(condition).order_by(runs.c.run_id).with_for_update()
        stored |= {row["run_id"]: row for row in connection.execute(statement).mappings()}
    return new, stored


def _pruned(connection: Connection, new: Collection[str]) -> set[str]:
    """The runs among `new` that were pruned: not in the index again.

    Asked after they are locked, because another process may be pruning.
    """
    if not new:
        return set()
    statement = select(pruned_runs.c.run_id).where(pruned_runs.c.run_id.in_(new), IS_PRUNED)
    pruned = set(connection.execute(statement).scalars())
    if pruned:
        connection.execute(delete(runs).where(runs.c.run_id.in_(pruned)))
    return pruned


def _insert_if_absent(connection: Connection, table: Table, rows: Sequence[Mapping[str, object]]) -> None:
    connection.execute(insert_into(connection, table).on_conflict_do_nothing(), rows)


def _append(connection: Connection, rows: list[dict[str, object]]) -> None:
    """Add measurements that the index certainly lacks, because their runs are locked."""
    if connection.dialect.name != "postgresql":
        connection.execute(insert(measurements), rows)
        return
    from fsjoule.store.index.postgresql import copy_rows  # noqa: PLC0415 - see database.py

    columns = list(rows[0])
    values = itemgetter(*columns)
    copy_rows(connection, measurements, columns, map(values, rows))


def _stored_digests(connection: Connection, numbers: Sequence[int]) -> Mapping[int, Digests]:
    digests: defaultdict[int, dict[int, bytes]] = defaultdict(dict)
    if numbers:
        columns = (measurements.c.run, measurements.c.number, measurements.c.digest)
        for run, number, digest in connection.execute(select(*columns).where(measurements.c.run.in_(numbers))):
            digests[run][number] = digest
    return digests
