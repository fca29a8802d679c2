"""Connections to PostgreSQL with time limits, because a stopped or unreachable server never says so."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from sqlalchemy import URL, Connection, Engine, create_engine, event

_CONNECT_WAIT_S: Final = 15
# Longer than the server's wait for a lock, whose error says more than a missing answer.
_SLACK_S: Final = 5.0
_POLL_S: Final = 0.1
_T = TypeVar("_T")


class _Bounded(psycopg.Connection[Any]):
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

    def connected(_dialect: object, _record: object, cargs: list[Any], cparams: dict[str, Any]) -> _Bounded:
        cparams.pop("timeout", None)  # ours, not libpq's
        connection = _Bounded.connect(*cargs, **cparams, connect_timeout=_CONNECT_WAIT_S)
        connection.limit_s = wait_s + _SLACK_S
        return connection

    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {wait_s * 1000:.0f}")

    event.listen(engine, "do_connect", connected)
    event.listen(engine, "begin", begun)
    return engine
