"""Output and options that all commands share."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from fsjoule.errors import ConfigError, ResultError, not_written
from fsjoule.host.extras import PAGES, need
from fsjoule.host.interrupts import heard
from fsjoule.host.terminal import PlainConsole
from fsjoule.model.labels import counted
from fsjoule.runs.options import Option, PlaceOptions, rows
from fsjoule.store.files import Watcher, check_writable

if TYPE_CHECKING:
    from fsjoule.store.reader import LoadedRun

out = PlainConsole()
err = PlainConsole(stderr=True)

_AGE: Final = re.compile(r"([1-9][0-9]{0,4})([dwy])", re.ASCII)
_SAY_EVERY_S: Final = 10.0
_WARNING: Final = "warning: "
_MIB: Final = 1 << 20
_DAYS: Final = {"d": 1, "w": 7, "y": 365}

_PAGES: Final = ("--page", "--format page")

Remove = Annotated[bool, typer.Option("--remove", help="Remove them; without it, only show what would go.")]


def age(option: str, text: str) -> timedelta:
    """The age that an option names: 90d, 12w, 2y. Raises ConfigError."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise ConfigError(f"{option} {text!r} is not an age", hint="write days, weeks or years: 90d, 12w, 2y")
    return timedelta(days=int(found[1]) * _DAYS[found[2]])


def output_file(param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Check, before any work, that an option's file can be written. Raises ConfigError. A callback for typer."""
    if value is not None:
        check_file(value, _name(param))
    return value


def output_files(param: typer.CallbackParam, value: list[Path]) -> list[Path]:
    """As `output_file`, for an option that may be repeated."""
    for each in value:
        check_file(each, _name(param))
    return value


def output_folder(param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Check, before any work, that an option's folder can be written to. Raises ConfigError. A callback for typer."""
    if value is not None:
        check_writable(value, _name(param))
    return value


def check_file(file: Path, option: str) -> None:
    """Check that an option's file can be written, and that what makes pages is installed. Raises ConfigError."""
    if option in _PAGES:
        need("pages", *PAGES)
    if file.is_dir():
        raise ConfigError(f"{option}: {file} is a folder", hint="name a file")
    for folder in (file.parent, file.resolve().parent):  # of a link, too
        if not folder.exists():
            raise ConfigError(f"{option}: there is no folder {folder}", hint=f"mkdir -p {shlex.quote(str(folder))}")
    check_writable(file.parent, option)


def print_version(value: bool = True) -> None:
    """Print the version and end, if that is asked for. A callback."""
    if value:
        from importlib.metadata import version

        out.print(version("fsjoule"), highlight=False)
        raise typer.Exit


def _name(param: typer.CallbackParam) -> str:
    return str(max(param.opts, key=len))


def declared(row: Option) -> Any:  # noqa: ANN401 - typer's own types are private
    """What typer takes for a declared option or argument."""
    text = f"{row.help[0].upper()}{row.help[1:].removesuffix('.')}."
    settings: dict[str, Any] = {"metavar": row.metavar or None, "help": text, **row.settings}
    return typer.Argument(**settings) if row.argument else typer.Option(*row.name.split(), **settings)


_PLACE: Final = dict(rows(PlaceOptions))
All = Annotated[bool, typer.Option("--all", help="Show all figures, not only the ten that matter most.")]
AcrossBoards = Annotated[
    bool,
    typer.Option("--across-boards", help="Also compare different boards of one type (their levels look like changes)."),
]
Boards = Annotated[
    int,
    typer.Option(
        "--boards",
        min=1,
        metavar="N",
        help="Boot N boards at once: boards in guest time, or with --place-tag places of a pool.",
    ),
]
PairedBoards = Annotated[
    int | None,
    typer.Option(
        "--boards",
        min=1,
        metavar="N",
        help="Boot N boards at once: boards in guest time (default: both sides of a pair, if there are two CPUs), or "
        "with --place-tag places of a pool.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
PlaceTag = Annotated[str | None, declared(_PLACE["place_tag"])]
Run = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]", help="A run: the start of its id, its folder, or s3://BUCKET/PREFIX/RUN (default: the newest)."
    ),
]
Select = Annotated[
    str | None,
    typer.Option(
        "-k", metavar="WORDS", help="Only measurements whose names match, for example -k 'ext4 and not rand'."
    ),
]
Filesystems = Annotated[
    list[str] | None,
    typer.Option("--fs", metavar="NAME[,NAME]", help="Only these filesystems; may be repeated."),
]
BoardNames = Annotated[
    list[str] | None, typer.Option("--board", metavar="NAME[,NAME]", help="Only these boards; may be repeated.")
]
Budget = Annotated[int | None, typer.Option("--budget", metavar="N", help="At most N boots.")]
Storages = Annotated[
    str | None, typer.Option("--storage", metavar="NAME[,NAME]", help="Storage devices (default: the suite's).")
]
Wait = Annotated[str | None, declared(_PLACE["wait"])]
Priority = Annotated[float | None, declared(_PLACE["priority"])]
Wide = Annotated[bool, typer.Option("--wide", help="Show all columns of tables and whole names, however wide.")]
Within = Annotated[
    str | None,
    typer.Option(
        "--within", metavar="RUN|BRANCH", help="Both sides are kernels of this run (last: the newest) or branch."
    ),
]
Page = Annotated[
    Path | None,
    typer.Option("--page", metavar="FILE", callback=output_file, help="Write a self-contained HTML page to FILE."),
]


def check_whole(loaded: LoadedRun) -> None:
    """Raise ResultError, once a run was shown, for measurements that are damaged, and for files that were altered."""
    if loaded.damaged:
        name, why = next(iter(loaded.damaged.items()))
        count = counted(len(loaded.damaged), "damaged measurement")
        others = "; the others are whole" if loaded.measurements else ""
        raise ResultError(f"{count} left out: {name}: {why}", hint=f"restore what you can from a copy{others}")
    if altered := loaded.altered():
        name, why = next(iter(altered.items()))
        more = f" (and {len(altered) - 1} more)" if len(altered) > 1 else ""
        raise ResultError(f"{name} {why}{more}", hint="restore it from a copy; no figure depends on it")


def guest_time_board() -> Path:
    """The environment file of the board that a kernel's developer has without hardware."""
    from fsjoule.host.paths import project_dir

    return project_dir() / "env" / "deterministic.yaml"


def joined(names: list[str] | None) -> str | None:
    """The list of a repeated option that takes commas; None if it was not given."""
    return None if names is None else ",".join(names)


def refuse(why: str, options: Mapping[str, object], *, hint: str | None = None) -> None:
    """Raise ConfigError if one of these options is given: `why` and their names."""
    given = [name for name, value in options.items() if not (value is None or value is False or value == [])]
    if given:
        raise ConfigError(f"{why} {', '.join(given)}", hint=hint)


def write_text(file: Path, text: str) -> None:
    """Write a file that a user has asked for, and make its folder. Raises ConfigError, StorageError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise not_written(f"{file} cannot be written", error, hint="name another file") from error


def replace_text(file: Path, text: str) -> None:
    """Like `write_text`, in one step: who reads the file meanwhile reads the old one, or the new one."""
    from fsjoule.host.files import write_file

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, text.encode())
    except OSError as error:
        raise not_written(f"{file} cannot be written", error, hint="name another file") from error


def progress(line: str) -> None:
    """Print a line on stderr: what a command does meanwhile, or a warning."""
    label, is_warning, text = line.partition(_WARNING)
    if is_warning and not label:
        err.print(_WARNING, style="yellow", end="", soft_wrap=True)
        line = text
    err.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(doing: str, *, in_bytes: bool = False) -> Generator[Watcher]:
    """A bar with the time left on a terminal, a line every 10 s in a log: `3 of 40 runs fetched, 5 min left`."""
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.progress import TransferSpeedColumn as SpeedColumn

    counted = (DownloadColumn(binary_units=True), SpeedColumn()) if in_bytes else (MofNCompleteColumn(),)
    columns = (TextColumn("{task.description}"), BarColumn(), *counted, TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(doing, total=None)
        began_s = said_s = time.monotonic()

        def watch(done: int, of: int) -> None:
            nonlocal said_s
            bar.update(task, completed=done, total=of)
            now_s = time.monotonic()
            if not err.is_terminal and now_s - said_s >= _SAY_EVERY_S:
                said_s = now_s
                left_s = (now_s - began_s) * (of - done) / max(done, 1)
                told = f"{done / _MIB:.0f} of {of / _MIB:.0f} MiB" if in_bytes else f"{done} of {of}"
                progress(f"{told} {doing}, {left_s / 60:.0f} min left")

        yield watch


def print_json(document: object) -> None:
    print(json.dumps(document, indent=2, default=str))  # noqa: T201 - rich would wrap it


def labelled(label: str, style: str, text: str) -> Text:
    """A line of output after a coloured label such as "note"; `PlainConsole` reads no markup."""
    return Text.assemble((label, style), f"  {text}")


class Ending:
    """A user's wish to end. A signal handler may set it at any moment, because unlike an Event it has no lock."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def set(self) -> None:
        """End every wait, now and later."""
        with suppress(BlockingIOError):
            os.write(self._writer, b"\0")

    def wait(self, timeout_s: float) -> bool:
        """Whether the user wants to end, now or within `timeout_s` seconds."""
        return bool(select.select([self._reader], [], [], timeout_s)[0])

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


@contextmanager
def ending() -> Generator[Ending]:
    """Take Ctrl-C, SIGTERM and SIGHUP as the wish to end the body.

    A second Ctrl-C raises KeyboardInterrupt. Ignored signals stay ignored, as Ctrl-C is in a shell's background job.
    """
    ended = Ending()

    def end(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and ended.wait(0.0):
            raise KeyboardInterrupt
        ended.set()

    try:
        with heard(end):
            yield ended
    finally:
        ended.close()
