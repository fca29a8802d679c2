"""What is PostgreSQL's own of an index."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from index_runs import measurement_file, write_run
from postgres_server import PostgresServer, running_server
from sqlalchemy import Connection, create_engine, func, insert, select, text

from fsjoule.errors import HostError, IndexServerError, ResultError
from fsjoule.host.paths import project_dir
from fsjoule.model.series import Where
from fsjoule.store.index.database import index_url, make_tables, open_index, state_of
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.judged import keep_verdicts
from fsjoule.store.index.postgresql import copy_rows
from fsjoule.store.index.queries import points, stats
from fsjoule.store.index.run_rows import ReadRun, read_run
from fsjoule.store.index.schema import pruned_runs, runs
from fsjoule.store.index.states import keep_states
from fsjoule.store.index.trend import trend_reader
from fsjoule.store.index.writer import Writer, remove_runs
from fsjoule.store.states import ChangeState, KeptState
from fsjoule.verdicts.trend.trend import trend_of

_LIMIT_S = 60.0


@pytest.fixture(scope="module")
def server() -> Generator[PostgresServer]:
    with running_server() as server:
        yield server


def test_who_only_reads_needs_no_other_right(server: PostgresServer, tmp_path: Path) -> None:
    location = server.new_database()
    write_run(tmp_path, only=[1])
    with open_index(location, create=True) as index:
        import_runs(index, [tmp_path])
        with index.writing() as connection:
            connection.execute(text("CREATE ROLE looker LOGIN"))
            connection.execute(text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO looker"))
    url = index_url(location).set(username="looker").render_as_string(hide_password=False)
    with open_index(url, read_only_s=5.0) as reader:
        assert stats(reader).measurements == 1
        # What is counted is everybody's to see, a little later.
        with open_index(location) as index:
            until_s = time.monotonic() + _LIMIT_S
            while state_of(reader) != state_of(index) and time.monotonic() < until_s:
                time.sleep(0.1)
            assert state_of(reader) == state_of(index)


def test_kept_verdicts_change_no_state(server: PostgresServer, tmp_path: Path) -> None:
    written = text("SELECT n_tup_ins + n_tup_upd FROM pg_stat_user_tables WHERE relname = 'judged_series'")
    with open_index(server.new_database(), create=True) as index:
        import_runs(index, [write_run(tmp_path).path])
        found = trend_of(trend_reader(index, Where()))
        states: list[str] = []
        for count in (1, 2):
            keep_verdicts(index, found.news.question, found.news.verdicts)
            until_s = time.monotonic() + _LIMIT_S
            while True:
                with index.reading() as connection:
                    counted = connection.execute(written).scalar_one()
                if counted >= count * len(found.news.judged):
                    break
                assert time.monotonic() < until_s
                time.sleep(0.1)
            # What was written before it is counted as well by now.
            states.append(state_of(index))
    assert found.news.judged
    assert states[0] == states[1]


def test_a_reader_sees_one_state_while_others_write(server: PostgresServer, tmp_path: Path) -> None:
    location = server.new_database()
    with open_index(location, create=True) as index, open_index(location) as other:
        import_runs(other, [write_run(tmp_path / "a").path])
        with index.reading() as connection:
            counted = select(func.count()).select_from(runs)
            assert connection.execute(counted).scalar_one() == 1
            import_runs(other, [write_run(tmp_path / "b", "bbbbbb").path])
            assert connection.execute(counted).scalar_one() == 1
        with index.reading() as connection:
            assert connection.execute(counted).scalar_one() == 2


def wait_until_somebody_waits(connection: Connection) -> None:
    until_s = time.monotonic() + _LIMIT_S
    while not connection.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar_one():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_two_that_add_to_one_run_at_once_add_up(server: PostgresServer, tmp_path: Path) -> None:
    location = server.new_database()
    growing = write_run(tmp_path / "growing", only=(1, 2, 3), finished=False).path
    copy = write_run(tmp_path / "copy", finished=False).path
    with open_index(location, create=True) as index, open_index(location) as other, ThreadPoolExecutor(1) as pool:
        # With all series and kernels there, nothing but the run itself is left to wait for.
        import_runs(index, [growing, write_run(tmp_path / "another", "bbbbbb").path])
        for number in (4, 5, 6):
            added = measurement_file(copy, number).parent
            shutil.copytree(added, growing / "measurements" / added.name)
        with index.writing() as connection:
            read = read_run(growing)
            assert isinstance(read, ReadRun)
            assert Writer().write(connection, [read]).measurements == 3
            second = pool.submit(import_runs, other, [copy])
            wait_until_somebody_waits(connection)
        assert second.result(_LIMIT_S).measurements == 9
        assert stats(index).measurements == 30


def test_who_comes_while_the_tables_are_made_waits_for_them(server: PostgresServer) -> None:
    location = server.new_database()
    engine = create_engine(index_url(location))
    with ThreadPoolExecutor(1) as pool:
        with engine.connect() as connection, connection.begin():
            make_tables(connection)
            second = pool.submit(open_index, location, create=True)
            wait_until_somebody_waits(connection)
        with second.result(_LIMIT_S) as index:
            assert stats(index).runs == 0
    engine.dispose()


def test_a_server_that_is_not_there_is_said_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(IndexServerError, match=r"(?s)cannot be reached.*is its server up") as caught:
        open_index(f"postgresql://lab:secret@/fsjoule?host={tmp_path}", create=True)
    assert caught.value.transient
    assert "secret" not in str(caught.value)


def test_a_server_that_stops_answering_is_given_up(server: PostgresServer, tmp_path: Path) -> None:
    location = f"{server.new_database()}&timeout=0.5"
    with open_index(location, create=True) as index:
        with index.writing() as connection:
            worker = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        begun_s = time.monotonic()
        os.kill(worker, signal.SIGSTOP)
        try:
            with pytest.raises(IndexServerError, match=r"cannot be reached: it has not answered for 5.5 s") as caught:
                import_runs(index, [write_run(tmp_path / "run").path])
        finally:
            os.kill(worker, signal.SIGCONT)
        assert caught.value.transient
        assert time.monotonic() - begun_s < _LIMIT_S
        assert import_runs(index, [tmp_path / "run"]).new == 1


def test_an_import_beside_a_pruning_does_not_bring_a_run_back(server: PostgresServer, tmp_path: Path) -> None:
    location = server.new_database()
    run = write_run(tmp_path / "run").path
    with open_index(location, create=True) as index, open_index(location) as other, ThreadPoolExecutor(1) as pool:
        import_runs(index, [run])
        with index.writing() as connection:
            remove_runs(connection, ["aaaaaa"])
            connection.execute(insert(pruned_runs).values(run_id="aaaaaa", pruned_utc="2026-03-09T10:00:00Z"))
            second = pool.submit(import_runs, other, [run])
            wait_until_somebody_waits(connection)
        report = second.result(_LIMIT_S)
        assert (report.new, report.pruned, report.measurements) == (0, 1, 0)
        assert stats(index).runs == 0


def write_while_its_worker_ends(connection: Connection, read: ReadRun) -> None:
    os.kill(connection.execute(text("SELECT pg_backend_pid()")).scalar_one(), signal.SIGTERM)
    Writer().write(connection, [read])


def test_a_server_that_loses_its_worker_is_named_and_nothing_is_half_there(
    server: PostgresServer, tmp_path: Path
) -> None:
    with open_index(server.new_database(), create=True) as index:
        run = write_run(tmp_path / "run").path
        read = read_run(run)
        assert isinstance(read, ReadRun)
        with pytest.raises(IndexServerError, match="cannot be reached"), index.writing() as connection:
            write_while_its_worker_ends(connection, read)
        assert stats(index).runs == 0
        assert import_runs(index, [run]).new == 1


def worker_ends_before(connection: Connection, rows: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    raw: Any = connection.connection.driver_connection
    os.kill(raw.info.backend_pid, signal.SIGTERM)
    yield from rows


def test_rows_that_the_server_refuses_or_loses_leave_nothing(server: PostgresServer) -> None:
    columns, twice = ("run_id", "pruned_utc"), [("aaaaaa", "2026"), ("aaaaaa", "2026")]
    with open_index(server.new_database(), create=True) as index:
        with pytest.raises(ResultError, match="refused: duplicate key"), index.writing() as connection:
            copy_rows(connection, pruned_runs, columns, twice)
        with pytest.raises(IndexServerError, match="cannot be reached"), index.writing() as connection:
            copy_rows(connection, pruned_runs, columns, worker_ends_before(connection, twice[:1]))
        with index.writing() as connection:
            assert connection.execute(select(func.count()).select_from(pruned_runs)).scalar_one() == 0
            copy_rows(connection, pruned_runs, columns, twice[:1])
        with index.reading() as connection:
            assert connection.execute(select(pruned_runs.c.run_id, pruned_runs.c.pruned_utc)).all() == twice[:1]


def test_a_lock_that_another_holds_is_waited_for_as_long_as_asked(server: PostgresServer) -> None:
    location = server.new_database()
    with open_index(location, create=True) as index, open_index(f"{location}&timeout=0.5") as other:
        with index.writing() as holding:
            holding.execute(text("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE"))
            with pytest.raises(HostError, match=r"has been held by another process for 0.5 s"):
                stats(other)
        assert stats(other).runs == 0


def test_grafana_dashboard_asks_what_the_index_has(server: PostgresServer, tmp_path: Path) -> None:
    dashboard = json.loads((project_dir() / "labgrid" / "grafana" / "fsjoule.json").read_text())
    names = {each["name"]: each.get("query", "") for each in dashboard["templating"]["list"]}
    assert names.pop("datasource") == "grafana-postgresql-datasource"
    with open_index(server.new_database(), create=True) as index:
        written = write_run(tmp_path)
        import_runs(index, [written.path])
        first = next(iter(points(index, Where())))
        keep_states(index, [KeptState(first.key, ChangeState.CONFIRMED, metric="throughput", ratio=0.9)])
        with index.reading() as connection:

            def answer(sql: str, **values: str) -> list[dict[str, Any]]:
                sql = sql.replace("${__from:date:iso}", "2026-03-01T00:00:00.000Z")
                sql = sql.replace("${__to:date:iso}", "2026-04-01T00:00:00.000Z")
                sql = re.sub(r"\$\{(\w+):sqlstring\}", lambda found: values[found[1]], sql)
                assert "$" not in sql
                return [dict(row) for row in connection.execute(text(sql.replace(":", r"\:"))).mappings()]

            quoted = {
                name: ",".join(f"'{value}'" for row in answer(query) for value in row.values())
                for name, query in names.items()
            }
            rows = {each["title"]: answer(each["targets"][0]["rawSql"], **quoted) for each in dashboard["panels"]}
    assert all(rows.values()), [title for title, found in rows.items() if not found]
    assert {type(row["time"]) for row in rows["Throughput"]} == {datetime}
    assert all(row["metric"].endswith("(simulated)") for row in rows["Energy per MiB"])
    assert [row["invalid"] for row in rows["Runs"]] == [1]
