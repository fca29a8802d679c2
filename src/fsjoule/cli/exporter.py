"""`fsjoule exporter`: the computer beside the board."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from fsjoule.cli.common import Json, Wide, out, print_json, progress

app = typer.Typer(no_args_is_help=True, help="Check the computer beside the board, which has its USB devices.")


@app.callback()
def exporter() -> None:
    """Keep `check` a word of its own: typer would drop it, because it is the only command."""


@app.command("check")
def exporter_check(
    write: Annotated[
        Path | None, typer.Option(help="Write the exporter's file for what was found; it must be new.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the board in that file.")] = "board",
    speed: Annotated[int, typer.Option(help="Speed of the board's console.")] = 115200,
    wide: Wide = False,
    json_output: Json = False,
) -> None:
    """Say what an exporter lacks on this computer (exit code 4), and which USB devices it has.

    It listens at serial ports that no program has open, to tell a meter from a console, and sends nothing.

    Example: fsjoule exporter check --write exporter.yaml --name bone7
    """
    from fsjoule.errors import LabError
    from fsjoule.lab.boards.computer import check_computer
    from fsjoule.lab.boards.files import TO_CHANGE, exporter_text, write_new
    from fsjoule.report.table import listing, word
    from fsjoule.report.terminal import print_table

    computer = check_computer()
    if json_output:
        found = [{**dataclasses.asdict(each), "use": computer.use_of(each)} for each in computer.devices]
        print_json({"parts": [dataclasses.asdict(part) for part in computer.parts], "devices": found})
    else:
        for part in computer.parts:
            out.print(
                f"{'ok' if part.there else 'missing':8} {part.name}: {part.remark}", soft_wrap=True, highlight=False
            )
        if computer.devices:
            columns = (word("use"), word("serial number"), word("port"), word("USB device"))
            rows = [
                (computer.use_of(each), each.serial, " ".join((*each.ttys, *each.sgs)), each.name)
                for each in computer.devices
            ]
            print_table(out, listing(columns, rows), wide=wide)
        else:
            out.print("no USB device: this is not the computer beside the board, or a guest")
    if write is not None:
        text = exporter_text(name, f"the board {name}", speed, computer.wired())
        write_new({"exporter": text}, {"exporter": write})
        progress(f"{write}: {text.count(repr(TO_CHANGE))} values are still {TO_CHANGE}")
    if lacking := computer.missing:
        raise LabError(f"missing on this computer: {', '.join(part.name for part in lacking)}")
