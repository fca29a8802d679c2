"""Commands without a group: show, choices, version, schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from fsjoule.cli.common import Json, Run, Wide, check_whole, out, output_folder, print_json, print_version
from fsjoule.model import DEFAULT_RECIPE

app = typer.Typer()


@app.command(hidden=True)
def version() -> None:
    """Print the version."""
    print_version()


@app.command()
def show(
    run: Run = None,
    wide: Wide = False,
    json_output: Json = False,
) -> None:
    """Show a run: its tables, where its time went, which measurements are invalid.

    Exit code: 2 if there is no such run, or if measurements of it are damaged; the others are shown.

    Example: fsjoule show; fsjoule show abc123 --json
    """
    from fsjoule.report.run import show_run, summary_of
    from fsjoule.store.reader import load_run
    from fsjoule.store.run_folders import named_run

    loaded = load_run(named_run(run))
    if json_output:
        from fsjoule.report.run import to_json

        typer.echo(to_json(summary_of(loaded), loaded.measurements), nl=False)
    else:
        show_run(loaded, out, wide=wide)
    check_whole(loaded)


@app.command()
def choices(
    recipe: Annotated[str, typer.Option(help="The recipe of the board's card images.")] = DEFAULT_RECIPE,
    json_output: Json = False,
) -> None:
    """List the values of --fs, --stack, --kernel and --suite.

    Example: fsjoule choices, then: fsjoule bench --fs btrfs,btrfs:zstd+noatime
    """
    from fsjoule import images, kernels
    from fsjoule.filesystems import FILESYSTEMS, own_filesystems
    from fsjoule.layers import LAYERS
    from fsjoule.suites import SUITES, project_suites, suite

    own = own_filesystems()
    document = {
        "filesystems": {name: list(row.variants) for name, row in FILESYSTEMS.items()} | {name: [] for name in own},
        "layers": {name: list(row.variants) for name, row in LAYERS.items()},
        "kernels": list(kernels.kernel_choices(recipe)),
        "suites": {name: suite(name).title for name in (*SUITES, *project_suites())},
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
    for name, whole in own.items():
        out.print(f"  {name:<10} {whole.partition('=')[2]}, of fsjoule.toml", highlight=False, markup=False)
    out.print(Text.assemble(("layers", "bold"), ", with variants behind colons; a plus sign joins layers:"))
    for row in LAYERS.values():
        out.print(f"  {row.name:<14} {row.note}", highlight=False)
        for variant, options in row.variants.items():
            out.print(f"    {row.name}:{variant:<12} {options.note}", highlight=False)
    for kind in ("kernels", "suites", "root filesystems"):
        out.print(Text.assemble((kind, "bold"), f": {', '.join(document[kind])}"))


@app.command(hidden=True)
def schema(
    folder: Annotated[
        Path, typer.Argument(callback=output_folder, help="Where the JSON Schemas go: docs/schemas of the checkout.")
    ],
) -> None:
    """Write the JSON Schemas of run.json and measurement.json, generated from the models."""
    from fsjoule.store.schemas import write_json_schemas

    for path in write_json_schemas(folder):
        out.print(str(path), soft_wrap=True)
