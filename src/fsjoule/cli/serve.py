"""`fsjoule serve`: the pages of an index over HTTP."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from fsjoule.cli.common import ending, out
from fsjoule.cli.index import DEFAULT_LOCATION, RESULTS, Location
from fsjoule.cli.options import with_options
from fsjoule.errors import ConfigError
from fsjoule.report.forge import VARIABLE as FORGE
from fsjoule.runs.options import option
from fsjoule.store.confirmations import FOLDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsjoule.model.places import Lab
    from fsjoule.verdicts.comparison import Compared
    from fsjoule.verdicts.explanation.changes import Explanation

app = typer.Typer()

_COORDINATOR: Final = "LG_COORDINATOR"
_LAST_RUNS: Final = 5
_HOST: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f:.]+\]")


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    index: Location = DEFAULT_LOCATION
    host: str = option("ADDRESS", "The address to listen at.", "127.0.0.1")
    port: int = option("", "The port; 0: any free port.", 8090, min=0, max=65535)
    root_path: str = option("PATH", "The path at which a proxy offers it: /fsjoule.", "")
    name: list[str] | None = option("HOST", "Readers call the service by this name, behind a proxy; may be repeated.")
    results: list[Path] | None = option("DIR", "Run folders for the page of places (default: results).")
    confirmations: Path = option("DIR", "Folder of confirmations.", RESULTS / FOLDER)
    forge: str | None = option("URL", "The commits' project on a forge.", envvar=FORGE)
    limit: int | None = option("", "Read at most this many measurements for the list of trends.", min=1)
    processes: int = option("", "Processes that make pages.", 2, min=1, max=64)
    time_limit: float = option("SECONDS", "What a request may take.", 20.0, min=1, max=600)


@app.command("serve")
@with_options
def serve(asked: ServeOptions) -> None:
    """Serve the index to browsers until Ctrl-C: changes, trends, runs, comparisons, places. Nothing is written.

    With LG_COORDINATOR there is a page of the lab's places. docs/serve.md has nginx and Caddy in front of it.

    Example: fsjoule serve --index postgresql://guest@db.example.org/fsjoule --port 8090
    """
    from fsjoule.report.forge import forge_of
    from fsjoule.report.service.settings import Settings
    from fsjoule.store.index.defaults import LEAST_OF_EACH, MOST_READ
    from fsjoule.store.run_folders import check_folders

    names = [_name(each) for each in asked.name or ()]
    shows_places = bool(os.environ.get(_COORDINATOR))
    if shows_places:
        from fsjoule.lab.coordinator import check_coordinator_address

        check_coordinator_address()
    settings = Settings(
        index=asked.index,
        root=_root(asked.root_path),
        forge=forge_of(asked.forge) if asked.forge else None,
        confirmations=asked.confirmations,
        results=tuple(check_folders(asked.results or [each for each in (RESULTS,) if each.is_dir()])),
        look=look if shows_places else None,
        explain=explain,
        most_measurements=asked.limit or MOST_READ,
        least_of_each=1 if asked.limit else LEAST_OF_EACH,
    )
    from fsjoule.report.service.server import serving

    with (
        ending() as ended,
        serving(
            settings,
            host=asked.host,
            port=asked.port,
            names=names,
            processes=asked.processes,
            limit_s=asked.time_limit,
        ) as address,
    ):
        out.print(address, soft_wrap=True)
        while not ended.wait(3600.0):
            pass


def look(results: Sequence[Path], now_s: float) -> Lab:
    """See `Settings`. With labgrid, which no other page needs."""
    from fsjoule.runs.places import look as look_at_places

    return look_at_places(results, now_s, last=_LAST_RUNS)


def explain(compared: Compared) -> tuple[Explanation, ...]:
    """See `Settings`. Runs that only an object store has are not fetched for a page."""
    from fsjoule.runs.explain import explain_compared

    return explain_compared(compared, fetches=False)


def _name(name: str) -> str:
    """The name as a reader's browser sends it, without a port. Raises ConfigError."""
    if not _HOST.fullmatch(name):
        raise ConfigError(
            f"--name {name!r} is not the name of one host",
            hint="give it without a scheme, a port or a pattern: lab.example.org, 10.0.0.7 or [fd00::7]",
        )
    return name


def _root(path: str) -> str:
    """The path without a slash at its end. Raises ConfigError."""
    root = path.rstrip("/")
    if root and (
        not root.startswith("/") or not all(sign.isascii() and (sign.isalnum() or sign in "/-._~") for sign in root)
    ):
        raise ConfigError(f"--root-path {path!r} is not a path", hint="for example /fsjoule")
    return root
