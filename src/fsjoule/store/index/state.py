"""The state of an index: a short text that changes when anybody has written to it.

Whoever keeps answers asks for the state before the answer. So an answer may be newer than its state, never older.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from sqlalchemy import text

from fsjoule.errors import ResultError
from fsjoule.store.index.database import Index, absent

_DIGEST_BYTES: Final = 8
# SQLite's file format, 1.3: the number of transactions that wrote to the file.
_CHANGE_COUNTER: Final = slice(24, 28)
# The server counts rows a second after their transaction, and ten at the latest, without reading a table. A restart
# after a crash begins to count anew. Kept verdicts change no answer.
_COUNTED: Final = text(
    "SELECT sum(n_tup_ins), sum(n_tup_upd), sum(n_tup_del), count(*), pg_postmaster_start_time() "
    "FROM pg_stat_user_tables WHERE schemaname = current_schema() AND relname <> 'judged_series'"
)


def state_of(index: Index) -> str:
    """The state, as 16 hexadecimal digits.

    Raises ResultError if the index is gone, IndexServerError if its server does not answer.

    In PostgreSQL it changes ten seconds after a transaction at the latest. In SQLite looking takes 20 µs.
    """
    file = index.file
    if file is not None:
        return _digest(*_of_file(file), *_of_file(Path(f"{file}-wal"), needed=False))
    with index.reading() as connection:
        return _digest(*connection.execute(_COUNTED).one())


def _of_file(file: Path, *, needed: bool = True) -> tuple[object, ...]:
    try:
        with file.open("rb", buffering=0) as opened:
            status = os.fstat(opened.fileno())
            counter = opened.read(_CHANGE_COUNTER.stop)[_CHANGE_COUNTER]
    except FileNotFoundError as error:
        if needed:
            raise absent(str(file)) from error
        return ()
    except OSError as error:
        raise ResultError(f"the index {file} cannot be read: {error.strerror}") from error
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, counter


def _digest(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=_DIGEST_BYTES).hexdigest()
