"""`fsjoule import`: what others have measured, as run folders of lesser standing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Final

import typer

from fsjoule.cli.common import Json, out, output_folder, print_json
from fsjoule.errors import ConfigError
from fsjoule.model.labels import counted

app = typer.Typer()
_MOST_PERCENT: Final = 100.0


@app.command("import")
def import_(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help="fio, csv, lava, ppk2, jls, or a package's.")],
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files, each of a run or of several.")],
    *,
    board: Annotated[str, typer.Option(help="The board's name, where the file has none.")] = "unknown",
    fs: Annotated[str, typer.Option("--fs", help="The filesystem, where the file has none.")] = "unknown",
    kernel: Annotated[str, typer.Option(help="The kernel's release, where the file has none.")] = "unknown",
    workload: Annotated[str, typer.Option(help="The name of the work in a recording (default: the file's).")] = "",
    time: Annotated[str, typer.Option(help="When it was measured, where the file does not say.")] = "",
    volts: Annotated[float | None, typer.Option(help="The device's voltage, for a PPK2's currents.")] = None,
    uncertainty: Annotated[
        float | None, typer.Option(metavar="PERCENT", help="Standard uncertainty (k=1) of power and energy.")
    ] = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="An emulated board, or an emulated meter.")] = False,
    into: Annotated[
        Path, typer.Option("--into", metavar="DIR", callback=output_folder, help="Where the run folders go.")
    ] = Path("results"),
    json_output: Json = False,
) -> None:
    """Make run folders of what others have measured, so that trend and compare serve it.

    Each says where it comes from, and its series are compared with none of fsjoule's. A file that was imported before
    changes nothing. Nothing is written if one of them cannot be read.

    Exit code: 2 if a file is not of the format.

    Example: fsjoule import fio nightly-*.json --board imx6ul --fs ext4; fsjoule index rebuild
    """
    from fsjoule.model.series import utc_named
    from fsjoule.runs.imports.folders import import_files
    from fsjoule.runs.imports.importers import IMPORTERS, Asked

    if form not in IMPORTERS:
        raise ConfigError.unknown("format", form, list(IMPORTERS))
    for name, value in (("--volts", volts), ("--uncertainty", uncertainty)):
        if value is not None and not 0 < value < _MOST_PERCENT:
            raise ConfigError(f"{name} {value:g} is not between 0 and 100")
    asked = Asked(
        board=board,
        filesystem=fs,
        kernel=kernel,
        workload=workload,
        time_utc=utc_named("--time", time or None) or "",
        volts=volts,
        uncertainty=None if uncertainty is None else uncertainty / 100,
        simulated=simulated,
    )
    done = import_files(IMPORTERS[form], files, asked, into)
    if json_output:
        print_json([dataclasses.asdict(each) for each in done])
        return
    for each in done:
        known = ", there already" if each.known else ""
        out.print(f"{each.path}: {counted(each.measurements, 'measurement')}{known}", soft_wrap=True, highlight=False)
