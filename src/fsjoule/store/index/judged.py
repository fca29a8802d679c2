"""What a trend found in each series, kept so that only series with something new are judged again.

A row holds for as long as its series would be judged from the same again: whoever reads it compares the digests. So
writers may overwrite each other's rows, and an import, a prune or a rebuild need not know of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import Connection, delete, func, select, tuple_

from fsjoule.store.index.database import Index, insert_into
from fsjoule.store.index.schema import judged_series
from fsjoule.store.trend_rows import KeptVerdict

# Questions that nobody asks any more leave no rows behind for ever; the others are judged again once in this time.
_KEPT: Final = timedelta(days=30)
_PORTION: Final = 500  # SQLite takes only some thousands of values per statement


def kept_verdicts(connection: Connection, question: bytes, numbers: Sequence[int]) -> dict[int, KeptVerdict]:
    """The kept verdicts on some series, by their numbers."""
    columns = (judged_series.c.series, judged_series.c.made_from, judged_series.c.histories)
    statement = select(*columns).where(judged_series.c.question == question)
    return {
        number: KeptVerdict(*row)
        for start in range(0, len(numbers), _PORTION)
        for number, *row in connection.execute(
            statement.where(judged_series.c.series.in_(numbers[start : start + _PORTION]))
        )
    }


def _may_keep(index: Index) -> bool:
    """Whether this user may keep verdicts: readers may not."""
    if index.file is not None:
        # SQLite writes its journal beside the file.
        return all(os.access(path, os.W_OK) for path in (index.file, index.file.parent))
    with index.reading() as connection:
        privileges = [func.has_table_privilege(judged_series.name, each) for each in ("INSERT", "UPDATE", "DELETE")]
        return all(connection.execute(select(*privileges)).one())


def keep_verdicts(index: Index, question: bytes, found: Mapping[int, KeptVerdict]) -> None:
    """Keep verdicts instead of the earlier ones on their series, if this user may write there."""
    if not found or not _may_keep(index):
        return
    now = datetime.now(UTC)
    rows = [
        {"series": number, "question": question, "judged_utc": _iso(now), **verdict._asdict()}
        for number, verdict in sorted(found.items())
    ]
    with index.writing() as connection:
        statement = insert_into(connection, judged_series)
        changed = {name: statement.excluded[name] for name in ("made_from", "judged_utc", "histories")}
        keys = [judged_series.c.series, judged_series.c.question]
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed), rows)
        old = select(*keys).where(judged_series.c.judged_utc < _iso(now - _KEPT))
        # Whatever another trend is writing at this moment is not old any more; waiting for it could block both.
        old = old.with_for_update(skip_locked=True)
        connection.execute(delete(judged_series).where(tuple_(*keys).in_(old)))


def _iso(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
