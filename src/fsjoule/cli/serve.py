"""`fsjoule serve`: the pages of an index over HTTP."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fsjoule.cli.common import ending, out
from fsjoule.cli.index import DEFAULT_LOCATION, RESULTS, Location
from fsjoule.errors import ConfigError
from fsjoule.host.extras import how_to_install
from fsjoule.report.forge import VARIABLE as FORGE
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


@app.command("serve")
def serve(
    *,
    index: Location = DEFAULT_LOCATION,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0: any free port.")] = 8090,
    root_path: Annotated[
        str, typer.Option("--root-path", metavar="PATH", help="The path at which a proxy offers it: /fsjoule.")
    ] = "",
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name", metavar="HOST", help="Readers call the service by this name, behind a proxy; may be repeated."
        ),
    ] = None,
    results: Annotated[
        list[Path] | None,
        typer.Option("--results", metavar="DIR", help="Run folders for the page of places (default: results)."),
    ] = None,
    kept: Annotated[Path, typer.Option("--confirmations", metavar="DIR", help="Folder of confirmations.")] = RESULTS
    / FOLDER,
    forge: Annotated[
        str | None, typer.Option("--forge", metavar="URL", envvar=FORGE, help="The commits' project on a forge.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Read at most this many measurements for the list of trends.")
    ] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, max=64, help="Processes that make pages.")] = 2,
    time_limit: Annotated[
        float, typer.Option("--time-limit", min=1, max=600, metavar="SECONDS", help="What a request may take.")
    ] = 20.0,
) -> None:
    """Serve the index to browsers until Ctrl-C: changes, trends, runs, comparisons, places. Nothing is written.

    With LG_COORDINATOR there is a page of the lab's places. docs/serve.md has nginx and Caddy in front of it.

    Example: fsjoule serve --index postgresql://guest@db.example.org/fsjoule --port 8090
    """
    from fsjoule.report.forge import forge_of
    from fsjoule.report.service.settings import Settings
    from fsjoule.store.index.defaults import LEAST_OF_EACH, MOST_READ
    from fsjoule.store.run_folders import check_folders

    names = [_name(each) for each in name or ()]
    shows_places = bool(os.environ.get(_COORDINATOR))
    if shows_places:
        from fsjoule.lab.coordinator import check_coordinator_address

        check_coordinator_address()
    settings = Settings(
        index=index,
        root=_root(root_path),
        forge=forge_of(forge) if forge else None,
        confirmations=kept,
        results=tuple(check_folders(results or [each for each in (RESULTS,) if each.is_dir()])),
        look=look if shows_places else None,
        explain=explain,
        most_measurements=limit or MOST_READ,
        least_of_each=1 if limit else LEAST_OF_EACH,
    )
    try:
        from fsjoule.report.service.server import serving
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed", hint=how_to_install("serve")) from error
    with (
        ending() as ended,
        serving(settings, host=host, port=port, names=names, processes=processes, limit_s=time_limit) as address,
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
