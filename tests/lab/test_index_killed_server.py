"""A PostgreSQL server that is killed while several processes import: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from index_runs import many_runs, measured
from pgbouncer import running_pgbouncer
from postgres_server import PostgresServer, running_server
from sqlalchemy import Connection, insert, text

from fsjoule.errors import IndexServerError
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.queries import stats
from fsjoule.store.index.run_rows import ReadRun, read_run
from fsjoule.store.index.schema import runs

_LIMIT_S = 300.0
_RUNS = 60  # more than one batch of an import
_SERVER_ERROR = 7


def _importer(location: str, *paths: Path) -> subprocess.Popen[bytes]:
    program = Path(sys.executable).with_name("fsjoule")
    argv = [program, "index", "import", *paths, "--index", location]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _kill_amidst(
    server: PostgresServer, connection: Connection, last: Sequence[Path], start: Callable[[], None], count: int
) -> None:
    """Kill the server when all `count` importers wait for this transaction, which has the last runs first."""
    for path in last:
        read = read_run(path)
        assert isinstance(read, ReadRun)
        row = {**read.columns, "fixed_digest": read.fixed_digest, "final_digest": read.final_digest}
        connection.execute(insert(runs).values(row))
    start()
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    until_s = time.monotonic() + _LIMIT_S
    while connection.execute(waiting).scalar_one() < count:
        assert time.monotonic() < until_s
        time.sleep(0.05)
    server.kill()
    connection.execute(waiting)


# test_index_pooled.py has what else is the pooler's.
@pytest.mark.parametrize("pooled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_imports_into_a_server_that_is_killed_can_be_repeated(tmp_path: Path, *, pooled: bool) -> None:
    folders = [tmp_path / name for name in "abc"]
    (per_run,) = {many_runs(folder, number * _RUNS, _RUNS) for number, folder in enumerate(folders)}
    with open_index(tmp_path / "expected.sqlite", create=True) as expected:
        import_runs(expected, folders)
        wanted = measured(expected)
    assert len(wanted) == 3 * _RUNS * per_run
    # Each process has a folder of its own and one that another has too, as from machines with copies.
    shares = [(folders[0], folders[1]), (folders[1], folders[2]), (folders[2], folders[0])]
    with running_server() as server, running_pgbouncer(server, pool=2 + len(shares)) as pooler:
        location = server.new_database()
        location = f"{pooler.before(location) if pooled else location}&timeout={_LIMIT_S:.0f}"
        importers: list[subprocess.Popen[bytes]] = []
        last = [max(folder.iterdir()) for folder in folders]

        def start() -> None:
            importers.extend(_importer(location, *share) for share in shares)

        with open_index(location, create=True) as index:
            with pytest.raises(IndexServerError, match="cannot be reached"), index.writing() as connection:
                _kill_amidst(server, connection, last, start, len(shares))
            for importer in importers:
                said = importer.communicate(timeout=_LIMIT_S)[1].decode()
                assert importer.returncode == _SERVER_ERROR, said
                assert "cannot be reached" in said
            server.start()
            found = stats(index)
            assert 0 < found.runs < 3 * _RUNS
            assert found.measurements == found.runs * per_run  # whole runs
            importers.clear()
            start()
            for importer in importers:
                said = importer.communicate(timeout=_LIMIT_S)[1].decode()
                assert importer.returncode == 0, said
            assert stats(index).measurements == len(wanted)
            assert measured(index) == wanted
