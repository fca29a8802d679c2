"""The web service over an index that comes and goes, and reading an index without ever writing to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from services import Service, copied, two_runs
from sqlalchemy import text as sql

from fsjoule.errors import ConfigError, ResultError
from fsjoule.model.places import Lab
from fsjoule.model.series import Order, Where
from fsjoule.report.service.settings import Settings
from fsjoule.report.service.start import Overviews
from fsjoule.store.index.database import Index, open_index, state_of
from fsjoule.store.index.defaults import LEAST_OF_EACH, MOST_READ
from fsjoule.store.index.judged import keep_verdicts
from fsjoule.store.index.trend import trend_reader
from fsjoule.verdicts.trend.trend import trend_of

PAGES = ("/", "/trend", "/runs", "/run/aaaaaa", "/compare")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_runs(tmp_path_factory.mktemp("made"))


@pytest.fixture(autouse=True)
def _cache(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(made / "cache"))
    # Only a server is asked for its state once in a time: a file that is gone is seen at once.
    monkeypatch.setattr("fsjoule.report.service.pages._ASK_AGAIN_S", 60.0)


@pytest.fixture
def index(made: Path, tmp_path: Path) -> Path:
    """For a test alone, with its run folders beside it."""
    return copied(made, tmp_path)


def test_an_index_that_disappears_is_told_and_comes_back(index: Path) -> None:
    service = Service(index)
    before = {address: service.ask(address) for address in PAGES}
    index.rename(index.with_name("away"))
    for address, known in before.items():
        gone = service.ask(address, if_none_match=known.tag)
        assert gone.status == 503
        assert "cannot be read: missing, damaged" in gone.text
        assert str(index.parent) not in gone.text
        assert gone.headers["retry-after"] == "5"
    assert service.ask("/healthz").status == 503
    # Whoever runs it is told where it looks, once for all these requests.
    hint = f"make it from run folders: fsjoule index rebuild results --index {index}"
    assert service.said == [f"there is no index at {index} yet\n  hint: {hint}"]
    assert "fsjoule_serve_index_up 0" in service.ask("/metrics").text
    assert not index.exists()
    index.with_name("away").rename(index)
    for address, known in before.items():
        assert service.ask(address, if_none_match=known.tag).status == 304
    assert service.ask("/healthz").text.startswith("ok ")


def test_a_damaged_index_is_told_until_it_is_made_again(index: Path) -> None:
    service = Service(index)
    whole = index.read_bytes()
    assert service.ask("/runs").status == 200
    index.write_bytes(b"no database at all" * 1000)
    damaged = service.ask("/runs")
    assert damaged.status == 503
    assert "cannot be read: missing, damaged" in damaged.text
    assert f"the index {index} is damaged, or not an index" in service.said[0]
    index.write_bytes(whole)
    assert service.ask("/runs").status == 200


def test_an_index_that_is_held_is_told(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(index)
    monkeypatch.setattr("fsjoule.report.service.settings._WAIT_S", 0.01)
    assert service.ask("/compare").status == 200
    holder = sqlite3.connect(index, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    held = service.ask("/runs")
    assert held.status == 503
    assert "is held by a writer" in held.text
    assert f"the index {index} has been held by another process for 0.01 s" in service.said[0]
    # What is kept needs no index.
    assert service.ask("/compare").status == 200
    holder.execute("ROLLBACK")
    holder.close()
    assert service.ask("/runs").status == 200


def test_a_lab_that_cannot_be_looked_at_is_no_fault_of_the_reader(index: Path) -> None:
    def look(_results: object, _now_s: float) -> Lab:
        raise ConfigError(f"{index.parent} is not a folder", hint="give run folders")

    service = Service(index, look=look)
    answer = service.ask("/places")
    assert answer.status == 503
    assert "the lab&#39;s coordinator does not answer" in answer.text
    assert str(index.parent) not in answer.text
    assert service.said == [f"{index.parent} is not a folder\n  hint: give run folders"]


def test_faults_that_take_turns_are_told_once_each(index: Path) -> None:
    def look(_results: object, _now_s: float) -> Lab:
        raise ConfigError("the coordinator is gone", hint="start it")

    service = Service(index, look=look)
    index.unlink()
    for _ in range(3):
        assert {service.ask(address).status for address in ("/runs", "/places")} == {503}
    assert len(service.said) == 2


def test_a_page_takes_the_verdicts_that_the_nightly_trend_has_kept(index: Path) -> None:
    with open_index(index) as opened:
        options: Any = {"at_most": MOST_READ, "of_each": LEAST_OF_EACH}
        news = trend_of(trend_reader(opened, Where(), **options)).news
        keep_verdicts(opened, news.question, news.verdicts)
    with open_index(index, read_only_s=1.0) as opened:
        shown = Overviews(Settings(str(index))).of(opened, "state", Where(), Order.TIME, ())
    assert shown.series
    assert not shown.news.judged


def test_the_index_is_only_read(index: Path) -> None:
    before = index.read_bytes()
    with open_index(index, read_only_s=1.0) as opened:
        with pytest.raises(ConfigError, match="readonly"), opened.reading() as connection:
            connection.execute(sql("DELETE FROM runs"))
        with pytest.raises(AssertionError), opened.writing():
            pass
    assert index.read_bytes() == before


def test_an_error_without_a_code_of_sqlite_is_told(index: Path) -> None:
    def read_after_its_end(opened: Index) -> None:
        with opened.reading() as connection:
            raw = connection.connection.dbapi_connection
            assert raw is not None
            raw.close()
            connection.execute(sql("SELECT 1"))

    with open_index(index) as opened, pytest.raises(ResultError, match=r"refused: .*closed database"):
        read_after_its_end(opened)


def test_a_name_that_a_uri_would_read_otherwise_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a?mode=memory#50%25 ü.sqlite"
    open_index(file, create=True).close()
    with open_index(file, read_only_s=1.0) as opened:
        assert opened.file == file
        first = state_of(opened)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("INSERT INTO kernels VALUES (1, 'a', 'b', 'c')")
    with open_index(file, read_only_s=1.0) as opened:
        assert state_of(opened) != first
