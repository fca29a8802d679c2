"""How an index is made, migrated and refused, on every database and behind a pooler."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from index_runs import write_run
from sqlalchemy import create_engine, inspect, text

from fsjoule.errors import FsjouleError, ResultError
from fsjoule.store.index.database import index_url, open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.queries import points, stats
from fsjoule.store.index.schema import metadata
from fsjoule.store.index.state import state_of
from fsjoule.store.index.upgrade import MIGRATIONS, VERSION_TABLE, is_newest

_AT_ONCE = 6
_LIMIT_S = 60.0
_COUNTED_S = 1.0  # when a server has counted all rows

NewLocation = Callable[[], str]
DATABASES = ("sqlite", "postgresql", "pooled")

_NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{previous}"


def upgrade() -> None:
    with op.batch_alter_table("runs") as runs:
        runs.add_column(sa.Column("colour", sa.Text, nullable=False, server_default="grey"))
"""


class TestOpening:
    """Making, migrating and refusing."""

    @pytest.fixture
    def newer(self, tmp_path: Path) -> Path:
        """The migrations of a later version of fsjoule: these, and one more."""
        folder = tmp_path / "newer migrations 100%"
        shutil.copytree(MIGRATIONS, folder)
        previous = max(path.name for path in (MIGRATIONS / "versions").glob("v[0-9]*.py"))[1:5]
        (folder / "versions" / "v9999_colour.py").write_text(_NEXT.format(previous=previous))
        return folder

    def test_the_migrations_make_the_tables_of_the_schema(self, new_location: NewLocation, tmp_path: Path) -> None:
        """A new index has them at once, without migrations: both are the same to alembic."""
        migrated = shutil.copytree(MIGRATIONS, tmp_path / "migrations")
        found: list[tuple[object, ...]] = []
        for migrations in (MIGRATIONS, migrated):
            with (
                open_index(new_location(), create=True, migrations=migrations) as index,
                index.reading() as connection,
            ):
                context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
                assert compare_metadata(context, metadata) == []
                tables = inspect(connection)
                version = [{**column, "type": str(column["type"])} for column in tables.get_columns(VERSION_TABLE)]
                key = tables.get_pk_constraint(VERSION_TABLE)
                found.append((context.get_current_revision(), sorted(tables.get_table_names()), version, key))
        assert found[0] == found[1]

    def test_the_newest_migration_is_the_one_that_alembic_ends_with(self, newer: Path) -> None:
        for folder in (MIGRATIONS, newer):
            script = ScriptDirectory(folder)
            assert [is_newest(each.revision, folder) for each in script.walk_revisions()].index(True) == 0
            assert is_newest(script.get_current_head(), folder)
            assert not is_newest(None, folder)

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

    def test_an_older_index_is_migrated_and_keeps_what_it_holds(
        self, new_location: NewLocation, newer: Path, tmp_path: Path
    ) -> None:
        location = new_location()
        with open_index(location, create=True) as index:
            import_runs(index, [write_run(tmp_path / "results").path])
            before = points(index)
        for _ in range(2):
            with open_index(location, migrations=newer) as index:
                assert points(index) == before
                assert stats(index).schema == "9999"
                with index.reading() as connection:
                    assert connection.execute(text("SELECT colour FROM runs")).scalars().all() == ["grey"]

    def test_a_newer_index_is_refused_and_left_alone(self, new_location: NewLocation, newer: Path) -> None:
        location = new_location()
        open_index(location, create=True, migrations=newer).close()
        for create in (False, True):
            with pytest.raises(ResultError, match=r"(?s)schema 9999; this version of fsjoule knows up to 0.*--index"):
                open_index(location, create=create)
        with open_index(location, migrations=newer) as index:
            assert stats(index).schema == "9999"

    def test_a_migration_that_fails_changes_nothing(
        self, new_location: NewLocation, newer: Path, tmp_path: Path
    ) -> None:
        location = new_location()
        with open_index(location, create=True) as index:
            import_runs(index, [write_run(tmp_path / "results").path])
            before = points(index)
        broken = newer / "versions" / "v9999_colour.py"
        broken.write_text(broken.read_text() + "    op.execute('SELECT colour FROM nowhere')\n")
        with pytest.raises(ResultError, match="refused"):
            open_index(location, migrations=newer)
        with open_index(location) as index:
            assert points(index) == before
            with index.reading() as connection:
                assert "colour" not in {str(c["name"]) for c in inspect(connection).get_columns("runs")}

    def test_another_application_s_tables_are_not_touched(self, new_location: NewLocation) -> None:
        location = new_location()
        with open_index(location, create=True) as index, index.writing() as connection:
            for table in (*reversed(metadata.sorted_tables), VERSION_TABLE):
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
