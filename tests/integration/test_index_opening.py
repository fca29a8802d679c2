"""How an index is made and refused, on every database and behind a pooler."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from index_runs import write_run
from sqlalchemy import create_engine, inspect, text, update

from fsjoule.errors import FsjouleError, ResultError
from fsjoule.store.index.database import index_url, open_index, state_of
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.queries import points, stats
from fsjoule.store.index.schema import index_version, metadata

_AT_ONCE = 6
_LIMIT_S = 60.0
_COUNTED_S = 1.0  # when a server has counted all rows

NewLocation = Callable[[], str]
DATABASES = ("sqlite", "postgresql", "pooled")


class TestOpening:
    """Making and refusing."""

    def test_who_only_reads_cannot_write(self, new_location: NewLocation, tmp_path: Path) -> None:
        location = new_location()
        write_run(tmp_path, only=[1])
        with open_index(location, create=True) as index:
            import_runs(index, [tmp_path])
        with open_index(location, read_only_s=5.0) as reader:
            with pytest.raises(FsjouleError, match=r"read-?only"), reader.reading() as connection:
                connection.execute(text("DELETE FROM measurements"))
            assert stats(reader).measurements == 1
        with pytest.raises(ResultError, match="there is no index"):
            open_index(new_location(), read_only_s=5.0)

    def test_the_state_changes_when_somebody_has_written(self, new_location: NewLocation, tmp_path: Path) -> None:
        location = new_location()
        with open_index(location, create=True) as index, open_index(location, read_only_s=5.0) as reader:
            seen = {state_of(reader)}
            for run_id in ("aaaaaa", "bbbbbb"):
                write_run(tmp_path / run_id, run_id, only=[1])
                import_runs(index, [tmp_path / run_id])
                # A server counts rows a little later.
                until_s = time.monotonic() + _LIMIT_S
                while (state := state_of(reader)) in seen and time.monotonic() < until_s:
                    time.sleep(0.05)
                assert state not in seen
                seen.add(state)
            time.sleep(2 * _COUNTED_S)
            last = state_of(reader)
            assert points(reader, metrics=())
            assert state_of(reader) == last, "reading changes nothing"

    def test_an_index_that_is_not_there_is_only_made_when_asked(self, new_location: NewLocation) -> None:
        location = new_location()
        for _ in range(2):
            with pytest.raises(ResultError, match=r"(?s)there is no index at .*fsjoule index rebuild"):
                open_index(location)
        open_index(location, create=True).close()
        open_index(location).close()

    def test_many_that_make_the_index_at_once_make_it_once(self, new_location: NewLocation) -> None:
        for _ in range(3):
            location = new_location()
            together = Barrier(_AT_ONCE)

            def make(location: str, together: Barrier) -> str:
                together.wait(_LIMIT_S)
                with open_index(location, create=True) as index:
                    return stats(index).schema

            with ThreadPoolExecutor(_AT_ONCE) as pool:
                made = pool.map(make, [location] * _AT_ONCE, [together] * _AT_ONCE, timeout=_LIMIT_S)
                assert len(set(made)) == 1

    def test_an_index_of_another_version_is_refused_and_left_alone(
        self, new_location: NewLocation, tmp_path: Path
    ) -> None:
        location = new_location()
        with open_index(location, create=True) as index:
            import_runs(index, [write_run(tmp_path / "results").path])
            before = points(index)
            with index.writing() as connection:
                connection.execute(update(index_version).values(version="2"))
        for create, read_only_s in ((False, None), (True, None), (False, 5.0)):
            with pytest.raises(ResultError, match=r"(?s)has version 2; this version of fsjoule reads 2.*index rebuild"):
                open_index(location, create=create, read_only_s=read_only_s)
        with open_index(new_location(), create=True) as other:
            import_runs(other, [tmp_path / "results"])
            assert points(other) == before

    def test_another_application_s_tables_are_not_touched(self, new_location: NewLocation) -> None:
        location = new_location()
        with open_index(location, create=True) as index, index.writing() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(text(f"DROP TABLE {table}"))
            connection.execute(text("CREATE TABLE runs (distance INTEGER)"))
            connection.execute(text("INSERT INTO runs VALUES (42)"))
        with pytest.raises(ResultError, match=r"(?s)refused.*--index"):
            open_index(location, create=True)
        engine = create_engine(index_url(location))
        with engine.connect() as connection:
            assert connection.execute(text("SELECT distance FROM runs")).scalars().all() == [42]
            assert not inspect(connection).has_table("measurements")
        engine.dispose()
