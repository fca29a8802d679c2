"""The command line. Thin: it reads arguments, calls one function, shows what came back."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fsjoule import __version__, images, report, store
from fsjoule.errors import FsjouleError
from fsjoule.filesystems import FILESYSTEMS
from fsjoule.session import show_run, summary_of, write_report
from fsjoule.suites import SUITES
from fsjoule.virtual import lab as virtual_lab

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Which filesystem should this board run, and did the last kernel make it slower or hungrier?",
    epilog="Example: pytest tests/bench --lg-env env/virtual.yaml --fs ext4,btrfs, then: fsjoule show results/<run>",
)
image_app = typer.Typer(no_args_is_help=True, help="Card images: kernels, root filesystems, the cache.")
lab_app = typer.Typer(no_args_is_help=True, help="The virtual lab: real labgrid processes around an emulated board.")
app.add_typer(image_app, name="image")
app.add_typer(lab_app, name="lab")

out = Console()
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
LabName = Annotated[str, typer.Option("--name", help="Name of the lab; its place is always called virtual.")]


def main() -> None:
    """Run the command line; an error of ours ends with its message and exit code, without a traceback."""
    try:
        app()
    except FsjouleError as error:
        err.print("error:", style="red", end=" ")
        err.print(str(error), markup=False, highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)


def _progress(line: str) -> None:
    err.print(line, markup=False, highlight=False, soft_wrap=True)


def _print_json(document: object) -> None:
    print(json.dumps(document, indent=2, default=str))  # noqa: T201 - rich would wrap it


@app.command()
def version() -> None:
    """Print the version."""
    out.print(__version__)


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="A run folder, for example results/20260101T120000Z-board-abc123.")],
    json_output: Json = False,
) -> None:
    """Show a run: its tables, where its time went, what was invalid.

    Example: fsjoule show results/20260101T120000Z-board-abc123 --json
    """
    if not json_output:
        show_run(run, out)
        return
    loaded = store.load_run(run)
    typer.echo(report.to_json(summary_of(loaded), loaded.measurements), nl=False)


@app.command(name="report")
def report_command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
) -> None:
    """Write report.html into a run folder, anew.

    Example: fsjoule report results/20260101T120000Z-board-abc123
    """
    out.print(str(write_report(run)), soft_wrap=True)


@app.command()
def choices(json_output: Json = False) -> None:
    """List what --fs, --kernel and --suite can be.

    Example: fsjoule choices
    """
    document = {
        "filesystems": list(FILESYSTEMS),
        "kernels": list(images.kernel_choices()),
        "suites": {name: suite.title for name, suite in SUITES.items()},
        "root filesystems": list(images.root_filesystem_choices()),
    }
    if json_output:
        _print_json(document)
        return
    for kind, names in document.items():
        out.print(f"[bold]{kind}[/bold]: {', '.join(names)}")


@app.command()
def schema(
    folder: Annotated[Path, typer.Argument(help="Where the JSON Schemas go.")] = Path("docs/schemas"),
) -> None:
    """Write the JSON Schemas of run.json and measurement.json, generated from the models."""
    for path in store.write_json_schemas(folder):
        out.print(str(path))


@image_app.command("build")
def image_build(
    kernel: Annotated[str, typer.Option(help="Kernel, see `fsjoule choices`.")] = "6.1",
    fs: Annotated[str, typer.Option("--fs", help="Filesystem of the root partition.")] = "ext4",
) -> None:
    """Build a card image, or find it in the cache; prints its path.

    Example: fsjoule image build --kernel 6.12 --fs btrfs
    """
    out.print(str(images.build_card(kernel, fs, progress=_progress).path), soft_wrap=True)


@image_app.command("list")
def image_list(json_output: Json = False) -> None:
    """List what is in the cache."""
    entries = images.cached()
    if json_output:
        _print_json([dataclasses.asdict(entry) for entry in entries])
        return
    table = Table("stage", "name", "MiB", "path", box=None)
    for entry in entries:
        table.add_row(entry.stage, entry.name, f"{entry.size_bytes / 2**20:.0f}", str(entry.path))
    out.print(table)


@image_app.command("clean")
def image_clean() -> None:
    """Remove everything that fsjoule keeps in its image cache."""
    freed_bytes = images.clean(images.cached(), progress=_progress)
    out.print(f"freed {freed_bytes / 2**20:.0f} MiB")


@lab_app.command("up")
def lab_up(
    name: LabName = "virtual",
    kernel: Annotated[str, typer.Option(help="A kernel that its board is to run: some need another QEMU.")] = "6.1",
) -> None:
    """Bring the virtual lab up and leave it running.

    Example: fsjoule lab up && eval "$(fsjoule lab env)" && labgrid-client places
    """
    emulator = str(images.emulator(kernel, progress=_progress))
    virtual_lab.up(name, owner_pid=None, emulator=emulator, progress=_progress)
    out.print(
        f'the lab is up; for labgrid-client: eval "$(fsjoule lab env --name {shlex.quote(name)})"', soft_wrap=True
    )


@lab_app.command("down")
def lab_down(name: LabName = "virtual") -> None:
    """Take the virtual lab down: no process, no loop device, no lock is left."""
    virtual_lab.down(name)
    out.print("the lab is down")


@lab_app.command("status")
def lab_status(name: LabName = "virtual", json_output: Json = False) -> None:
    """Show the lab's processes, the board's power and card, and who holds the place. Exit code 3 if it is down."""
    status = virtual_lab.status(name)
    if json_output:
        _print_json(dataclasses.asdict(status))
    else:
        out.print(status.text(), highlight=False)
    raise typer.Exit(0 if status.running else 3)


@lab_app.command("env")
def lab_env(name: LabName = "virtual") -> None:
    """Print the variables that labgrid's own tools need, for the shell's eval.

    Example: eval "$(fsjoule lab env)"; labgrid-client -p virtual acquire
    """
    for key, value in virtual_lab.environment(name).items():
        typer.echo(f"export {key}={shlex.quote(value)}")
