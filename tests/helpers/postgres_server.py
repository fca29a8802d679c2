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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg

from fsjoule.errors import MissingToolError
from fsjoule.host import process

_LIMIT_S = 300.0  # after a crash PostgreSQL first repeats what it had not written
OWNER = "postgres"  # made by Debian's package; PostgreSQL refuses to run as root


@dataclass
class PostgresServer:
    """A server on a socket in `socket_folder`. Every database that it is asked for is new and empty."""

    socket_folder: Path
    settings: tuple[str, ...] = ("fsync=off",)
    _numbers: count[int] = field(default_factory=lambda: count(1))
    _process: subprocess.Popen[bytes] | None = None

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"index{next(self._numbers)}"
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql://{OWNER}@/{name}?host={self.socket_folder}"

    def answers(self) -> bool:
        try:
            psycopg.connect(self.conninfo("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def conninfo(self, database: str) -> str:
        return f"host={self.socket_folder} user={OWNER} dbname={database} connect_timeout=5"

    def start(self) -> None:
        """Start it on its data, as they are, and wait until it answers."""
        folder = self.socket_folder
        log = folder / "log"
        settings = ("listen_addresses=", "max_connections=100", f"unix_socket_directories={folder}", *self.settings)
        argv = [_programs() / "postgres", "-D", folder / "data", *(p for one in settings for p in ("-c", one))]
        self._process = process.start(as_owner(argv), log=log, cwd=Path("/"))
        until_s = time.monotonic() + _LIMIT_S
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > until_s:
                raise AssertionError(f"PostgreSQL did not start: {log.read_text()}")
            time.sleep(0.05)

    def cpu_s(self) -> float:
        """The processor time of the server and all its workers, also of those that have ended, since it started."""
        assert self._process is not None
        server = self._process.pid
        ticks = 0
        for pid in (server, *_children(server)):
            with suppress(FileNotFoundError, ProcessLookupError):
                user, system, *of_ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
                ticks += int(user) + int(system) + (sum(map(int, of_ended)) if pid == server else 0)
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End it without a checkpoint."""
        server, self._process = self._process, None
        if server is None:
            return
        server.send_signal(signal.SIGQUIT)
        try:
            server.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.stop(server)

    def kill(self) -> None:
        """SIGKILL the server and all its workers at once. `start` begins where they were."""
        server, self._process = self._process, None
        assert server is not None
        workers = _children(server.pid)
        for pid in (server.pid, *workers):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server.wait(_LIMIT_S)
        until_s = time.monotonic() + _LIMIT_S
        while any(Path(f"/proc/{pid}").exists() for pid in workers):
            assert time.monotonic() < until_s, "a worker of PostgreSQL does not end"
            time.sleep(0.01)


def _children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


@contextmanager
def running_server(*settings: str, within: Path | None = None) -> Generator[PostgresServer]:
    """Start a server and end it, however the body ends. Without `settings` it does not flush to the disk."""
    # Not below pytest's own folder, which only its user may enter.
    folder = Path(tempfile.mkdtemp(prefix="fsjoule-postgres-", dir=within))
    server = PostgresServer(folder, settings or ("fsync=off",))
    try:
        if os.geteuid() == 0:
            owner = pwd.getpwnam(OWNER)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data = folder / "data"
        initdb = [_programs() / "initdb", "--pgdata", data, "--username", OWNER, "--auth", "trust", "--no-sync"]
        process.run(as_owner([*initdb, "--encoding", "UTF8", "--locale", "C.UTF-8"]), timeout_s=_LIMIT_S, cwd=Path("/"))
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def as_owner(argv: Sequence[str | Path]) -> list[str]:
    """The command as the owner's, because neither PostgreSQL nor PgBouncer runs as root."""
    command = [str(part) for part in argv]
    if os.geteuid() != 0:
        return command
    # The kernel forgets who is to be told of a parent's death when the user changes: setpriv asks for it again.
    who = ("--reuid", OWNER, "--regid", OWNER, "--init-groups", "--inh-caps=-all", "--pdeathsig", "QUIT")
    return ["setpriv", *who, "--", *command]


def _programs() -> Path:
    """Where Debian keeps initdb and postgres: not on the PATH, one folder a version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise MissingToolError("initdb", "postgresql")
    return found[-1].parent
