"""`fsjoule lab`: the virtual lab."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Annotated

import typer

from fsjoule.cli.common import Json, out, print_json
from fsjoule.errors import LabError
from fsjoule.model.labels import counted

app = typer.Typer(
    no_args_is_help=True, help="Bring the virtual lab up and down: real labgrid processes around an emulated board."
)

LabName = Annotated[
    str, typer.Option("--name", help="Name of the lab; its places are always called virtual, virtual-2 ...")
]


@app.command("up")
def lab_up(
    name: LabName = "virtual",
    kernel: Annotated[str, typer.Option(help="Kernels for its board, a,b; some need another QEMU.")] = "6.1",
    meter_program: Annotated[
        Path | None,
        typer.Option(help="Program that is its meter: firmware built for the host (default: the simulator)."),
    ] = None,
    board: Annotated[
        str, typer.Option(help="What its boards are: a file in labgrid/virtual; deterministic runs in guest time.")
    ] = "board",
    *,
    boards: Annotated[
        int, typer.Option("--boards", min=1, metavar="N", help="N boards of this kind, each with a place of its own.")
    ] = 1,
    exporters: Annotated[
        int, typer.Option("--exporters", min=1, metavar="M", help="M exporters, each for a share of the boards.")
    ] = 1,
) -> None:
    """Bring the virtual lab up and leave it running.

    Example: fsjoule lab up && eval "$(fsjoule lab env)" && labgrid-client places
    """
    from fsjoule.host import interrupts
    from fsjoule.runs.held_lab import emulator
    from fsjoule.virtual.lab import lab as virtual_lab

    program = emulator(board, *kernel.split(","))
    with interrupts.handled(), interrupts.interruptible():
        virtual_lab.up(
            name,
            owner_pid=None,
            emulator=program,
            meter_program=meter_program,
            board=board,
            boards=boards,
            exporters=exporters,
        )
    out.print(
        f'the lab is up; for labgrid-client: eval "$(fsjoule lab env --name {shlex.quote(name)})"', soft_wrap=True
    )


@app.command("down")
def lab_down(
    name: LabName = "virtual",
    force: Annotated[bool, typer.Option("--force", help="Also a lab that a run uses, or whose owner lives.")] = False,
) -> None:
    """Take the virtual lab down, with its processes and locks."""
    from fsjoule.virtual.lab import lab as virtual_lab

    virtual_lab.down(name, force=force)
    out.print("the lab is down")


@app.command("list")
def lab_list() -> None:
    """List the virtual labs that are up."""
    from fsjoule.virtual.lab import lab as virtual_lab

    found = virtual_lab.running()
    for record, state in found:
        boards = counted(len(record.boards), "board")
        where = f"coordinator {record.coordinator}, since {record.started_utc}"
        out.print(f"{record.name}: {state}, {boards} of kind {record.board}, {where}", highlight=False, soft_wrap=True)
    if not found:
        out.print("no virtual lab is up")


@app.command("status")
def lab_status(name: LabName = "virtual", json_output: Json = False) -> None:
    """Show the lab's processes (how dead ones died), the board, and who holds the place. Exit code 4 if it is down."""
    from fsjoule.virtual.lab import lab as virtual_lab

    status = virtual_lab.status(name)
    if json_output:
        print_json(dataclasses.asdict(status))
    else:
        out.print(status.text(), highlight=False)
    raise typer.Exit(0 if status.running else LabError.exit_code)


@app.command("env")
def lab_env(name: LabName = "virtual") -> None:
    """Print the variables that labgrid's own tools need, for the shell's eval.

    Example: eval "$(fsjoule lab env)"; labgrid-client -p virtual acquire
    """
    from fsjoule.virtual.lab import lab as virtual_lab

    for key, value in virtual_lab.environment(name).items():
        typer.echo(f"export {key}={shlex.quote(value)}")
