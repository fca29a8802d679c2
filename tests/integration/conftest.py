"""Indexes, on each database on which one may be (`new_location`), and an object store."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import count
from pathlib import Path

import pytest
from nights import NIGHTS, STEP_AT, Nights, slower_at
from object_store import ObjectStore, Proxy, object_store, proxy
from pgbouncer import PgBouncer, running_pgbouncer
from postgres_server import PostgresServer, running_server

from fsjoule.store.index.database import Index, open_index
from fsjoule.store.index.importer import import_runs

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


@pytest.fixture
def index(new_location: Callable[[], str]) -> Generator[Index]:
    """An empty one."""
    with open_index(new_location(), create=True) as index:
        yield index


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """The folder of runs, which is not there yet."""
    return tmp_path / "results"


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `results` of 36 nights, their index in it. On one of two boards there is a loss from STEP_AT on."""
    here = tmp_path_factory.mktemp("measured")
    Nights(speed=slower_at(STEP_AT)).write(here / "results", NIGHTS)
    Nights(board="colibri", simulated=False, filesystems=("ext4",), prefix="c").write(here / "results", 5)
    with open_index(here / "results" / "index.sqlite", create=True) as index:
        import_runs(index, [here / "results"])
    return here


@pytest.fixture(scope="module")
def moto() -> Generator[ObjectStore]:
    with object_store() as started:
        yield started


@pytest.fixture
def way(moto: ObjectStore) -> Generator[Proxy]:
    with proxy(moto.url) as passing:
        yield passing
