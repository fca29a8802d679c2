"""A server of PostgreSQL that fails while runs are imported into an index on it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Final

import psycopg
from postgres_server import PostgresServer, running_server
from synthetic_runs import SyntheticLab

from faults.act import Act
from faults.scene import Bench, Scene
from faults.watch import await_condition

_RUNS: Final = 400
_INTO_S: Final = 1.5


def server_with_runs(scene: Scene) -> str:
    """A server, and so many runs that importing them takes seconds."""
    scene.server = scene.closing.enter_context(running_server())
    scene.database = scene.server.new_database()
    for _ in SyntheticLab(boards=3, seed=scene.rng.randrange(1 << 31)).write(scene.folder / "runs", 0, _RUNS):
        pass
    return ""


def importing(scene: Scene) -> Bench:
    return scene.start("fsjoule", "index", "import", scene.folder / "runs", "--index", scene.database)


def backend_signalled(sig: signal.Signals) -> Act:
    """Signal the server's process that works for the import, in the middle of it."""

    def act(scene: Scene, bench: Bench) -> str:
        server = scene.server
        assert server is not None
        found: list[int] = []

        def working() -> bool:
            found[:] = _backends(server, scene.database)
            return bool(found)

        await_condition(bench, working, "the import was connected")
        time.sleep(scene.rng.uniform(0.0, _INTO_S))
        for pid in (pids := working() and list(found)) or []:
            os.kill(pid, sig)
            if sig is signal.SIGSTOP:
                scene.mending.callback(_go_on, pid)
        return f"{sig.name} to PostgreSQL's {pids}"

    return act


def _backends(server: PostgresServer, database: str) -> list[int]:
    name = database.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(server.conninfo("postgres")) as connection:
        rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE datname = %s", [name]).fetchall()
    return [pid for (pid,) in rows]


def _go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
