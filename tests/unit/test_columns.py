"""A terminal of 80 columns: the help of every command, and the tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import CommandLine, command_line
from compared_runs import write_kernels

from fsjoule import cli

WIDTH = 80
TABLES = (
    "show run",
    "compare 6.1 6.12 --within run",
    "gate --baseline 6.1 --candidate 6.12 --within run",
    "advise run --profile logger --kernel 6.1",
    "suites list",
    "suites show elc2015",
    "choices",
    "index series --index index.sqlite",
    "image list",
    "board list",
)


def helps(command: Any, *words: str) -> Iterator[tuple[str, str]]:
    """The help of a command, and of all below it."""
    context = command.make_context(" ".join(words), [], resilient_parsing=True)
    yield " ".join(words), command.get_help(context)
    for name in getattr(command, "commands", {}):
        yield from helps(command.get_command(context, name), *words, name)


def test_help_fits_and_has_no_words_of_the_programming_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    told = dict(helps(typer.main.get_command(cli.app_of("")), "fsjoule"))
    assert {"fsjoule bench", "fsjoule index series", "fsjoule meter calibrate"} < set(told)
    for command, text in told.items():
        assert [line for line in text.splitlines() if len(line) > WIDTH] == [], command
        assert not re.search(r"<(bool|str|int|float|path|list)\b", text, re.IGNORECASE), command
    assert "--metric NAME" in told["fsjoule compare"]
    assert "--index URL" in told["fsjoule compare"]
    assert "--by time|kernel" in told["fsjoule trend"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of two kernels on a board with a long name."""
    here = tmp_path_factory.mktemp("columns")
    board = "a-board-with-a-very-long-name-of-the-second-batch"
    write_kernels(here, speeds={"6.1": 1.0, "6.12": 0.9}, board=board).rename(here / "run")
    return here


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.chdir(folder)
    narrow = command_line(monkeypatch, capfd, columns=WIDTH)
    assert narrow("index", "import", "run", "--index", "index.sqlite").code == 0
    return narrow


@pytest.mark.parametrize("typed", TABLES)
def test_tables_fit(run: CommandLine, typed: str) -> None:
    done = run(*typed.split())
    assert done.code in {0, 1}, done.err
    # A terminal wraps sentences and commands; a row of a table has gaps.
    rows = [line.rstrip() for line in done.out.splitlines() if re.search(r"\S {2,}\S|──", line)]
    assert rows, done.out
    assert [row for row in rows if len(row) > WIDTH] == []
