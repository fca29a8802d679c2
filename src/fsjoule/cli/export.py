"""`fsjoule export`: runs in the formats of other tools."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsjoule.cli.common import check_whole, output_file, refuse, replace_text
from fsjoule.errors import ConfigError, not_written

if TYPE_CHECKING:
    from fsjoule.store.reader import LoadedRun

app = typer.Typer()


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
