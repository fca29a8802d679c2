"""`fsjoule board`: real boards, their files, and what their boot loaders can do."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsjoule.cli.common import Wide, out, progress, refuse

if TYPE_CHECKING:
    from fsjoule.lab.boards.checking import Checked

app = typer.Typer(no_args_is_help=True, help="Write and check the files of a real board; list the catalogue.")


@app.command("list")
def board_list(wide: Wide = False) -> None:
    """List the boards of the catalogue, for `fsjoule board new --from`."""
    from fsjoule.kernels.recipe import load_recipe, recipe_files, recipes_folder
    from fsjoule.report.table import listing, word
    from fsjoule.report.terminal import print_table

    rows: list[tuple[str, ...]] = []
    for name in sorted(recipe_files(recipes_folder())):
        recipe = load_recipe(recipes_folder(), name)
        if recipe.board is not None and recipe.file.startswith("images/boards/"):
            packages = sorted({piece.package for piece in recipe.boot_loader.pieces.values() if piece.package})
            loader = ", ".join(packages) or "yours, on the board"
            rows.append((name, recipe.board.title, recipe.architecture, loader))
    columns = (word("--from"), word("board"), word("architecture"), word("boot loader"))
    print_table(out, listing(columns, rows), wide=wide)


def _check_meter(volts: float | None, instrument: str | None, marks: str | None) -> None:
    """Raise ConfigError for a PPK2's wrong voltage, an instrument's wrong address, and marks without either."""
    from fsjoule.errors import ConfigError
    from fsjoule.meter.instruments import addresses, kind_at
    from fsjoule.meter.links.ppk2 import Ppk2Settings

    if volts is None and instrument is None:
        refuse("only --ppk2 and --instrument take", {"--marks": marks})
    if volts is not None:
        refuse("a board has one meter: --ppk2 or", {"--instrument": instrument})
        Ppk2Settings.read({"volts": str(volts)})
    if instrument is not None and kind_at(instrument) is None:
        raise ConfigError(f"--instrument: {instrument!r} is no address", hint=f"an address is {addresses()}")


def _meter(instrument: str | None, answered: str) -> tuple[str, str]:
    """The address of the board's instrument ("" for fsjoule's own meter) and the serial number, whichever was typed."""
    from fsjoule.meter.instruments import kind_at

    return instrument or (answered if kind_at(answered) else ""), answered


@app.command("new")
def board_new(  # noqa: PLR0917 - typer
    name: Annotated[str, typer.Argument(help="Name of the board and of its place.")],
    source: Annotated[
        str | None, typer.Option("--from", help="A board of `fsjoule board list`, or another recipe in images/.")
    ] = None,
    flasher: Annotated[
        str | None,
        typer.Option(
            help="How its card is written: sdmux, sdwire, sdwire3, ums, fastboot (over USB), fastboot-udp, tftp; "
            "by hand, once: in-place, kept."
        ),
    ] = None,
    shell: Annotated[str | None, typer.Option(help="How its programs are started: console or ssh.")] = None,
    outlet_model: Annotated[
        str | None, typer.Option(help="labgrid's name for the outlet's kind; manual: somebody switches when asked.")
    ] = None,
    outlet_host: Annotated[str | None, typer.Option(help="The outlet's address.")] = None,
    outlet_index: Annotated[int, typer.Option(help="The outlet's socket.")] = 0,
    console: Annotated[str | None, typer.Option(help="Serial number of the console's USB adapter.")] = None,
    meter: Annotated[str | None, typer.Option(help="Serial number of the meter.")] = None,
    ppk2: Annotated[
        float | None,
        typer.Option(metavar="VOLTS", help="The meter is a PPK2 in the board's supply of this voltage."),
    ] = None,
    instrument: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="The meter is another instrument (fsjoule meter list): joulescope:…, iio:…, visa:…."
        ),
    ] = None,
    marks: Annotated[
        str | None,
        typer.Option(
            help="With --instrument, and --ppk2 without --mark-gpio: serial number of the adapter at the mark line."
        ),
    ] = None,
    mux: Annotated[
        str | None,
        typer.Option(
            help="Serial number of the SD mux; with ums and fastboot the ID_PATH of the board's USB device; "
            "with fastboot-udp the board's address."
        ),
    ] = None,
    marks_on_console: Annotated[
        bool, typer.Option("--marks-on-console", help="The meter listens to the console: there is no second UART.")
    ] = False,
    mark_gpio: Annotated[
        str | None,
        typer.Option(help="Marks on a GPIO: path of its controller in the device tree and numbers of the pin."),
    ] = None,
    into: Annotated[
        Path | None, typer.Option(help="Folder that gets env/ and labgrid/ (default: the checkout, or this folder).")
    ] = None,
    ask: Annotated[bool, typer.Option(help="Ask for what the options leave out, if this is a terminal.")] = True,
) -> None:
    """Write the environment file, the exporter's file and the place's file of a new board. Existing files stay.

    Example: fsjoule board new bone7 --from beaglebone-black --outlet-host http://outlet7.lab --console A50285BI
    """
    from fsjoule.errors import ConfigError
    from fsjoule.host.paths import own_folder, project_dir
    from fsjoule.kernels.recipe import load_recipe, parse_recipe, recipe_files, recipes_folder
    from fsjoule.lab.boards.files import (
        MANUAL,
        TO_CHANGE,
        Wired,
        board_files,
        console_line,
        console_recipe,
        gpio_recipe,
        paths_of,
        write_new,
    )
    from fsjoule.lab.boards.ways import CONSOLE, SDMUX, SHELLS, WAYS, asked_of

    _check_meter(ppk2, instrument, marks)
    asking = ask and sys.stdin.isatty()

    def answer(given: str | None, question: str, default: str, *, asks: bool = True) -> str:
        if given is not None or not (asking and asks):
            return default if given is None else given
        return str(typer.prompt(question, default=default, err=True))

    choices = sorted(stem for stem, file in recipe_files(recipes_folder()).items() if file.parent.name == "boards")
    likely = name if name in choices else choices[0]
    chosen = answer(source, f"Which board ({', '.join(choices)})", likely if asking else "")
    if not chosen:
        raise ConfigError("which board it is like was not said", hint=f"--from, one of: {', '.join(choices)}")
    recipe = load_recipe(recipes_folder(), chosen)
    default = Wired()
    written = answer(flasher, f"How its card is written ({', '.join(WAYS)})", SDMUX)
    device = asked_of(written)
    reached = answer(shell, f"How its programs are started ({', '.join(SHELLS)})", CONSOLE)
    model = answer(
        outlet_model,
        f"The outlet's model, a name of labgrid's NetworkPowerPort; {MANUAL}: you switch when asked",
        default.outlet_model,
    )
    host = answer(outlet_host, "The outlet's address", default.outlet_host, asks=model != MANUAL)
    console = answer(
        console, "Serial number of the console's USB adapter (fsjoule exporter check shows it)", default.console
    )
    asked = "The meter: its serial number, or an instrument's address (fsjoule meter list)"
    instrument, meter = _meter(instrument, answer(meter, asked, default.meter, asks=not instrument))
    mux = answer(mux, device, default.mux, asks=bool(device))
    asked = "Serial number of the adapter at the board's mark line"
    marks = answer(marks, asked, default.marks, asks=bool(instrument))
    wired = Wired(model, host, outlet_index, console, meter, mux, ppk2, instrument, marks)
    folder = own_folder() if into is None else into
    paths = paths_of(name, folder)
    own: dict[str, str] = {}
    if mark_gpio is not None and marks_on_console:
        raise ConfigError("marks go one way only", hint="--marks-on-console or --mark-gpio")
    if mark_gpio is not None:
        own["recipe"] = gpio_recipe(name, recipe, mark_gpio)
    elif marks_on_console and recipe.boot.mark_device != console_line(recipe):
        own["recipe"] = console_recipe(name, recipe)
    if own:
        paths["recipe"] = folder / "images" / f"{name}.toml"
        found = parse_recipe(own["recipe"], name=name, file=paths["recipe"])
        named = folder == project_dir()  # other folders' recipes have no name
        recipe = found if named else found.model_copy(update={"name": str(paths["recipe"].resolve())})
    texts = board_files(name, recipe, wired, written, reached) | own
    write_new(texts, paths)
    for path in paths.values():
        out.print(str(path), soft_wrap=True)
    progress(f"next: {shlex.join(['fsjoule', 'board', 'check', str(paths['environment'])])}")
    if left := sum(text.count(f"'{TO_CHANGE}'") for text in texts.values()):
        progress(f"{left} values are still {TO_CHANGE} in {paths['exporter']}")


@app.command("check")
def board_check(
    environment: Annotated[Path, typer.Argument(help="An environment file, env/NAME.yaml.")],
    exporter: Annotated[
        Path | None, typer.Option(help="The exporter's file (default: labgrid/NAME/exporter.yaml).")
    ] = None,
    loader: Annotated[bool, typer.Option(help="Also look at the boot loader's configuration.")] = True,
    ask: Annotated[
        bool, typer.Option("--ask", help="Start the board and ask the boot loader that runs, instead of its package.")
    ] = False,
) -> None:
    """Say what is wrong with a board's files (exit code 2), and which ways of flashing its boot loader offers.

    The boot loader's build configuration comes from its Debian package, which is fetched if the cache does not have it.
    With --ask the board is started and its boot loader stopped, to list its commands; it is off afterwards.

    Example: fsjoule board check env/bone7.yaml
    """
    from fsjoule.errors import ConfigError
    from fsjoule.images.boot_loader import boot_loader
    from fsjoule.lab.boards.abilities import abilities_by_help, abilities_of, abilities_text, parse_config
    from fsjoule.lab.boards.checking import check_board, unable

    checked = check_board(environment, exporter=exporter)
    say = partial(out.print, soft_wrap=True, highlight=False)
    for problem in checked.problems:
        say(str(problem))
    abilities = None
    if ask:
        abilities = abilities_by_help(_help_of(checked))
    elif loader:
        found = boot_loader(checked.recipe)
        abilities = abilities_of(parse_config(found.config)) if found.config else None
    unfit = [] if abilities is None else list(unable(checked, abilities))
    for problem in unfit:
        say(str(problem))
    if ask or loader:
        say(abilities_text(checked.recipe, abilities))
    if count := len(checked.problems) + len(unfit):
        raise ConfigError(
            f"{count} problem{'s' if count > 1 else ''} in the files of {checked.environment.profile.name}"
        )
    files = f"{environment} and {checked.exporter}" if checked.exporter else f"{environment}"
    out.print(f"{files}: nothing wrong was found", soft_wrap=True, highlight=False)


def _help_of(checked: Checked) -> str:
    from fsjoule.lab import loader_help
    from fsjoule.lab.boards.files import PROMPT
    from fsjoule.runs.meter import environment_target

    board = checked.recipe.board
    with environment_target(checked.environment.path) as (target, _):
        return loader_help(target, PROMPT if board is None else board.prompt)
