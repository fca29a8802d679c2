"""`fsjoule bench`: the main job, for which pytest runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from textwrap import indent, wrap
from typing import Annotated, Final

import typer

from fsjoule.host.paths import project_dir
from fsjoule.runs.options import FLAGS, OPTIONS

_INDENT: Final = " " * 6
_OWN: Final = (
    ("--lg-env FILE", "the board: an environment file of labgrid's, for example env/virtual.yaml"),
    ("-k WORDS", "only measurements whose names match, for example -k 'ext4 and read'"),
    ("--collect-only", "list the measurements without a board"),
)
_ALL: Final[tuple[tuple[str, str], ...]] = (
    *_OWN,
    *((f"{name} {metavar}", told) for name, (_, metavar, told) in OPTIONS.items()),
    *((name, told) for name, (_, told) in FLAGS.items()),
)

app = typer.Typer()


@app.command(
    "bench",
    context_settings={"ignore_unknown_options": True},
    epilog="\b\n" + "\n".join(f"  {name}\n{indent(chr(10).join(wrap(told, 72)), _INDENT)}" for name, told in _ALL),
)
def bench(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="OPTIONS", help="See below; all others of pytest's.")
    ] = None,
) -> None:
    """Measure filesystems on a board: throughput, energy and more of each, in a run folder with a report.

    It is `pytest tests/bench` with the same options and exit codes. 0: all valid. 1: a measurement is invalid. 2: wrong
    input. 4: the lab.

    Example: fsjoule bench --lg-env env/virtual.yaml --fs ext4,btrfs --suite quick --repeat 3
    """
    sys.stdout.flush()
    program = bench_program(words or ())
    # The same process: signals, exit code and terminal are pytest's.
    os.execv(program[0], program)  # noqa: S606


def bench_program(words: Iterable[str]) -> list[str]:
    """The program that is a bench with these options, and its arguments."""
    return [sys.executable, "-m", "pytest", str(project_dir() / "tests" / "bench"), *words]
