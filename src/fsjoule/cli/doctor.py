"""`fsjoule doctor`: is a place fit to measure? Thin: it reads arguments, calls one function, shows each check."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fsjoule.cli.common import Json, Priority, Wait, out, print_json, progress

if TYPE_CHECKING:
    from fsjoule.bench.health.result import Check
    from fsjoule.lab.reservation import PlaceRequest

app = typer.Typer()

_STYLES: Final = {"ok": "green", "doubtful": "yellow", "broken": "red"}
_WIDTH: Final = 16
_NAME_WIDTH: Final = 9
_SHOWN: Final = 8


@app.command("doctor")
def doctor(
    place: Annotated[
        str | None, typer.Argument(help="A place of labgrid (with --lg-env: LG_PLACE, or the only one).")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All places of the coordinator, one after the other.")] = False,
    recheck: Annotated[
        bool, typer.Option("--recheck", help="With --all: only places that are bad; includes --state.")
    ] = False,
    lg_env: Annotated[
        Path | None,
        typer.Option(
            "--lg-env", metavar="FILE", help="The environment file (default: env/PLACE.yaml or env/boards/PLACE.yaml)."
        ),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option(help="Write a card with this kernel first (default: boot what is on the card).")
    ] = None,
    state: Annotated[
        bool, typer.Option("--state", help="Write the place's tag: state=bad if something is broken, else state=good.")
    ] = False,
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
    from fsjoule.errors import ConfigError
    from fsjoule.lab.reservation import place_request

    wanted = place_request(None, wait, priority)
    if every and place is not None:
        raise ConfigError("--all examines all places, and one is named", hint="leave one of them out")
    if recheck and not every:
        raise ConfigError("--recheck examines all bad places", hint="--all --recheck, or --state for one place")
    if every:
        state = state or recheck
        options = [*(("--kernel", kernel) if kernel else ()), *(("--wait", wait) if wait else ())]
        options += [*(("--priority", str(priority)) if priority is not None else ()), *(("--state",) if state else ())]
        raise typer.Exit(_all(lg_env, options, recheck=recheck, json_output=json_output))
    raise typer.Exit(_one(place, lg_env, wanted, kernel, state=state, json_output=json_output))


def _one(
    place: str | None, lg_env: Path | None, wanted: PlaceRequest, kernel: str | None, *, state: bool, json_output: bool
) -> int:
    from fsjoule.bench.health.result import Health, exit_code, overall, words
    from fsjoule.errors import ConfigError
    from fsjoule.lab.coordinator import connected, coordinator_address
    from fsjoule.lab.states import judge
    from fsjoule.runs.doctor import environment_of, examined, open_doors, tags_of

    if lg_env is None and place is None:
        raise ConfigError("no place is named", hint="fsjoule doctor PLACE, or --lg-env FILE, or --all")
    environment = environment_of(place, tags_of(place)) if lg_env is None and place is not None else lg_env
    assert environment is not None
    checks: list[Check] = []
    now = ""
    with examined(environment, place=place, wanted=wanted, kernel=kernel) as found:
        if not json_output:
            _show_head(found.profile.name, simulated=found.profile.simulated, environment=str(environment))
        for door in open_doors(coordinator_address()):
            progress(f"warning: {door} (docs/security.md)")
        for check in found.checks:
            checks.append(check)
            if not json_output:
                _show(check)
        health = overall(checks)
        if state:
            with connected() as coordinator:
                why = f"the doctor: {words(checks)}"
                now = judge(coordinator, found.place, good=health is not Health.BROKEN, why=why)
            if not json_output:
                out.print(f"place {found.place!r}: {now}", soft_wrap=True, highlight=False)
    if json_output:
        document = {"place": found.place, "board": found.profile.name, "simulated": found.profile.simulated}
        document |= {"environment": str(environment), "health": health, "state": now}
        print_json(document | {"checks": [dataclasses.asdict(check) for check in checks]})
    return exit_code(health)


def _all(lg_env: Path | None, options: list[str], *, recheck: bool, json_output: bool) -> int:
    """Examine all places, each in a process of its own; the exit code of the worst."""
    from fsjoule.errors import LabError
    from fsjoule.runs.doctor import examined_places

    program = [sys.executable, "-c", "from fsjoule.cli import main; main()", "doctor", "--json", *options]
    documents: list[dict[str, Any]] = []
    codes: set[int] = set()
    for found in examined_places(program, lg_env, bad=recheck):
        codes.add(found.code)
        documents.append(found.document)
        if not json_output:
            _show_place(found.document)
    if json_output:
        print_json(documents)
    elif not documents:
        out.print("no place is bad" if recheck else "the coordinator has no place")
    return LabError.exit_code if LabError.exit_code in codes else max(codes, default=0)


def _show_place(document: dict[str, Any]) -> None:
    from fsjoule.bench.health.result import Check, Health

    out.print(f"place {document['place']!r}", style="bold", soft_wrap=True, highlight=False)
    if why := document.get("not_examined"):
        out.print(f"not examined: {why}", soft_wrap=True, highlight=False)
        return
    _show_head(document["board"], simulated=document["simulated"], environment=document["environment"])
    for check in document["checks"]:
        _show(Check(**check | {"health": Health(check["health"]), "detail": tuple(check["detail"])}))
    if state := document["state"]:
        out.print(f"state: {state}", highlight=False)


def _show_head(board: str, *, simulated: bool, environment: str) -> None:
    out.print(f"{board}{', simulated' if simulated else ''}, {environment}", soft_wrap=True, highlight=False)


def _show(check: Check) -> None:
    from rich.text import Text

    head = Text(f"{check.health:{_WIDTH}}", _STYLES.get(check.health, "dim"))
    out.print(Text.assemble(head, f"{check.name:{_NAME_WIDTH}}", check.seen), soft_wrap=True, highlight=False)
    indent = " " * (_WIDTH + _NAME_WIDTH)
    for line in check.detail[-_SHOWN:]:
        out.print(Text(f"{indent}{line}", "dim"), soft_wrap=True, highlight=False)
    if check.advice:
        out.print(f"{indent}-> {check.advice}", soft_wrap=True, highlight=False)
