"""How a command ends: one exit code per cause, whatever Python, typer and rich would end with."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, TextIO

from typer import Abort
from typer.core import TyperGroup
from typer.exceptions import TyperException

from fsjoule.cli.common import err
from fsjoule.errors import ConfigError, FsjouleError, LabError
from fsjoule.host import interrupts
from fsjoule.host.limits import of_system
from fsjoule.host.output import cannot_be_written, guarded, is_closed_pipe
from fsjoule.host.paths import environment_file

BUG: Final = 70
INTERRUPTED: Final = 130
_LONGEST: Final = 1000
_WORDS: Final = {"str": "TEXT", "path": "PATH", "file": "FILE", "int": "N", "float": "NUMBER"}
_LONGEST_WORD: Final = 40
# What a document can keep.
_LARGEST: Final = 2**63 - 1
# The option, and the argument of `board check`.
_ENVIRONMENTS: Final = ("--lg-env", "environment")


class _Unexpected(Exception):  # noqa: N818 - it carries one
    """Carries an exception past typer, which exits with 1 for some: a broken connection, the end of a pipe."""


class _NobodyReads(BaseException):
    """Ends a command whose reader has closed the pipe (`| head`): it has what it wanted."""


class Group(TyperGroup):
    """A group of commands whose exceptions reach `exit_code_of` unchanged, and whose help has whole sentences.

    What typer does not understand becomes a ConfigError: a line with the command, and a hint. The help has no words of
    Python's for the types of options.
    """

    # The commands of each panel of the main help, in their order; a group's own help has one.
    panels: ClassVar[Mapping[str, Sequence[str]]] = {}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - typer's own types are private
        found = super().get_command(ctx, cmd_name)
        own = getattr(found, "params", [])
        for option in ctx.find_root().command.params:
            if not any(option.opts == each.opts for each in own):
                # --version is the same everywhere, and named in the main help only.
                everywhere = copy(option)
                everywhere.hidden, everywhere.expose_value = True, False
                own.append(everywhere)
        for parameter in own:
            parameter.process_value = partial(_sound, parameter, parameter.process_value)
            parameter.display_type_rich = partial(_plain_type, parameter.display_type_rich)
        return found

    def make_context(self, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - typer's own types are private
        with _told_as_input():
            return super().make_context(*given, **named)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own types are private
        """Write each command with its whole first sentence, in panels; typer cuts it short."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        shown = {name: each.get_short_help_str(_LONGEST) for name, each in commands.items() if not each.hidden}
        panels: Mapping[str, Sequence[str]] = self.panels if ctx.parent is None else {}
        placed = {name for names in panels.values() for name in names}
        for panel, names in {**panels, "Commands": [name for name in shown if name not in placed]}.items():
            if rows := [(name, shown[name]) for name in names if name in shown]:
                with formatter.section(panel):
                    formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's own types are private
        try:
            with _told_as_input(ctx):
                return super().invoke(ctx)
        except (OSError, EOFError) as error:
            raise _Unexpected from error
        except Abort as error:
            raise KeyboardInterrupt from error


def _sound(parameter: Any, process: Callable[..., Any], ctx: Any, value: Any) -> Any:  # noqa: ANN401 - typer's own types
    """An option's value; an environment file may be named without its folder.

    Raises ConfigError for an empty path, the folder of the call, and for a number too large.
    """
    name = max(parameter.opts, key=len)
    if parameter.type_descriptor.annotation in (Path, list[Path]) and value in ("", [""], ("",)):
        raise ConfigError(f"{ctx.command_path}: {name} is empty", hint="name a file or a folder")
    found = process(ctx, value)
    if name in _ENVIRONMENTS and found:
        files: list[Path] | Path = found
        found = list(map(environment_file, files)) if isinstance(files, list) else environment_file(files)
    if isinstance(found, int) and abs(found) > _LARGEST:
        raise ConfigError(f"{ctx.command_path}: {name} {found} is out of range", hint=f"choose at most {_LARGEST}")
    return found


def _plain_type(shown_type: Callable[..., Any], ctx: Any) -> str:  # noqa: ANN401 - typer's own types are private
    """The word for an option's value: `<list[str]>` is TEXT. Choices too long for a line are a NAME."""
    shown = str(shown_type(ctx=ctx) or "")
    if not shown.startswith("<"):
        return shown  # the command's own word
    word = shown.strip("<>").removeprefix("list[").removesuffix("]").removesuffix(" range")
    plain = _WORDS.get(word.lower(), word)
    return plain if len(plain) <= _LONGEST_WORD else "NAME"


@contextmanager
def _told_as_input(group: Any = None) -> Generator[None]:  # noqa: ANN401 - typer's own types are private
    try:
        yield
    except TyperException as error:
        context = getattr(error, "ctx", None)
        message = error.format_message()
        # typer's parser does not say whose option lacks its value: that of the command that `group` was about to call.
        if (context is None and group is None) or message.startswith("Usage:"):
            raise  # a group without a command: typer shows the group's help
        command = str(context.command_path) if context else f"{group.command_path} {group.invoked_subcommand or ''}"
        command = command.rstrip()
        message = message.replace("Value error, ", "").rstrip(".")
        raise ConfigError(f"{command}: {message[:1].lower()}{message[1:]}", hint=f"see {command} --help") from error


def exit_code_of(command: Callable[[], object], *, answers: bool) -> int:
    """Run a command, print on stderr why it failed if it did, and return its exit code.

    The exit code of a command that `answers` is its answer: it stands even if the output cannot be written.
    """
    with _guarded_output(answers=answers):
        code = _outcome(command)
        try:
            sys.stdout.flush()
        except _NobodyReads:
            pass
        except FsjouleError as error:
            _say(error)
            code = code or error.exit_code
    return code


def _outcome(command: Callable[[], object]) -> int:
    try:
        command()
    except SystemExit as ended:
        return _code(ended)
    except KeyboardInterrupt:
        return interrupts.exit_code() or INTERRUPTED
    except _NobodyReads:
        return 0
    except FsjouleError as error:
        _say(error)
        return _interrupted(error) or error.exit_code
    except Exception as error:  # noqa: BLE001 - Python would end with 1, which is an answer of the gate
        code = _unexpected(error.__cause__ if isinstance(error, _Unexpected) and error.__cause__ else error)
        return _interrupted(error) or code
    return 0


def _interrupted(error: BaseException) -> int | None:
    """The exit code of a signal, if the error came up while the command ended because of it."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    return None if cause is None else interrupts.exit_code() or INTERRUPTED


def _code(ended: SystemExit) -> int:
    """The exit code. Python would exit with 0 for None, and with 1 for a text."""
    if ended.code == INTERRUPTED:  # typer's code for any signal
        return interrupts.exit_code() or INTERRUPTED
    if isinstance(ended.code, int):
        return ended.code
    return 0 if ended.code is None else BUG


def _unexpected(error: BaseException) -> int:
    known = of_system(error)
    # If the room is not loaded, labgrid has not run. Most commands do not need it, and start sooner without.
    lab = sys.modules.get("fsjoule.lab")
    if known is None and lab is not None and lab.raised_by_labgrid(error):
        known = LabError(f"labgrid failed: {type(error).__name__}: {error}")
    if known is not None:
        _say(known)
        return known.exit_code
    traceback.print_exception(error)
    err.print("error:", style="red", end=" ")
    err.print("this is a bug in fsjoule; please report it, with the lines above", highlight=False, soft_wrap=True)
    return BUG


def _say(error: FsjouleError) -> None:
    err.print("error:", style="red", end=" ")
    err.print(str(error), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _guarded_output(*, answers: bool) -> Generator[None]:
    """Output that cannot be written ends a command with exit code and cause; a command that answers only says so."""

    def failed(error: OSError) -> None:
        if is_closed_pipe(error):
            if not answers:
                raise _NobodyReads from error
        elif answers:
            _say(cannot_be_written(error))
        else:
            raise cannot_be_written(error) from error

    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = guarded(before[0] or _nowhere(), failed), guarded(before[1] or _nowhere())
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _nowhere() -> TextIO:
    """Output for a program started without one: its descriptor must not become another file's."""
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - open as long as the program
