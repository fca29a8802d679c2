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
from typing import Final

import typer

from fsjoule.cli.common import err
from fsjoule.cli.ended import Group, exit_code_of

# Groups have the names of their modules; the commands in `ungrouped` belong to no group.
_GROUPS: Final = (
    "bisect",
    "board",
    "ci",
    "exporter",
    "image",
    "index",
    "kernel",
    "kernelci",
    "lab",
    "lava",
    "meter",
    "place",
    "report",
    "results",
    "suites",
    "trend",
)
_UNGROUPED: Final = "ungrouped"
_OF_NO_GROUP: Final = ("choices", "export", "schema", "show", "version")
# The main job, which help names first.
_MAIN: Final = "bench"
_COMMANDS: Final = ("advise", "compare", "doctor", "explain", "gate", "serve")
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
        rich_markup_mode=None,  # its boxes take as long as all else that help does
        help="Which filesystem should this board run, and did the last kernel make it slower, or use more energy?",
        epilog="Example: fsjoule bench --fs ext4,btrfs, then: fsjoule show results/<run>",
    )
    for name in _modules(first_word):
        commands: typer.Typer = importlib.import_module(f"fsjoule.cli.{name}").app
        app.add_typer(commands, name=name if name in _GROUPS else None, cls=Group)
    return app


def _modules(first_word: str) -> tuple[str, ...]:
    if first_word in (_MAIN, *_GROUPS, *_COMMANDS):
        return (first_word,)
    return (_UNGROUPED,) if first_word in _OF_NO_GROUP else (_MAIN, _UNGROUPED, *_COMMANDS, *_GROUPS)
