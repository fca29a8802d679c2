"""Brings an index to this fsjoule's schema, with alembic and the migrations beside."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Final

from sqlalchemy import Connection, Text, column, inspect, select, table, text

from fsjoule.errors import ResultError

MIGRATIONS: Final = Path(__file__).parent / "migrations"
# Not alembic's default name, because the database may have another application's tables.
VERSION_TABLE: Final = "fsjoule_index_version"

# Any number, the same in all versions of fsjoule: PostgreSQL's lock for changes of the schema.
_LOCK: Final = 4_190_211
# alembic keeps its state in variables of modules, so only one thread may use it.
_ALEMBIC: Final = Lock()


def revision_of(connection: Connection) -> str | None:
    """The schema of an index; None for a database without one."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    versions = table(VERSION_TABLE, column("version_num", Text))
    return connection.execute(select(versions.c.version_num)).scalar()


def is_newest(revision: str | None, migrations: Path) -> bool:
    """Whether it is the migrations' last schema. Asking alembic would take longer than most queries."""
    newest = max(file.name for file in (migrations / "versions").glob("v[0-9]*.py"))
    return newest.startswith(f"v{revision}_")


def check_not_newer(found: str | None, migrations: Path, name: str) -> None:
    """Raise ResultError for an index of a newer fsjoule, whose migrations are not here."""
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - see above

    with _ALEMBIC:
        known = [each.revision for each in ScriptDirectory(migrations).walk_revisions()]
    if found is not None and found not in known:
        raise ResultError(
            f"the index {name} is of schema {found}; this version of fsjoule knows up to {known[0]}",
            hint="use the fsjoule that wrote it, or make another index: fsjoule index rebuild results --index FILE",
        )


def upgrade(connection: Connection, migrations: Path) -> None:
    """Migrate within the connection's transaction. If several processes come at once, one does all the work."""
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
