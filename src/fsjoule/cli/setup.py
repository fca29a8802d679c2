"""`fsjoule setup`: the distribution's packages that fsjoule needs. Thin: it shows what functions return."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fsjoule.cli.common import Json, out, print_json, progress

app = typer.Typer()


@app.command("setup")
def setup(
    purpose: Annotated[
        str, typer.Option("--for", metavar="PURPOSE", help="bench, exporter, lava, tests, reports or kernels.")
    ] = "bench",
    check: Annotated[bool, typer.Option("--check", help="Install nothing; say what is there and what is not.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    json_output: Json = False,
) -> None:
    """Install the packages of this distribution that fsjoule needs, as root or by sudo.

    It says how many and how large they are, and asks. Services that they bring are not started. Exit code: 0 nothing is
    missing any more, 2 something is, or cannot be installed here, 4 an installation failed.

    Example: fsjoule setup --for exporter --check
    """
    from fsjoule.host.paths import cache_dir
    from fsjoule.host.setup.check import NOT_READY, checked
    from fsjoule.host.setup.install import set_up
    from fsjoule.host.setup.steps import Steps

    if not check:
        steps = Steps(cache_dir() / "setup.log", sys.stderr if json_output else sys.stdout)
        set_up(purpose, steps, yes=yes)
    state = checked(purpose)
    if json_output:
        print_json(state.document())
    elif check:
        for line in state.lines():
            out.print(line, soft_wrap=True, highlight=False)
    if state.lacks:
        progress(f"not ready for {purpose}: {', '.join(each.name for each in state.lacks)}")
        raise typer.Exit(NOT_READY)
    progress(f"ready for {purpose}")
