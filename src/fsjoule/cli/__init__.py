"""The command line.

For: `fsjoule` and its subcommands. A command reads arguments, calls one function and shows what it returns.
Called by: the entry point `fsjoule`. No room imports this one.
May call: every room. It does not import `pytest_plugin`.

A module of commands imports at its top only what help needs; each command imports its own work. So help, version and
completion do not wait for numerics, charts, the database or the lab.

Entry points: `main`; one module per command or group (`gate.py`, `index.py`, `meter/`). `common.py` has shared output
and options, `ended.py` the exit codes: one per cause, whatever Python, typer and rich would end with.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Annotated, Final

import typer

from fsjoule.cli.common import err, print_version
from fsjoule.cli.ended import Group, exit_code_of

# The panels of the help, what is wanted most first. A command is in the module of its name, or in `ungrouped`.
_PANELS: Final[dict[str, tuple[str, ...]]] = {
    "Measure": ("bench", "gate", "bisect", "suites", "choices"),
    "Look": ("show", "runs", "compare", "advise", "explain", "trend", "report", "serve", "export"),
    "Lab": ("lab", "doctor", "place", "meter", "board", "exporter", "image", "kernel"),
    "Keep": ("index", "results"),
    "CI": ("ci", "lava", "kernelci"),
}
_COMMANDS: Final = tuple(name for names in _PANELS.values() for name in names)
_UNGROUPED: Final = ("choices", "export", "schema", "show", "version")
# Modules of one command; all others hold a group.
_SINGLE: Final = ("advise", "bench", "compare", "doctor", "explain", "gate", "runs", "serve", "ungrouped")
# Commands whose exit code is the answer.
_ANSWERS: Final = ("bisect", "doctor", "gate", "place")


class _Warnings(logging.Handler):
    """Prints the library's warnings (a silent meter, a second reader) on stderr at once."""

    def emit(self, record: logging.LogRecord) -> None:
        err.print("warning:", style="yellow", end=" ")
        err.print(record.getMessage(), markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """Run the command line and exit with 0, the command's own answer, or the exit code of what went wrong."""
    warnings = _Warnings(logging.WARNING)
    logging.getLogger("fsjoule").addHandler(warnings)
    first_word = sys.argv[1] if len(sys.argv) > 1 else ""

    def command() -> None:
        _app(first_word)()

    try:
        code = exit_code_of(command, answers=first_word in _ANSWERS)
    finally:
        logging.getLogger("fsjoule").removeHandler(warnings)
    sys.exit(code)


def _app(first_word: str) -> typer.Typer:
    """The typer application; it loads only the module of the command asked for, and all modules for help."""
    app = typer.Typer(
        cls=Group,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},  # of all commands: they inherit it
        rich_markup_mode=None,  # its boxes take as long as all else that help does
        help="Which filesystem should this board run, and did the last kernel make it slower, or use more energy?",
        epilog="Example: fsjoule bench --fs ext4,btrfs, then: fsjoule show",
    )
    app.callback()(_fsjoule)
    for name in _modules(first_word):
        commands: typer.Typer = importlib.import_module(f"fsjoule.cli.{name}").app
        app.add_typer(commands, name=None if name in _SINGLE else name, cls=Group)
    Group.panels = _PANELS
    return app


def _fsjoule(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            is_eager=True,
            callback=print_version,
            help="Print the version.",
        ),
    ] = False,
) -> None:
    pass


def _modules(first_word: str) -> tuple[str, ...]:
    known = (*_COMMANDS, *_UNGROUPED)
    wanted = (first_word,) if first_word in known else known
    return tuple(dict.fromkeys("ungrouped" if name in _UNGROUPED else name for name in wanted))
