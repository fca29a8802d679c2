"""What an index holds of the documents of states (`store/states.py`): a cache, filled by every import.

A state is about every change between two points of a series, whichever run the detector sees it at. Each is in a
document: deleting the index loses none.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, RowMapping, case, func, or_, select

from fsjoule.model.kernel import Kernel
from fsjoule.store.index.database import Index, insert_into
from fsjoule.store.index.schema import change_states, pruned_runs
from fsjoule.store.states import ChangeState, KeptState, StatesDocument, add_states, read_states, time_after

IS_PRUNED: Final = pruned_runs.c.pruned_utc > pruned_runs.c.back_utc
_ID_BYTES: Final = 4
_SECONDS: Final = len("2026-03-09T10:00:00")


def keep_states(index: Index, states: Iterable[KeptState]) -> int:
    """Keep states as one document and in the index; returns their number. Raises StorageError."""
    now_utc, token = time_after(), secrets.token_hex(_ID_BYTES)
    kept = tuple(
        replace(
            each,
            made_utc=each.made_utc or f"{now_utc[:_SECONDS]}Z",
            id=f"{now_utc.replace('-', '').replace(':', '')}-{token}-{number:04d}",
        )
        for number, each in enumerate(states)
    )
    if kept:
        _keep(index, StatesDocument(now_utc, kept=kept))
    return len(kept)


def take_back(index: Index, states: Iterable[KeptState]) -> None:
    """Take states back that were read from this index. Raises StorageError."""
    if taken_back := tuple(states):
        _keep(index, StatesDocument(time_after(), taken_back=taken_back))


def bring_back(index: Index, run_ids: Sequence[str]) -> None:
    """Let an import take these runs again, of whatever they were pruned. Raises StorageError."""
    with index.reading() as connection:
        mine = select(pruned_runs.c.pruned_utc, pruned_runs.c.run_id).where(pruned_runs.c.run_id.in_(run_ids))
        pruned = connection.execute(mine.where(IS_PRUNED).order_by(pruned_runs.c.pruned_utc)).all()
    if pruned:
        last_utc, _ = pruned[-1]
        _keep(index, StatesDocument(time_after(last_utc), brought_back=tuple(run_id for _, run_id in pruned)))


def pruning_of(connection: Connection, run_ids: Sequence[str]) -> StatesDocument:
    """The document of pruning these runs now, also of those that were brought back before."""
    mine = select(func.max(pruned_runs.c.back_utc)).where(pruned_runs.c.run_id.in_(run_ids))
    return StatesDocument(time_after(connection.execute(mine).scalar() or ""), pruned=tuple(run_ids))


def import_states(index: Index, folders: Iterable[Path]) -> list[str]:
    """Add what the documents of these folders and of the index's own say; returns the faults of unreadable ones."""
    documents: list[StatesDocument] = []
    faults: list[str] = []
    for folder in dict.fromkeys(folder.resolve() for folder in (index.states, *folders)):
        some, wrong = read_states(folder)
        documents += some
        faults += wrong
    if documents:
        with index.writing() as connection:
            merge(connection, documents)
    return faults


def _keep(index: Index, document: StatesDocument) -> None:
    # Written last, so that neither is kept if the index refuses, or the disk is full.
    with index.writing() as connection:
        merge(connection, [document])
        add_states(index.states, document)


def merge(connection: Connection, documents: Sequence[StatesDocument]) -> None:
    """Add what documents say, in any order and any number of times; rows in order, so that no two writers block."""
    rows = [_row(each, taken_back=False) for document in documents for each in document.kept]
    rows += [_row(each, taken_back=True) for document in documents for each in document.taken_back]
    if rows:
        states = insert_into(connection, change_states)
        connection.execute(
            states.on_conflict_do_update(
                index_elements=[change_states.c.id],
                set_={"taken_back": True},
                where=states.excluded.taken_back & ~change_states.c.taken_back,
            ),
            sorted(rows, key=lambda row: str(row["id"])),
        )
    runs: dict[str, dict[str, str]] = {}
    for document in sorted(documents, key=lambda each: each.made_utc):
        for name, run_ids in (("pruned_utc", document.pruned), ("back_utc", document.brought_back)):
            for run_id in run_ids:
                runs.setdefault(run_id, {"run_id": run_id, "pruned_utc": "", "back_utc": ""})[name] = document.made_utc
    if runs:
        times = insert_into(connection, pruned_runs)
        new, there = times.excluded, pruned_runs.c
        later = {name: new[name] > there[name] for name in ("pruned_utc", "back_utc")}
        connection.execute(
            times.on_conflict_do_update(
                index_elements=[there.run_id],
                set_={name: case((is_later, new[name]), else_=there[name]) for name, is_later in later.items()},
                where=or_(*later.values()),
            ),
            [runs[run_id] for run_id in sorted(runs)],
        )


def kept_states(index: Index) -> list[KeptState]:
    """All states that were not taken back, oldest first."""
    statement = select(change_states).where(~change_states.c.taken_back)
    with index.reading() as connection:
        rows = connection.execute(statement.order_by(change_states.c.made_utc, change_states.c.id)).mappings()
        return [_state(row) for row in rows]


def _row(state: KeptState, *, taken_back: bool) -> dict[str, object]:
    begin, end = state.between_utc or (None, None)
    before, after = state.kernels or (None, None)
    return {
        "id": state.id,
        "series": state.series,
        "metric": state.metric,
        "ratio": state.ratio,
        "before_utc": begin,
        "after_utc": end,
        "before_release": before and before.release,
        "before_version": before and before.version,
        "after_release": after and after.release,
        "after_version": after and after.version,
        "state": state.state.value,
        "made_utc": state.made_utc,
        "run_id": state.run_id,
        "commit_id": state.commit,
        "why": state.why,
        "taken_back": taken_back,
    }


def _state(row: RowMapping) -> KeptState:
    before, after = (Kernel(row[f"{side}_release"], row[f"{side}_version"]) for side in ("before", "after"))
    return KeptState(
        series=row["series"],
        state=ChangeState(row["state"]),
        metric=row["metric"],
        ratio=row["ratio"],
        between_utc=(row["before_utc"], row["after_utc"]) if row["before_utc"] is not None else None,
        kernels=(before, after) if row["before_release"] is not None else None,
        run_id=row["run_id"],
        commit=row["commit_id"],
        why=row["why"],
        made_utc=row["made_utc"],
        id=row["id"],
    )
