"""What became of changes in histories: confirmed, explained, bisected or accepted, by whoever knows it.

A row is about every change between two points of a series, whichever run the detector sees it at. Rows are added, and
taken back, never changed. A rebuild keeps them, because no run folder has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from sqlalchemy import RowMapping, delete, insert, select

from fsjoule.model.kernel import Kernel
from fsjoule.store.index.database import Index
from fsjoule.store.index.schema import change_states, kernels, series
from fsjoule.store.trend_rows import ChangeState, KeptState


def keep_states(index: Index, states: Iterable[KeptState]) -> int:
    """Add states of series and kernels that the index has; returns their number.

    The others are about no change that it could have.
    """
    rows: list[dict[str, object]] = []
    with index.writing() as connection:
        known = {key: number for number, key in connection.execute(select(series.c.id, series.c.key))}
        found = connection.execute(select(kernels.c.id, kernels.c.release, kernels.c.version))
        numbers = {Kernel(release, version): number for number, release, version in found}
        for each in states:
            if each.series not in known or not numbers.keys() >= set(each.kernels or ()):
                continue
            begin, end = each.between_utc or (None, None)
            before, after = (numbers[kernel] for kernel in each.kernels) if each.kernels else (None, None)
            rows.append(
                {
                    "series": known[each.series],
                    "metric": each.metric,
                    "ratio": each.ratio,
                    "before_utc": begin,
                    "after_utc": end,
                    "before_kernel": before,
                    "after_kernel": after,
                    "state": each.state.value,
                    "made_utc": each.made_utc or f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
                    "run_id": each.run_id,
                    "commit_id": each.commit,
                    "why": each.why,
                }
            )
        if rows:
            connection.execute(insert(change_states), rows)
    return len(rows)


def take_back(index: Index, states: Iterable[KeptState]) -> None:
    """Remove states that were read from this index."""
    with index.writing() as connection:
        connection.execute(delete(change_states).where(change_states.c.id.in_([each.number for each in states])))


def kept_states(index: Index) -> list[KeptState]:
    """All states, oldest first."""
    before, after = kernels.alias(), kernels.alias()
    statement = (
        select(
            change_states,
            series.c.key,
            before.c.release.label("before_release"),
            before.c.version.label("before_version"),
            after.c.release.label("after_release"),
            after.c.version.label("after_version"),
        )
        .join(series, change_states.c.series == series.c.id)
        .outerjoin(before, change_states.c.before_kernel == before.c.id)
        .outerjoin(after, change_states.c.after_kernel == after.c.id)
        .order_by(change_states.c.made_utc, change_states.c.id)
    )
    with index.reading() as connection:
        return [_state(row) for row in connection.execute(statement).mappings()]


def _state(row: RowMapping) -> KeptState:
    both = row["before_kernel"] is not None and row["after_kernel"] is not None
    sides = (Kernel(row["before_release"], row["before_version"]), Kernel(row["after_release"], row["after_version"]))
    return KeptState(
        series=row["key"],
        state=ChangeState(row["state"]),
        metric=row["metric"],
        ratio=row["ratio"],
        between_utc=(row["before_utc"], row["after_utc"]) if row["before_utc"] is not None else None,
        kernels=sides if both else None,
        run_id=row["run_id"],
        commit=row["commit_id"],
        why=row["why"],
        made_utc=row["made_utc"],
        number=row["id"],
    )
