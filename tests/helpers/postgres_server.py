"""A PostgreSQL server of the tests' own: on a socket in a temporary folder, no port, no data kept, gone at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg

from fsjoule.errors import MissingToolError
from fsjoule.host import process

_LIMIT_S = 60.0
_OWNER = "postgres"  # made by Debian's package; PostgreSQL refuses to run as root


@dataclass
class PostgresServer:
    """A running server. Every database that it is asked for is new and empty."""

    socket_folder: Path
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"index{next(self._numbers)}"
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql://{_OWNER}@/{name}?host={self.socket_folder}"

    def answers(self) -> bool:
        try:
            psycopg.connect(self.conninfo("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def conninfo(self, database: str) -> str:
        return f"host={self.socket_folder} user={_OWNER} dbname={database} connect_timeout=5"


@contextmanager
def running_server() -> Generator[PostgresServer]:
    """Start a server and end it, however the body ends."""
    programs = _programs()
    # Not below pytest's own folder, which only its user may enter.
    folder = Path(tempfile.mkdtemp(prefix="fsjoule-postgres-"))
    try:
        if os.geteuid() == 0:
            owner = pwd.getpwnam(_OWNER)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data = folder / "data"
        initdb = [programs / "initdb", "--pgdata", data, "--username", _OWNER, "--auth", "trust", "--no-sync"]
        process.run(
            _as_owner([*initdb, "--encoding", "UTF8", "--locale", "C.UTF-8"]), timeout_s=_LIMIT_S, cwd=Path("/")
        )
        with _started(programs / "postgres", data, folder):
            yield PostgresServer(folder)
    finally:
        shutil.rmtree(folder)


@contextmanager
def _started(program: Path, data: Path, folder: Path) -> Generator[None]:
    log = folder / "log"
    settings = ("listen_addresses=", "fsync=off", "max_connections=20", f"unix_socket_directories={folder}")
    argv = [program, "-D", data, *(part for setting in settings for part in ("-c", setting))]
    server = process.start(_as_owner(argv), log=log, cwd=Path("/"))
    try:
        until_s = time.monotonic() + _LIMIT_S
        while not PostgresServer(folder).answers():
            if server.poll() is not None or time.monotonic() > until_s:
                raise AssertionError(f"PostgreSQL did not start: {log.read_text()}")
            time.sleep(0.05)
        yield
    finally:
        server.send_signal(signal.SIGQUIT)  # without a checkpoint: nothing is kept
        try:
            server.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.stop(server)


def _as_owner(argv: Sequence[str | Path]) -> list[str]:
    command = [str(part) for part in argv]
    if os.geteuid() != 0:
        return command
    # The kernel forgets who is to be told of a parent's death when the user changes: setpriv asks for it again.
    who = ("--reuid", _OWNER, "--regid", _OWNER, "--init-groups", "--inh-caps=-all", "--pdeathsig", "QUIT")
    return ["setpriv", *who, "--", *command]


def _programs() -> Path:
    """Where Debian keeps initdb and postgres: not on the PATH, one folder a version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise MissingToolError("initdb", "postgresql")
    return found[-1].parent
