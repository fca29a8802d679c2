"""The command line.

For: `fsjoule` and its subcommands. A command reads arguments, calls one function and shows what it returns.
Called by: the entry point `fsjoule`. No room imports this one.
May call: every room. It does not import `pytest_plugin`.

Commands that are none of fsjoule's own (`lava`, `kernelci`, those of packages) come by a hook (`fsjoule.hooks`).

A module of commands imports at its top only what help needs; each command imports its own work. So help, version and
completion do not wait for numerics, charts, the database or the lab.

Entry points: `main`; one module per command or group (`gate.py`, `index.py`, `meter/`). `common.py` has shared output
and options, `ended.py` the exit codes: one per cause, whatever Python, typer and rich would end with.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from fsjoule.cli.common import print_version, progress
from fsjoule.cli.ended import Group, exit_code_of
from fsjoule.errors import ConfigError
from fsjoule.hooks import GROUP, CliCommand, Rows, loaded
from fsjoule.host.messages import lines_to

# In the order of the main help, in its panels. Others come from packages: `COMMANDS`.
_OURS: Final = (
    *(CliCommand(name, f"fsjoule.cli.{name}:app", "Measure", group=False) for name in ("bench", "gate", "review")),
    *(CliCommand(name, f"fsjoule.cli.{name}:app", "Measure") for name in ("bisect", "suites")),
    CliCommand("choices", "fsjoule.cli.ungrouped:app", "Measure", group=False),
    CliCommand("show", "fsjoule.cli.ungrouped:app", "Look", group=False),
    *(
        CliCommand(name, f"fsjoule.cli.{name}:app", "Look", group=False)
        for name in ("runs", "compare", "advise", "explain", "timeline")
    ),
    *(CliCommand(name, f"fsjoule.cli.{name}:app", "Look") for name in ("trend", "report", "crash")),
    CliCommand("serve", "fsjoule.cli.serve:app", "Look", group=False),
    CliCommand("export", "fsjoule.cli.export:app", "Look", group=False),
    CliCommand("lab", "fsjoule.cli.lab:app", "Lab"),
    CliCommand("doctor", "fsjoule.cli.doctor:app", "Lab", group=False),
    *(
        CliCommand(name, f"fsjoule.cli.{name}:app", "Lab")
        for name in ("place", "meter", "board", "exporter", "image", "kernel")
    ),
    CliCommand("setup", "fsjoule.cli.setup:app", "Lab", group=False),
    *(CliCommand(name, f"fsjoule.cli.{name}:app", "Keep") for name in ("index", "results")),
    CliCommand("import", "fsjoule.cli.export:app", "Keep", group=False),
    CliCommand("ci", "fsjoule.cli.ci:app", "CI"),
    CliCommand("mcp", "fsjoule.cli.mcp:app", "CI", group=False),
    *(CliCommand(name, "fsjoule.cli.ungrouped:app", group=False) for name in ("schema", "version")),  # hidden
)
COMMANDS: Final = Rows("command", "fsjoule_commands", CliCommand, lambda: _OURS)
# Commands whose exit code is the answer.
_ANSWERS: Final = ("bisect", "doctor", "gate", "place", "review", "setup")

_log: Final = logging.getLogger(__name__)


def main() -> None:
    """Run the command line and exit with 0, the command's own answer, or the exit code of what went wrong."""
    first_word = sys.argv[1] if len(sys.argv) > 1 else ""

    def command() -> None:
        app_of(first_word)()

    with lines_to(progress):
        code = exit_code_of(command, answers=first_word in _ANSWERS)
    sys.exit(code)


def app_of(first_word: str) -> typer.Typer:
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
    commands = _commands(first_word)
    for each in {command.app: command for command in commands}.values():
        try:
            owner = GROUP if each in _OURS else COMMANDS.owner(each.name)
            loaded_app: typer.Typer = loaded(each.app, f"command {each.name}", owner)
        except ConfigError as error:
            if each.name == first_word:
                raise
            _log.warning("%s", error.in_a_line)  # of help for all others
        else:
            app.add_typer(loaded_app, name=each.name if each.group else None, cls=Group)
    panels = dict.fromkeys(command.panel for command in commands)
    Group.panels = {panel: [each.name for each in commands if each.panel == panel] for panel in panels}
    return app


def _commands(first_word: str) -> Sequence[CliCommand]:
    """The command of this name, or all of them. Packages are asked only for what is none of ours."""
    ours = [each for each in _OURS if each.name == first_word]
    if ours:
        return ours
    return [COMMANDS[first_word]] if first_word in COMMANDS else list(COMMANDS.values())


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
