"""What is SQLite's own of an index. test_index_import.py and its like have what every database must do."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from index_runs import write_run

from fsjoule.errors import ConfigError, HostError, ResultError
from fsjoule.store.index.database import index_url, open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.queries import stats


@pytest.mark.parametrize(
    ("written", "driver"),
    [
        ("results/index.sqlite", "sqlite"),
        ("sqlite:///results/index.sqlite", "sqlite"),
        ("sqlite+pysqlite:////srv/index.sqlite", "sqlite"),
        ("postgres://lab@db/fsjoule", "postgresql+psycopg"),
        ("postgresql://lab:secret@db/fsjoule", "postgresql+psycopg"),
        ("postgresql+psycopg2://lab@db/fsjoule", "postgresql+psycopg"),
    ],
)
def test_an_index_is_named_by_a_file_or_a_url(written: str, driver: str) -> None:
    assert index_url(written).drivername == driver


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("mysql://lab@db/fsjoule", "cannot be kept in 'mysql'"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("postgresql://lab@db:port/fsjoule", "cannot be read"),
        ("sqlite:///index.sqlite?timeout=soon", "timeout=soon is not a number"),
        ("sqlite:///index.sqlite?timeout=nan", "timeout=nan is not a number"),
        ("sqlite:///index.sqlite?timeout=-1", "timeout=-1 is not a number"),
    ],
)
def test_a_url_that_can_be_no_index_is_refused(written: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){words}.*postgresql://USER@HOST/DATABASE"):
        open_index(written, create=True)


@pytest.mark.parametrize("content", [b"no database at all, but a text of some length" * 100, b"SQLite format 3\0" * 99])
def test_a_file_that_is_no_index_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "index.sqlite"
    file.write_bytes(content)
    for create in (False, True):
        with pytest.raises(ResultError, match=r"(?s)damaged, or not an index.*delete it and run"):
            open_index(file, create=create)
    assert file.read_bytes() == content


def test_a_view_in_the_place_of_a_table_is_not_read(tmp_path: Path) -> None:
    """This one has no end."""
    file = tmp_path / "index.sqlite"
    open_index(file, create=True).close()
    with closing(sqlite3.connect(file)) as database:
        database.executescript(
            "PRAGMA foreign_keys=OFF; DROP TABLE runs; "
            "CREATE VIEW runs AS WITH RECURSIVE r(run_id) AS (SELECT 1 UNION ALL SELECT run_id FROM r) SELECT * FROM r"
        )
    with pytest.raises(ResultError, match="is not an index: it has 'runs'"):
        open_index(file)


def test_an_index_that_somebody_else_keeps_writing_is_busy(tmp_path: Path) -> None:
    file = tmp_path / "index.sqlite"
    run = write_run(tmp_path / "results").path
    open_index(file, create=True).close()
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with open_index(f"sqlite:///{file}?timeout=0.1") as index:
        with pytest.raises(HostError, match=r"held by another process for 0\.1 s") as caught:
            import_runs(index, [run])
        assert caught.value.transient
        assert stats(index).runs == 0
        holder.execute("ROLLBACK")
        holder.close()
        assert import_runs(index, [run]).new == 1


def test_a_writer_waits_when_it_begins_and_not_halfway(tmp_path: Path) -> None:
    """SQLite refuses at once, whatever the time it may wait, who has read and then wants to write beside a writer."""
    file = tmp_path / "index.sqlite"
    with open_index(file, create=True) as index, open_index(f"sqlite:///{file}?timeout=0.1") as other:
        with index.writing(), pytest.raises(HostError, match="held by another process"), other.writing():
            pass
        with other.writing():
            pass


def test_an_index_can_be_one_file_that_is_only_read(tmp_path: Path) -> None:
    """SQLite's own journal leaves no second file behind, so that a copy is whole and a reader need not write."""
    file = tmp_path / "results" / "index.sqlite"
    with open_index(file, create=True) as index:
        import_runs(index, [write_run(tmp_path / "results").path])
    assert [path.name for path in file.parent.glob("index*")] == ["index.sqlite"]
    with open_index(f"sqlite:///file:{file}?mode=ro&immutable=1&uri=true") as index:
        assert stats(index).runs == 1
        with pytest.raises(ConfigError, match=r"(?s)cannot be opened or written.*--index"):
            import_runs(index, [write_run(tmp_path / "results", "bbbbbb").path])


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"(?s)cannot be made.*FSJOULE_INDEX"):
        open_index(tmp_path / "file" / "below" / "index.sqlite", create=True)
    with pytest.raises(ConfigError, match="cannot be opened: it is a folder"):
        open_index(tmp_path, create=True)
