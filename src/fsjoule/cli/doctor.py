"""`fsjoule doctor`: is a place fit to measure? Thin: it reads arguments, calls one function, shows each check."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fsjoule.cli.common import Json, Priority, Wait, out, print_json, progress

if TYPE_CHECKING:
    from fsjoule.bench.health.result import Check

app = typer.Typer()

_STYLES: Final = {"ok": "green", "doubtful": "yellow", "broken": "red"}
_WIDTH: Final = 16
_NAME_WIDTH: Final = 9
_SHOWN: Final = 8


@app.command("doctor")
def doctor(
    place: Annotated[
        str | None, typer.Argument(help="A place of labgrid (default: LG_PLACE, or the only one).")
    ] = None,
    *,
    lg_env: Annotated[
        Path | None,
        typer.Option(
            "--lg-env", metavar="FILE", help="Its environment file (default: env/PLACE.yaml or env/boards/PLACE.yaml)."
        ),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option(help="Write a card with this kernel first (default: boot what is on the card).")
    ] = None,
    wait: Wait = None,
    priority: Priority = None,
    json_output: Json = False,
) -> None:
    """Check a place's power, meter, flasher, boot, card, marks and clocks, one after the other.

    The place is held meanwhile, and its board is off at the end. Without --kernel nothing is written to the card. Each
    check is ok, doubtful or broken; what another one's failure makes impossible is not tried. Exit code: 0 all is ok,
    5 something is doubtful, 4 something is broken, or the place cannot be had.

    Example: fsjoule doctor evk-1 --lg-env env/boards/imx6ul-evk.yaml --wait 30m
    """
    from fsjoule.bench.health.result import exit_code, overall
    from fsjoule.errors import ConfigError
    from fsjoule.lab.wanted import wanted_place
    from fsjoule.runs.doctor import environment_of, examined

    if place is None and lg_env is None:
        raise ConfigError("no place is named", hint="fsjoule doctor PLACE, or --lg-env FILE")
    environment = environment_of(place) if lg_env is None and place is not None else lg_env
    assert environment is not None
    checks: list[Check] = []
    held = examined(environment, progress, place=place, wanted=wanted_place(None, wait, priority), kernel=kernel)
    with held as (profile, coming):
        if not json_output:
            out.print(f"{profile.name}{', simulated' if profile.simulated else ''}, {environment}", highlight=False)
        for check in coming:
            checks.append(check)
            if not json_output:
                _show(check)
    health = overall(checks)
    if json_output:
        document = {"board": profile.name, "simulated": profile.simulated, "environment": str(environment)}
        print_json(document | {"health": health, "checks": [dataclasses.asdict(check) for check in checks]})
    raise typer.Exit(exit_code(health))


def _show(check: Check) -> None:
    from rich.text import Text

    head = Text(f"{check.health:{_WIDTH}}", _STYLES.get(check.health, "dim"))
    out.print(Text.assemble(head, f"{check.name:{_NAME_WIDTH}}", check.seen), soft_wrap=True, highlight=False)
    indent = " " * (_WIDTH + _NAME_WIDTH)
    for line in check.detail[-_SHOWN:]:
        out.print(Text(f"{indent}{line}", "dim"), soft_wrap=True, highlight=False)
    if check.advice:
        out.print(f"{indent}-> {check.advice}", soft_wrap=True, highlight=False)
