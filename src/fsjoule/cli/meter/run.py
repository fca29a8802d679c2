"""`fsjoule meter run -- COMMAND`: joules, watts and time of any command."""

from __future__ import annotations

import dataclasses
import json
import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table

from fsjoule.cli.common import Json, err, output_file
from fsjoule.cli.meter.common import Environment, MeterAddress, with_simulated
from fsjoule.model import Value

if TYPE_CHECKING:
    from fsjoule.meter.tools.command_energy import Ran

# The figures of a run: name, title, unit and decimals.
_FIGURES: Final = (
    ("seconds", "time", "s", 3),
    ("joules", "gross", "J", 4),
    ("net_joules", "net", "J", 4),
    ("watts", "mean", "W", 4),
    ("idle_watts", "idle", "W", 4),
)


def run(
    *,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND [ARGUMENT]...", help="The command to run.")],
    meter: MeterAddress = None,
    lg_env: Environment = None,
    idle: Annotated[
        float, typer.Option(min=0.0, help="Seconds of idle power to measure first, for the net energy; 0: skip it.")
    ] = 1.0,
    repeat: Annotated[int, typer.Option(min=1, help="Run it this many times.")] = 1,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            callback=output_file,
            help="Keep the trace in FILE.parquet or FILE.csv; later runs go to FILE-2 ...",
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Run a command and print the energy drawn meanwhile, gross and net of idle power, with its uncertainty.

    Marks on the meter bracket the command, so its time is measured by the meter's own clock. The command has this
    terminal; the figures go to standard error (with --json as one line). The command's exit code is passed on, and a
    run that fails is the last one.

    Example: fsjoule meter run --idle 2 --repeat 5 -- ssh board md5sum /boot/zImage
    """
    from fsjoule.meter.tools.command_energy import run_command
    from fsjoule.runs.meter import desk_meter

    runs: list[Ran] = []
    with desk_meter(meter, lg_env) as instrument:
        for number in range(1, repeat + 1):
            runs.append(run_command(instrument, command, number=number, idle_s=idle))
            if output is not None and (trace := runs[-1].trace) is not None:
                from fsjoule.store.recordings import Recording

                path = output if number == 1 else output.with_stem(f"{output.stem}-{number}")
                with Recording(path) as recording:
                    recording.write(trace)
            if runs[-1].exit_code != 0:
                break
    if json_output:
        typer.echo(json.dumps(_document(command, runs)), err=True)
    else:
        err.print(with_simulated(f"\n{shlex.join(command)}", runs[0].info), soft_wrap=True)
        err.print(_one_run(runs[0]) if len(runs) == 1 else _several_runs(runs))
        for number, ran in enumerate(runs, start=1):
            for remark in ran.remarks:
                err.print(f"run {number}: {remark}", style="yellow", highlight=False, soft_wrap=True)
    raise typer.Exit(runs[-1].exit_code)


def _figures(ran: Ran) -> dict[str, Value]:
    """A run's known figures by name; the time has no uncertainty."""
    found = {"seconds": Value(ran.seconds, 0.0)}
    if ran.energy is not None:
        found["joules"] = _joules(ran.energy.gross_mj)
        found["watts"] = ran.energy.mean_power_w
        if ran.has_net:
            found["net_joules"] = _joules(ran.energy.net_mj)
            found["idle_watts"] = ran.energy.idle_power_w
    return found


def _joules(millijoules: Value) -> Value:
    return Value(millijoules.value / 1e3, millijoules.uncertainty / 1e3)


def _over_runs(runs: Sequence[Ran]) -> dict[str, dict[str, float]]:
    """Each figure's mean and standard deviation over the runs, and the meter's largest uncertainty."""
    found: dict[str, dict[str, float]] = {}
    for name, *_ in _FIGURES:
        values = [figures[name] for ran in runs if name in (figures := _figures(ran))]
        if len(values) > 1:
            numbers = [each.value for each in values]
            found[name] = {
                "mean": statistics.mean(numbers),
                "sd": statistics.stdev(numbers),
                "uncertainty": max(each.uncertainty for each in values),
            }
    return found


def _document(command: Sequence[str], runs: Sequence[Ran]) -> dict[str, Any]:
    return {
        "command": list(command),
        "meter": runs[0].info.serial_number,
        "simulated": runs[0].info.simulated,
        "runs": [
            {name: dataclasses.asdict(value) for name, value in _figures(ran).items()}
            | {"exit_code": ran.exit_code, "window_seconds": ran.window_s, "remarks": list(ran.remarks)}
            for ran in runs
        ],
        "over_runs": _over_runs(runs),
    }


def _one_run(ran: Ran) -> Table:
    table = Table(box=None, show_header=False, pad_edge=True)
    figures = _figures(ran)
    for name, title, unit, decimals in _FIGURES:
        if name in figures:
            value = figures[name]
            known = f" ± {value.uncertainty:.{decimals}f}" if value.uncertainty else ""
            table.add_row(title, f"{value.value:.{decimals}f}{known} {unit}")
    return table


def _several_runs(runs: Sequence[Ran]) -> Table:
    table = Table("run", box=None)
    for _, title, unit, _ in _FIGURES:
        table.add_column(f"{title}/{unit}", justify="right")
    for number, ran in enumerate(runs, start=1):
        table.add_row(str(number), *_cells({name: value.value for name, value in _figures(ran).items()}))
    over = _over_runs(runs)
    for what, title in (("mean", "mean"), ("sd", "SD"), ("uncertainty", "± of the meter")):
        table.add_row(title, *_cells({name: found[what] for name, found in over.items()}), style="bold")
    return table


def _cells(numbers: Mapping[str, float]) -> list[str]:
    return [f"{numbers[name]:.{decimals}f}" if name in numbers else "-" for name, _, _, decimals in _FIGURES]
