"""The schema of an index, brought to the version that this fsjoule knows, by alembic and the migrations beside."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Final

from sqlalchemy import Connection, Text, column, inspect, select, table, text

from fsjoule.errors import ResultError

MIGRATIONS: Final = Path(__file__).parent / "migrations"
# Not alembic's own name for it: the database may hold another application's tables.
VERSION_TABLE: Final = "fsjoule_index_version"

# Any number, the same in all versions of fsjoule: who holds this lock of PostgreSQL changes the schema.
_LOCK: Final = 4_190_211
# alembic keeps what it is doing in variables of its modules, so of one process's threads one may use it.
_ALEMBIC: Final = Lock()


def revision_of(connection: Connection) -> str | None:
    """The schema that an index has, None for a database without one."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    versions = table(VERSION_TABLE, column("version_num", Text))
    return connection.execute(select(versions.c.version_num)).scalar()


def is_newest(revision: str | None, migrations: Path) -> bool:
    """Whether it is the schema that the migrations lead to. Alembic would take longer to say so than most questions."""
    newest = max(file.name for file in (migrations / "versions").glob("v[0-9]*.py"))
    return newest.startswith(f"v{revision}_")


def check_not_newer(found: str | None, migrations: Path, name: str) -> None:
    """Refuse an index that a newer fsjoule has written: its migrations are not here. Raises ResultError."""
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - see above

    with _ALEMBIC:
        known = [each.revision for each in ScriptDirectory(migrations).walk_revisions()]
    if found is not None and found not in known:
        raise ResultError(
            f"the index {name} is of schema {found}; this version of fsjoule knows up to {known[0]}",
            hint="use the fsjoule that wrote it, or make another index: fsjoule index rebuild results --index FILE",
        )


def upgrade(connection: Connection, migrations: Path) -> None:
    """Migrate, within the connection's transaction. Of several processes that come at once, one does all of it."""
    if connection.dialect.name == "postgresql":
        # SQLite's writers wait for each other anyway.
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _ALEMBIC:
        command.upgrade(config, "head")
