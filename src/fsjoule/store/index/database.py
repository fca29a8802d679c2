"""Opens an index: finds it, makes its tables, and translates the database's errors.

SQLite keeps its default journal mode (no WAL), so that an index written by root is one file that everybody can read.
Writers take SQLite's lock at their begin, not halfway, and wait for each other.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, Self
from urllib.parse import quote, unquote

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, insert, inspect, make_url, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from fsjoule.errors import (
    ConfigError,
    FsjouleError,
    HostError,
    IndexServerError,
    ResultError,
    StorageError,
    not_written,
)
from fsjoule.host.plaintext import plain_line
from fsjoule.store.index.defaults import VARIABLE
from fsjoule.store.index.schema import INDEX_VERSION, index_version, metadata
from fsjoule.store.states import FOLDER as STATES

_WAIT_S: Final = 60.0
_LONGEST_WAIT_S: Final = 86400.0
_CACHE_KIB: Final = 64 * 1024
_STATES: Final = "states"  # of a URL
_WRITING: Final = "fsjoule_writing"
# Begins the name of SQLite's database where it is a URI.
_URI: Final = "file:"
# Any number, the same in all versions of fsjoule: PostgreSQL's lock for making the tables.
_LOCK: Final = 4_190_211
_CHOICES: Final = "give a file, sqlite:///FILE or postgresql://USER@HOST/DATABASE"
# What PostgreSQL, or a pooler before it, says of connections: lost, refused, too many, ended by an administrator.
_LOST: Final = ("08", "57")
_TOO_MANY: Final = "53300"
_ROLES: Final = "see the roles in docs/database.md"
_ANOTHER: Final = f"choose another index with --index or {VARIABLE}"

_DIGEST_BYTES: Final = 8
# SQLite's file format, 1.3: the number of transactions that wrote to the file.
_CHANGE_COUNTER: Final = slice(24, 28)
# The server counts rows a second after their transaction, and ten at the latest, without reading a table. A restart
# after a crash begins to count anew. Kept verdicts change no answer.
_COUNTED: Final = text(
    "SELECT sum(n_tup_ins), sum(n_tup_upd), sum(n_tup_del), count(*), pg_postmaster_start_time() "
    "FROM pg_stat_user_tables WHERE schemaname = current_schema() AND relname <> 'judged_series'"
)


class Index:
    """An open index of this version. Close it, or use it as a context manager."""

    def __init__(self, engine: Engine, *, states: Path | None = None, read_only: bool = False) -> None:
        self._engine = engine
        self._states = states
        self._read_only = read_only

    @property
    def file(self) -> Path | None:
        """The file of an index in SQLite."""
        url = self._engine.url
        return Path(_shown(url)) if url.get_backend_name() == "sqlite" else None

    @property
    def states(self) -> Path:
        """The folder of documents that are written for this index: beside its file, or `?states=DIR` of its URL."""
        if self._states is not None:
            return self._states
        if self.file is not None:
            return self.file.parent / STATES
        from fsjoule.store.run_folders import RESULTS  # noqa: PLC0415 - pyarrow takes long to load

        return RESULTS / STATES

    @property
    def name(self) -> str:
        """Its URL without the password."""
        return self._engine.url.render_as_string(hide_password=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """A transaction that sees one state of the index, whatever others write meanwhile."""
        engine = self._engine
        if engine.dialect.name == "postgresql":
            engine = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=self._read_only)
        with _complaints(engine.url), engine.connect() as connection, connection.begin():
            if self._read_only and engine.dialect.name == "postgresql":
                # A reader that is killed meanwhile does not stop its server's work.
                connection.exec_driver_sql(f"SET LOCAL statement_timeout = {1000 * _wait_s(engine.url):.0f}")
            yield connection

    @contextmanager
    def writing(self) -> Generator[Connection]:
        """A transaction; if the body raises, nothing is kept."""
        assert not self._read_only, "it was opened for reading"
        with _complaints(self._engine.url), _writing(self._engine) as connection:
            yield connection


def open_index(location: str | Path, *, create: bool = False, read_only_s: float | None = None) -> Index:
    """Open the index at a URL or in a file.

    `create` makes a missing index. With `read_only_s` nothing is ever written, and writers are waited for so many
    seconds at most, whatever the URL says. Raises ConfigError for an invalid URL, ResultError for a missing index,
    another version or another file, IndexServerError if the database cannot be reached.
    """
    url = index_url(location)
    states = url.query.get(_STATES)
    url = url.difference_update_query([_STATES])
    read_only = read_only_s is not None
    if url.get_backend_name() == "sqlite" and url.database is not None and not url.database.startswith(_URI):
        _check_file(Path(url.database), url, create=create)
        url = _read_only(url) if read_only else url
    if read_only:
        url = url.update_query_dict({"timeout": f"{read_only_s:g}"})
    engine = _engine(url)
    try:
        with _complaints(url):
            _prepare(engine, create=create and not read_only)
    except BaseException:
        engine.dispose()
        raise
    return Index(engine, states=Path(str(states)) if states else None, read_only=read_only)


def _read_only(url: URL) -> URL:
    """A file that SQLite opens for reading, and does not make if it is gone meanwhile."""
    return url.set(database=_URI + quote(str(url.database)), query={**url.query, "mode": "ro", "uri": "true"})


def insert_into(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT in the database's own words, which know what to do on a conflict."""
    return (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)


def _prepare(engine: Engine, *, create: bool) -> None:
    """Check the index's version, and make its tables if it has none and shall be made."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            # A view in the place of a table may have no end. A trigger would write what it likes.
            query = "SELECT name FROM sqlite_master WHERE type IN ('view', 'trigger')"
            if foreign := connection.exec_driver_sql(query).scalar():
                raise ResultError(
                    f"{_shown(engine.url)} is not an index: it has {plain_line(str(foreign))!r}", hint=_ANOTHER
                )
        version = _version_of(connection)
    if version is None and create:
        with _writing(engine) as connection:
            version = make_tables(connection)
    if version is None:
        raise absent(_shown(engine.url))
    if version != INDEX_VERSION:
        raise ResultError(
            f"the index {_shown(engine.url)} has version {plain_line(version)}; "
            f"this version of fsjoule reads {INDEX_VERSION}",
            hint="use the fsjoule that made it, or make another one from the runs: "
            "fsjoule index rebuild results --index FILE",
        )


def _version_of(connection: Connection) -> str | None:
    """The version of an index; None for a database without one."""
    if not inspect(connection).has_table(index_version.name):
        return None
    return connection.execute(select(index_version.c.version)).scalar()


def make_tables(connection: Connection) -> str | None:
    """Make an index's tables in the connection's transaction, and return its version.

    If several processes come at once, the first makes them.
    """
    if connection.dialect.name == "postgresql":
        # SQLite's writers wait for each other anyway.
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    if (version := _version_of(connection)) is not None:
        return version
    metadata.create_all(connection, checkfirst=False)
    connection.execute(insert(index_version).values(version=INDEX_VERSION))
    return INDEX_VERSION


def index_url(location: str | Path) -> URL:
    """The URL of a user's index: a file, or a URL of SQLite or PostgreSQL. Raises ConfigError."""
    text = str(location)
    if "://" not in text:
        return URL.create("sqlite", database=str(Path(text).expanduser().absolute()))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise ConfigError(f"the index's URL cannot be read: {error}", hint=_CHOICES) from error
    kind = url.drivername.partition("+")[0]
    if kind in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if kind != "sqlite":
        raise ConfigError(f"an index cannot be kept in {kind!r}", hint=_CHOICES)
    if url.database in (None, "", ":memory:"):
        raise ConfigError(f"{text} names no file", hint=_CHOICES)
    return url.set(drivername="sqlite")


def _check_file(file: Path, url: URL, *, create: bool) -> None:
    """Check that the file exists, because SQLite would make an empty one.

    Raises ResultError, StorageError, and ConfigError for a folder.
    """
    if file.is_dir():
        raise ConfigError(
            f"the index {file} cannot be opened: it is a folder", hint=f"name a file in it, or {_ANOTHER}"
        )
    if create:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_written(f"{file.parent} cannot be made", error, hint=_ANOTHER) from error
    elif not file.exists():
        raise absent(_shown(url))


def absent(name: str) -> ResultError:
    """The error for an index that is not there."""
    return ResultError(
        f"there is no index at {name} yet",
        hint=f"make it from run folders: fsjoule index rebuild results --index {shlex.quote(name)}",
    )


def _shown(url: URL) -> str:
    if url.get_backend_name() == "sqlite":
        name = str(url.database)
        return unquote(name.removeprefix(_URI)) if name.startswith(_URI) else name
    return url.render_as_string(hide_password=True)


def _wait_s(url: URL) -> float:
    """Seconds to wait for another writer: sqlite:///FILE?timeout=SECONDS, or the same for PostgreSQL."""
    wanted = str(url.query.get("timeout", _WAIT_S))
    try:
        seconds = float(wanted)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _LONGEST_WAIT_S:
        raise ConfigError(f"timeout={wanted} is not a number of seconds up to {_LONGEST_WAIT_S:.0f}", hint=_CHOICES)
    return seconds


class _RawSqlite(Protocol):
    """The used part of the standard library's sqlite3.Connection."""

    isolation_level: str | None

    def execute(self, statement: str, /) -> object: ...


def _engine(url: URL) -> Engine:
    wait_s = _wait_s(url)
    if url.get_backend_name() != "sqlite":
        # Importing psycopg takes 0.1 s, for which an index in a file need not wait.
        from fsjoule.store.index.postgresql import postgresql_engine  # noqa: PLC0415

        return postgresql_engine(url, wait_s)
    engine = create_engine(url, connect_args={"timeout": wait_s})
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    return engine


def _on_connect(connection: _RawSqlite, record: object) -> None:
    del record
    # Transactions begin below: sqlite3 itself begins none for a SELECT or a change of the schema.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")


def _on_begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(_WRITING) else "BEGIN")


@contextmanager
def _writing(engine: Engine) -> Generator[Connection]:
    with engine.connect().execution_options(**{_WRITING: True}) as connection, connection.begin():
        yield connection


@contextmanager
def _complaints(url: URL) -> Generator[None]:
    try:
        yield
    except DBAPIError as error:
        raise _translated(error, url) from error
    except SQLAlchemyError as error:
        raise ResultError(f"the index {_shown(url)} cannot be used: {error}", hint=_ANOTHER) from error


def _translated(error: DBAPIError, url: URL) -> FsjouleError:
    said = " ".join(str(error.orig).split())
    index = f"the index {_shown(url)}"
    if isinstance(error.orig, sqlite3.Error):
        # Errors of the module itself, such as of a connection that is closed, have no code of SQLite's.
        kind = getattr(error.orig, "sqlite_errorname", "").removeprefix("SQLITE_").partition("_")[0]
        return _held(index, url) if kind in ("BUSY", "LOCKED") else _from_sqlite(kind, index, said)
    state = getattr(error.orig, "sqlstate", None) or ""
    # psycopg's own error: libpq's errors have no state.
    lost = state[:2] in _LOST or state == _TOO_MANY or type(error.orig).__name__ == "OperationalError"
    if error.connection_invalidated or lost:
        return IndexServerError(f"{index} cannot be reached: {said}", hint=f"is its server up? Or {_ANOTHER}")
    return _held(index, url) if state == "55P03" else _from_postgresql(state, index, said)


def _held(index: str, url: URL) -> HostError:
    held = f"{index} has been held by another process for {_wait_s(url):g} s"
    return HostError(held, transient=True, hint="try again; nothing was changed")


def _from_postgresql(state: str, index: str, said: str) -> FsjouleError:
    match state:
        case "42501":
            return ResultError(f"{index} refused: {said}", hint=f"this user lacks the right ({_ROLES}), or {_ANOTHER}")
        case "40001" | "40P01":
            return HostError(
                f"{index} gave way to another: {said}", transient=True, hint="try again; nothing was changed"
            )
        case "53100":
            return StorageError(f"{index} has no room: {said}", hint="make room on its server")
        case _:
            return ResultError(f"{index} refused: {said}", hint=f"use an empty database, or {_ANOTHER}")


def _from_sqlite(kind: str, index: str, said: str) -> FsjouleError:
    match kind:
        case "NOTADB" | "CORRUPT":
            hint = f"delete it and run: fsjoule index rebuild results; or {_ANOTHER}"
            return ResultError(f"{index} is damaged, or not an index: {said}", hint=hint)
        case "READONLY" | "CANTOPEN" | "PERM":
            return ConfigError(f"{index} cannot be opened or written: {said}", hint=_ANOTHER)
        case "FULL" | "IOERR":
            return StorageError(f"{index} cannot be opened or written: {said}", hint=f"make room or {_ANOTHER}")
        case _:
            return ResultError(f"{index} refused: {said}", hint=f"delete it and rebuild it, or {_ANOTHER}")


def state_of(index: Index) -> str:
    """A text of 16 hexadecimal digits that changes when anybody has written to the index.

    Whoever keeps answers asks for the state before the answer: so an answer may be newer than its state, never older.
    In PostgreSQL it changes ten seconds after a transaction at the latest. In SQLite looking takes 20 µs. Raises
    ResultError if the index is gone, IndexServerError if its server does not answer.
    """
    file = index.file
    if file is not None:
        return _digest(*_of_file(file), *_of_file(Path(f"{file}-wal"), needed=False))
    with index.reading() as connection:
        return _digest(*connection.execute(_COUNTED).one())


def _of_file(file: Path, *, needed: bool = True) -> tuple[object, ...]:
    try:
        with file.open("rb", buffering=0) as opened:
            status = os.fstat(opened.fileno())
            counter = opened.read(_CHANGE_COUNTER.stop)[_CHANGE_COUNTER]
    except FileNotFoundError as error:
        if needed:
            raise absent(str(file)) from error
        return ()
    except OSError as error:
        raise ResultError(f"the index {file} cannot be read: {error.strerror}") from error
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, counter


def _digest(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=_DIGEST_BYTES).hexdigest()
