"""The index behind PgBouncer, which gives each transaction any of its few connections, and with few rights."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Barrier

import psycopg
import pytest
from index_runs import write_days, write_run
from pgbouncer import PgBouncer, running_pgbouncer
from postgres_server import PostgresServer, running_server
from sqlalchemy import text

from fsjoule.errors import IndexServerError, ResultError
from fsjoule.model.series import Where
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs, rebuild
from fsjoule.store.index.judged import keep_verdicts
from fsjoule.store.index.queries import list_series, points, stats
from fsjoule.store.index.retention import Retention, prune
from fsjoule.store.index.states import keep_states
from fsjoule.store.index.trend import trend_reader
from fsjoule.store.states import ChangeState, KeptState
from fsjoule.verdicts.trend.trend import trend_of

_LIMIT_S = 60.0
_AT_ONCE = 8
_SINCE = Retention("2026-03-05T00:00:00Z")
_ROLES = ("fsjoule_owner", "bench", "guest")
_DOCS = Path(__file__).parents[2] / "docs" / "database.md"


@pytest.fixture(scope="module")
def server() -> Generator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def pooler(server: PostgresServer) -> Generator[PgBouncer]:
    with running_pgbouncer(server, _ROLES) as pooler:
        yield pooler


def test_transactions_of_many_clients_share_few_connections(
    server: PostgresServer, pooler: PgBouncer, tmp_path: Path
) -> None:
    """The pooler's are pooled: eight clients at once, and the server has seen two connections."""
    location = pooler.before(server.new_database())
    for number in range(_AT_ONCE):
        write_run(tmp_path / str(number), f"run{number}")
    together = Barrier(_AT_ONCE)

    def work(number: int) -> set[int]:
        together.wait(_LIMIT_S)
        workers: set[int] = set()
        with open_index(location, create=True) as index:
            for _ in range(5):
                import_runs(index, [tmp_path / str(number)])
                with index.reading() as connection:
                    workers.add(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
        return workers

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        seen = set[int]().union(*pool.map(work, range(_AT_ONCE), timeout=_LIMIT_S))
    assert len(seen) == 2
    with open_index(location) as index:
        assert stats(index).runs == _AT_ONCE
        assert stats(index).measurements == 15 * _AT_ONCE


def test_nothing_of_a_transaction_is_left_for_the_next_client(
    server: PostgresServer, pooler: PgBouncer, tmp_path: Path
) -> None:
    location = pooler.before(server.new_database())
    with open_index(location + "&timeout=7", create=True) as index:
        import_runs(index, [write_run(tmp_path).path])
        points(index)
        with index.writing() as connection:
            assert connection.execute(text("SHOW lock_timeout")).scalar_one() == "7s"
    kept = (
        "SELECT count(*) FROM pg_prepared_statements UNION ALL SELECT count(*) FROM pg_locks WHERE locktype='advisory'"
    )
    for _ in range(4):
        with psycopg.connect(location.partition("&")[0] + "&port=6432", prepare_threshold=None) as connection:
            assert connection.execute("SHOW lock_timeout").fetchall() == [("0",)]
            assert connection.execute("SHOW transaction_isolation").fetchall() == [("read committed",)]
            assert connection.execute(kept.encode()).fetchall() == [(0,), (0,)]


def test_a_server_that_ends_behind_its_pooler_is_named(
    server: PostgresServer, pooler: PgBouncer, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run").path
    with open_index(pooler.before(server.new_database()), create=True) as index:

        def lose_it() -> None:
            with index.writing() as connection:
                os.kill(connection.execute(text("SELECT pg_backend_pid()")).scalar_one(), signal.SIGTERM)
                connection.execute(text("SELECT 1"))

        with pytest.raises(IndexServerError, match="cannot be reached") as caught:
            lose_it()
        assert caught.value.transient
        assert import_runs(index, [run]).new == 1


# ----------------------------------------------------------------------------------------------------- roles


def _documented() -> str:
    """The SQL that docs/database.md gives for roles, without psql's own lines."""
    (block,) = re.findall(r"```sql\n(CREATE ROLE fsjoule_owner.*?)```", _DOCS.read_text(encoding="utf-8"), re.DOTALL)
    return block


def _parts() -> tuple[list[str], str, list[str]]:
    """Statements for the whole server, the one that makes the database, and those for the database itself."""
    before, after = _documented().split("\\connect fsjoule")
    statements = [re.sub(r"--.*", "", part).split(";") for part in (before, after)]
    whole, own = ([one.strip() for one in part if one.strip()] for part in statements)
    (create,) = (one for one in whole if one.startswith("CREATE DATABASE"))
    return [one for one in whole if one != create], create, own


@pytest.fixture(scope="module")
def roles(server: PostgresServer) -> None:
    with psycopg.connect(server.conninfo("postgres"), autocommit=True) as connection:
        for statement in _parts()[0]:
            connection.execute(statement.encode())


class TestRoles:
    """Each test has a database that an administrator has set up as documented."""

    _numbers = count(1)

    @pytest.fixture
    def of(
        self, server: PostgresServer, pooler: PgBouncer, roles: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[[str], str]:
        """The URL of a database without tables, for a user. Its states are in a folder of the test's own."""
        del roles
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        name = f"lab{next(self._numbers)}"
        _, create, own = _parts()
        with psycopg.connect(server.conninfo("postgres"), autocommit=True) as connection:
            connection.execute(create.replace("DATABASE fsjoule", f"DATABASE {name}").encode())
        with psycopg.connect(server.conninfo(name), autocommit=True) as connection:
            for statement in own:
                connection.execute(statement.encode())
        return lambda user: pooler.before(f"/{name}", user)

    def test_a_writer_imports_prunes_and_keeps_states_and_a_reader_asks(
        self, of: Callable[[str], str], tmp_path: Path
    ) -> None:
        open_index(of("fsjoule_owner"), create=True).close()
        write_days(tmp_path, range(1, 9))
        with open_index(of("bench"), create=True) as index:
            assert import_runs(index, [tmp_path]).new == 8
            assert rebuild(index, [tmp_path]).changed == 8
            assert len(prune(index, _SINCE).runs) == 4
            assert import_runs(index, [tmp_path], pruned_too=True).new == 4
            key = list_series(index)[0].series.key
            assert keep_states(index, [KeptState(key, ChangeState.ACCEPTED, why="so")]) == 1
        with open_index(of("guest")) as index:
            assert stats(index).runs == 8
            assert len(points(index, at_most=3)) == 2
            trend = trend_of(trend_reader(index, Where()))
            assert (trend.series, len(trend.news.judged)) == (2, 2)
            keep_verdicts(index, trend.news.question, trend.news.verdicts)
            assert len(trend_of(trend_reader(index, Where())).news.judged) == 2  # a guest keeps nothing
        with open_index(of("bench")) as index:
            keep_verdicts(index, trend.news.question, trend.news.verdicts)
        with open_index(of("guest")) as index:
            again = trend_of(trend_reader(index, Where()))
            assert (again, len(again.news.judged)) == (trend, 0)

    def test_a_reader_writes_nothing_and_a_writer_makes_no_tables(
        self, of: Callable[[str], str], tmp_path: Path
    ) -> None:
        run = write_run(tmp_path, started="2026-03-01T10:00:00Z").path
        with pytest.raises(ResultError, match=r"(?s)permission denied for schema public.*this user lacks the right"):
            open_index(of("bench"), create=True)
        with open_index(of("fsjoule_owner"), create=True) as index:
            import_runs(index, [run])
        with open_index(of("guest")) as index:
            with pytest.raises(ResultError, match=r"(?s)permission denied for table.*this user lacks the right.*roles"):
                import_runs(index, [run])
            with pytest.raises(ResultError, match="permission denied"):
                prune(index, _SINCE)
            assert not index.states.exists()
            assert stats(index).runs == 1
        with open_index(of("bench")) as index:
            for statement in ("DROP TABLE runs", "ALTER TABLE runs ADD colour text", "TRUNCATE runs"):
                with pytest.raises(ResultError, match="refused"), index.writing() as connection:
                    connection.execute(text(statement))
