"""A PgBouncer of the tests' own before a server of theirs: every transaction may get another connection to it."""

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
from dataclasses import dataclass
from pathlib import Path

from postgres_server import OWNER, PostgresServer, as_owner

from fsjoule.errors import MissingToolError
from fsjoule.host import process

_LIMIT_S = 60.0
_PORT = 6432  # names the socket's file; there is no TCP port
_SETTINGS = """
[databases]
* = host={server}

[pgbouncer]
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = 200
server_login_retry = 1
server_idle_timeout = 5
auth_type = trust
auth_file = {folder}/users
listen_port = {port}
unix_socket_dir = {folder}
logfile = {folder}/log
"""


@dataclass(frozen=True)
class PgBouncer:
    socket_folder: Path

    def before(self, location: str, user: str = OWNER) -> str:
        """The URL of the server's database through this pooler."""
        database = location.partition("?")[0].rpartition("/")[2]
        return f"postgresql://{user}@/{database}?host={self.socket_folder}&port={_PORT}"


@contextmanager
def running_pgbouncer(server: PostgresServer, users: Sequence[str] = (), *, pool: int = 2) -> Generator[PgBouncer]:
    """Start it with `pool` connections to the server, and end it, however the body ends."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin")
    if program is None:
        raise MissingToolError("pgbouncer", "pgbouncer")
    folder = Path(tempfile.mkdtemp(prefix="fsjoule-pgbouncer-"))
    try:
        settings = folder / "settings.ini"
        settings.write_text(_SETTINGS.format(server=server.socket_folder, pool=pool, folder=folder, port=_PORT))
        (folder / "users").write_text("".join(f'"{user}" ""\n' for user in (OWNER, *users)))
        if os.geteuid() == 0:
            owner = pwd.getpwnam(OWNER)
            for path in (folder, *folder.iterdir()):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        bouncer = process.start(as_owner([program, settings]), log=folder / "output", cwd=Path("/"))
        try:
            until_s = time.monotonic() + _LIMIT_S
            while not (folder / f".s.PGSQL.{_PORT}").exists():
                if bouncer.poll() is not None or time.monotonic() > until_s:
                    raise AssertionError(f"PgBouncer did not start: {(folder / 'output').read_text()}")
                time.sleep(0.02)
            yield PgBouncer(folder)
        finally:
            bouncer.send_signal(signal.SIGTERM)
            try:
                bouncer.wait(_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.stop(bouncer)
    finally:
        shutil.rmtree(folder)
