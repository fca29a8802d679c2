"""Brings an index to this fsjoule's schema: a new one at once, an older one with alembic and the migrations beside."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Final

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, select, text

from fsjoule.errors import ResultError
from fsjoule.store.index.schema import metadata

MIGRATIONS: Final = Path(__file__).parent / "migrations"
# Not alembic's default name, because the database may have another application's tables.
VERSION_TABLE: Final = "fsjoule_index_version"

# As alembic makes it.
_VERSION: Final = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)

# Any number, the same in all versions of fsjoule: PostgreSQL's lock for changes of the schema.
_LOCK: Final = 4_190_211
# alembic keeps its state in variables of modules, so only one thread may use it.
_ALEMBIC: Final = Lock()


def revision_of(connection: Connection) -> str | None:
    """The schema of an index; None for a database without one."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(select(_VERSION.c.version_num)).scalar()


def is_newest(revision: str | None, migrations: Path) -> bool:
    """Whether it is the migrations' last schema."""
    return revision == _newest(migrations)


def _newest(migrations: Path) -> str:
    """The revision in the last file's name. Asking alembic would take longer than most queries."""
    newest = max(file.name for file in (migrations / "versions").glob("v[0-9]*.py"))
    return newest[1:].partition("_")[0]


def check_not_newer(found: str, migrations: Path, name: str) -> None:
    """Raise ResultError for an index of a newer fsjoule, whose migrations are not here."""
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - seldom needed, and slow to import

    with _ALEMBIC:
        known = [each.revision for each in ScriptDirectory(migrations).walk_revisions()]
    if found not in known:
        raise ResultError(
            f"the index {name} is of schema {found}; this version of fsjoule knows up to {known[0]}",
            hint="use the fsjoule that wrote it, or make another index: fsjoule index rebuild results --index FILE",
        )


def upgrade(connection: Connection, migrations: Path) -> None:
    """Make or migrate within the connection's transaction. If several processes come at once, one does all the work.

    fsjoule's own migrations lead to the tables of `schema.py` (a test compares the two), so that a new index has these
    without them.
    """
    if connection.dialect.name == "postgresql":
        # SQLite's writers wait for each other anyway.
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    if migrations == MIGRATIONS and revision_of(connection) is None:
        metadata.create_all(connection, checkfirst=False)
        _VERSION.create(connection)
        connection.execute(insert(_VERSION).values(version_num=_newest(migrations)))
        return
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _ALEMBIC:
        command.upgrade(config, "head")
