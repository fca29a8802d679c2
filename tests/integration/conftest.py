"""The databases on which an index may be: what one must do, each of them does (`new_location`)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import count
from pathlib import Path

import pytest
from pgbouncer import PgBouncer, running_pgbouncer
from postgres_server import PostgresServer, running_server

_DATABASES = ("sqlite", "postgresql")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test of an index on both databases, or on the module's own `DATABASES`."""
    if "new_location" in metafunc.fixturenames:
        databases = getattr(metafunc.module, "DATABASES", _DATABASES)
        metafunc.parametrize("new_location", databases, indirect=True)


@pytest.fixture(scope="session")
def postgresql() -> Generator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def pooler(postgresql: PostgresServer) -> Generator[PgBouncer]:
    with running_pgbouncer(postgresql) as pooler:
        yield pooler


@pytest.fixture
def new_location(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Give the location of a new index each time, on the database that is the parameter.

    The states of one on a server are in a folder of the test's own.
    """
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    if request.param == "sqlite":
        numbers = count(1)
        return lambda: str(tmp_path / "indexes" / f"{next(numbers)}.sqlite")
    server: PostgresServer = request.getfixturevalue("postgresql")
    if request.param == "postgresql":
        return server.new_database
    pooler: PgBouncer = request.getfixturevalue("pooler")
    return lambda: pooler.before(server.new_database())
