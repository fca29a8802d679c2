"""PostgreSQL's own: connections with time limits, because a stopped server never says so, and rows by COPY.

Nothing here needs a session: settings belong to a transaction, and no statement is prepared. So a connection pooler
may give each transaction another server process (PgBouncer's transaction pooling).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import psycopg
from psycopg import sql
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from sqlalchemy import URL, Connection, Engine, Table, create_engine, event
from sqlalchemy.exc import DBAPIError

_CONNECT_WAIT_S: Final = 15
# Longer than the server's wait for a lock, whose error says more than a missing answer.
_SLACK_S: Final = 5.0
_POLL_S: Final = 0.1
_T = TypeVar("_T")


class _BoundedConnection(psycopg.Connection[Any]):
    """A connection that gives the server `limit_s` seconds for each answer."""

    limit_s: float = 0.0

    def wait(self, gen: PQGen[_T], interval: float = _POLL_S, timeout: float | None = None) -> _T:
        """See psycopg. Raises OperationalError, with the connection closed, if no answer comes in time."""
        limit_s = self.limit_s if timeout is None else timeout
        try:
            return super().wait(gen, interval, limit_s)
        except psycopg.OperationalError as error:
            if self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                raise
            # A rollback would wait as long again.
            self.pgconn.finish()
            raise psycopg.OperationalError(f"it has not answered for {limit_s:g} s") from error


def postgresql_engine(url: URL, wait_s: float) -> Engine:
    """An engine that waits `wait_s` seconds for other writers, and little longer for any answer."""
    engine = create_engine(url)

    def connected(_dialect: object, _record: object, cargs: list[Any], cparams: dict[str, Any]) -> _BoundedConnection:
        cparams.pop("timeout", None)  # ours, not libpq's
        connection = _BoundedConnection.connect(
            *cargs, **cparams, connect_timeout=_CONNECT_WAIT_S, prepare_threshold=None
        )
        connection.limit_s = wait_s + _SLACK_S
        return connection

    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {wait_s * 1000:.0f}")

    event.listen(engine, "do_connect", connected)
    event.listen(engine, "begin", begun)
    return engine


def copy_rows(connection: Connection, table: Table, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Append rows within the connection's transaction, several times as fast as INSERT. Raises DBAPIError."""
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table.name), names)
    raw: Any = connection.connection.driver_connection
    try:
        with raw.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
    except psycopg.Error as error:
        raise DBAPIError(f"COPY {table.name}", None, error, connection_invalidated=raw.broken) from error
