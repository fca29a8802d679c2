"""Commands without a group: version, show, export, choices, schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from fsjoule.cli.common import Json, Wide, out, output_folder, print_json
from fsjoule.errors import ConfigError
from fsjoule.model import DEFAULT_RECIPE

app = typer.Typer()


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as version_of

    out.print(version_of("fsjoule"))


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="A run folder, or s3://BUCKET/PREFIX/RUN.")],
    wide: Wide = False,
    json_output: Json = False,
) -> None:
    """Show a run: its tables, where its time went, which measurements are invalid.

    Example: fsjoule show results/20260101T120000Z-board-abc123 --json
    """
    from fsjoule.report.run import show_run, summary_of
    from fsjoule.store.objects.cache import at_hand

    run = at_hand(run)
    if not json_output:
        show_run(run, out, wide=wide)
        return
    from fsjoule.report.as_json import to_json
    from fsjoule.store.reader import load_run

    loaded = load_run(run)
    typer.echo(to_json(summary_of(loaded), loaded.measurements), nl=False)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="A run folder, or s3://BUCKET/PREFIX/RUN.")],
    *,
    kcidb: Annotated[
        bool, typer.Option("--kcidb", help="KCIDB's JSON, version 5.3: a test for each figure, for kernelci.org.")
    ] = False,
    origin: Annotated[str, typer.Option(help="The CI system's name in KCIDB: a-z, 0-9, _.")] = "fsjoule",
    build: Annotated[
        str | None, typer.Option(help="KCIDB's number of the run's kernel, if it has its build: maestro:65a1355ee...")
    ] = None,
) -> None:
    """Print a run in the format of another tool.

    Example: fsjoule export results/20260101T120000Z-board-abc123 --kcidb --origin mylab > report.json
    """
    if not kcidb:
        raise ConfigError("export to what?", hint="give --kcidb")
    from fsjoule.report.kcidb import to_kcidb
    from fsjoule.store.objects.cache import at_hand
    from fsjoule.store.reader import load_run

    loaded = load_run(at_hand(run))
    typer.echo(to_kcidb(loaded.run, loaded.measurements, origin, build), nl=False)


@app.command()
def choices(
    recipe: Annotated[str, typer.Option(help="The recipe of the board's card images.")] = DEFAULT_RECIPE,
    json_output: Json = False,
) -> None:
    """List the values of --fs, --kernel and --suite.

    Example: fsjoule choices, then: fsjoule bench --fs btrfs,btrfs:zstd+noatime
    """
    from fsjoule import images, kernels
    from fsjoule.filesystems import FILESYSTEMS
    from fsjoule.suites import SUITES

    document = {
        "filesystems": {name: list(row.variants) for name, row in FILESYSTEMS.items()},
        "kernels": list(kernels.kernel_choices(recipe)),
        "suites": {name: suite.title for name, suite in SUITES.items()},
        "root filesystems": list(images.root_filesystem_choices(recipe)),
    }
    if json_output:
        print_json(document)
        return
    out.print(Text.assemble(("filesystems", "bold"), ", with variants that can be joined by a plus sign:"))
    for row in FILESYSTEMS.values():
        out.print(f"  {row.name}", style="bold")
        for variant, options in row.variants.items():
            out.print(f"    {row.name}:{variant:<12} {options.note}", highlight=False)
    for kind in ("kernels", "suites", "root filesystems"):
        out.print(Text.assemble((kind, "bold"), f": {', '.join(document[kind])}"))


@app.command()
def schema(
    folder: Annotated[Path, typer.Argument(callback=output_folder, help="Where the JSON Schemas go.")] = Path(
        "docs/schemas"
    ),
) -> None:
    """Write the JSON Schemas of run.json and measurement.json, generated from the models."""
    from fsjoule.store.schemas import write_json_schemas

    for path in write_json_schemas(folder):
        out.print(str(path))
