"""`fsjoule export` and `fsjoule import`: runs in the formats of other tools, and figures of others as run folders."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fsjoule.cli.common import Json, check_whole, out, output_file, output_folder, print_json, refuse, replace_text
from fsjoule.errors import ConfigError, not_written
from fsjoule.model.labels import counted

if TYPE_CHECKING:
    from fsjoule.store.reader import LoadedRun

app = typer.Typer()
_MOST_PERCENT: Final = 100.0


@app.command()
def export(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Runs: the start of an id, a folder, or s3://BUCKET/PREFIX/RUN (default: the newest).",
        ),
    ] = None,
    *,
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=output_file, help="A table (CSV) with a row for each measurement."),
    ] = None,
    samples: Annotated[bool, typer.Option("--samples", help="With --csv: a row for each sample of the meter.")] = False,
    perfetto: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=output_file, help="A trace for ui.perfetto.dev: power, marks, steps."),
    ] = None,
    otlp: Annotated[
        str | None,
        typer.Option(
            metavar="URL|FILE", help="OpenTelemetry's spans and metrics, to a collector (OTLP/HTTP) or as JSON lines."
        ),
    ] = None,
    jls: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=output_file, help="Joulescope's file of one run: samples and marks."),
    ] = None,
    kcidb: Annotated[
        bool, typer.Option("--kcidb", help="Print KCIDB's JSON, version 5.3, for kernelci.org: the default, one run.")
    ] = False,
    origin: Annotated[str, typer.Option(help="The CI system's name in KCIDB: a-z, 0-9, _.")] = "fsjoule",
    build: Annotated[
        str | None, typer.Option(help="KCIDB's number of the run's kernel, if it has its build: maestro:65a1355ee...")
    ] = None,
) -> None:
    """Write runs in the formats of other tools, several at once; without one, print KCIDB's JSON.

    Exit code: 2 if measurements are damaged (the others are written), 7 if a collector takes nothing.

    Example: fsjoule export last --perfetto run.pftrace --csv run.csv; fsjoule export --otlp http://127.0.0.1:4318
    """
    from fsjoule.store.reader import load_run
    from fsjoule.store.run_folders import named_run

    loaded = [load_run(named_run(run)) for run in runs or [None]]
    if samples and csv is None:
        refuse("only --csv has", {"--samples": samples})
    printed = kcidb or not (csv or perfetto or otlp or jls)
    if len(loaded) > 1 and (printed or jls):
        what = "KCIDB's JSON is of" if printed else "--jls: a file has the samples of"
        raise ConfigError(f"{what} one run", hint="name one, or another format: --csv, --perfetto, --otlp")
    if csv is not None:
        from fsjoule.report.exports.tables import write_csv

        with _writing(csv):
            write_csv(csv, loaded, samples=samples)
    if perfetto is not None:
        from fsjoule.report.exports.perfetto import write_perfetto

        with _writing(perfetto):
            write_perfetto(perfetto, loaded)
    if jls is not None:
        from fsjoule.report.exports.jls import write_jls

        with _writing(jls):
            write_jls(jls, loaded[0])
    if otlp is not None:
        _write_otlp(otlp, loaded)
    if printed:
        from fsjoule.report.kcidb import to_kcidb

        typer.echo(to_kcidb(loaded[0].run, loaded[0].measurements, origin, build), nl=False)
    for each in loaded:
        check_whole(each)


def _write_otlp(to: str, runs: list[LoadedRun]) -> None:
    from fsjoule.host.web import is_address
    from fsjoule.report.exports.otlp import send_otlp, to_otlp_json

    if is_address(to):
        send_otlp(runs, to)
    elif "://" in to:
        raise ConfigError(f"--otlp: {to!r} is no address of a collector", hint="http://127.0.0.1:4318, or a file")
    else:
        replace_text(Path(to), to_otlp_json(runs))


@contextmanager
def _writing(file: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise not_written(f"{file} cannot be written", error, hint="name another file") from error


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
