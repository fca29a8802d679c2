"""`fsjoule doctor`: is a place fit to measure? Thin: it reads arguments, calls one function, shows each check."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from fsjoule.cli.common import Json, Priority, Wait, out, print_json, progress
from fsjoule.cli.options import argument, with_options
from fsjoule.runs.options import flag, option

if TYPE_CHECKING:
    from fsjoule.bench.health.result import Check
    from fsjoule.lab.reservation import PlaceRequest

app = typer.Typer()

_STYLES: Final = {"ok": "green", "doubtful": "yellow", "broken": "red"}
_WIDTH: Final = 16
_NAME_WIDTH: Final = 9
_SHOWN: Final = 8


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    place: str | None = argument("", "A place of labgrid (with --lg-env: LG_PLACE, or the only one).")
    every: bool = flag("All places of the coordinator, one after the other.", name="--all")
    recheck: bool = flag("With --all: only places that are bad; includes --state.")
    lg_env: Path | None = option("FILE", "The environment file (default: env/PLACE.yaml or env/boards/PLACE.yaml).")
    kernel: str | None = option("", "Write a card with this kernel first (default: boot what is on the card).")
    state: bool = flag("Write the place's tag: state=bad if something is broken, else state=good.")
    wait: Wait = None
    priority: Priority = None
    json_output: Json = False


@app.command("doctor")
@with_options
def doctor(asked: DoctorOptions) -> None:
    """Check a place's power, meter, flasher, boot, card, marks and clocks, one after the other.

    The place is held meanwhile, and its board is off at the end. Without --kernel nothing is written to the card. Each
    check is ok, doubtful or broken; what another one's failure makes impossible is not tried. Exit code: 0 all is ok,
    5 something is doubtful, 4 something is broken, or the place cannot be had.

    Example: fsjoule doctor evk-1 --lg-env env/boards/imx6ul-evk.yaml --wait 30m
    """
    from fsjoule.errors import ConfigError
    from fsjoule.lab.reservation import place_request

    wanted = place_request(None, asked.wait, asked.priority)
    if asked.every and asked.place is not None:
        raise ConfigError("--all examines all places, and one is named", hint="leave one of them out")
    if asked.recheck and not asked.every:
        raise ConfigError("--recheck examines all bad places", hint="--all --recheck, or --state for one place")
    raise typer.Exit(_all(asked) if asked.every else _one(asked, wanted))


def _one(asked: DoctorOptions, wanted: PlaceRequest) -> int:
    from fsjoule.bench.health.result import Health, exit_code, overall, words
    from fsjoule.errors import ConfigError
    from fsjoule.lab.coordinator import connected, coordinator_address
    from fsjoule.lab.states import judge
    from fsjoule.runs.doctor import environment_of, examined, open_doors, tags_of

    place, environment = asked.place, asked.lg_env
    if environment is None:
        if place is None:
            raise ConfigError("no place is named", hint="fsjoule doctor PLACE, or --lg-env FILE, or --all")
        environment = environment_of(place, tags_of(place))
    checks: list[Check] = []
    now = ""
    with examined(environment, place=place, wanted=wanted, kernel=asked.kernel) as found:
        if not asked.json_output:
            _show_head(found.profile.name, simulated=found.profile.simulated, environment=str(environment))
        for door in open_doors(coordinator_address()):
            progress(f"warning: {door} (docs/security.md)")
        for check in found.checks:
            checks.append(check)
            if not asked.json_output:
                _show(check)
        health = overall(checks)
        if asked.state:
            with connected() as coordinator:
                why = f"the doctor: {words(checks)}"
                now = judge(coordinator, found.place, good=health is not Health.BROKEN, why=why)
            if not asked.json_output:
                out.print(f"place {found.place!r}: {now}", soft_wrap=True, highlight=False)
    if asked.json_output:
        document = {"place": found.place, "board": found.profile.name, "simulated": found.profile.simulated}
        document |= {"environment": str(environment), "health": health, "state": now}
        print_json(document | {"checks": [dataclasses.asdict(check) for check in checks]})
    return exit_code(health)


def _all(asked: DoctorOptions) -> int:
    """Examine all places, each in a process of its own; the exit code of the worst."""
    from fsjoule.errors import LabError
    from fsjoule.runs.doctor import examined_places

    given = {"--kernel": asked.kernel or None, "--wait": asked.wait, "--priority": asked.priority}
    options = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    options += ["--state"] if asked.state or asked.recheck else []
    program = [sys.executable, "-c", "from fsjoule.cli import main; main()", "doctor", "--json", *options]
    documents: list[dict[str, Any]] = []
    codes: set[int] = set()
    for found in examined_places(program, asked.lg_env, bad=asked.recheck):
        codes.add(found.code)
        documents.append(found.document)
        if not asked.json_output:
            _show_place(found.document)
    if asked.json_output:
        print_json(documents)
    elif not documents:
        out.print("no place is bad" if asked.recheck else "the coordinator has no place")
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
