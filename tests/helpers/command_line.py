"""`fsjoule` as its user has it, in this process (starting Python takes seconds) or in one of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from interruptible import interruptible

from fsjoule.cli import main

_LIMIT_S = 120.0
PROGRAM = Path(sys.executable).with_name("fsjoule")


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


CommandLine = Callable[..., Done]


def command_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *, columns: int = 160
) -> CommandLine:
    """A function that runs a command in this process, to its end, on a terminal so wide."""

    def run(*words: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["fsjoule", *map(str, words)])
        # What rich would take for a terminal's width.
        monkeypatch.setenv("COLUMNS", str(columns))
        code = 0
        try:
            main()
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        captured = capfd.readouterr()
        return Done(code, captured.out, captured.err)

    return run


def started(closing: ExitStack, *words: object) -> subprocess.Popen[str]:
    """A command in a process of its own, which is ended with `closing` at the latest."""
    command = subprocess.Popen(
        interruptible(PROGRAM, *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    closing.enter_context(command)  # waits for it
    closing.callback(command.kill)
    return command


def finished(command: subprocess.Popen[str]) -> Done:
    """What a command that was started left behind, once it has ended."""
    try:
        out, err = command.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        command.kill()  # or it would disturb the tests that come
        command.communicate()
        raise
    return Done(command.returncode, out, err)
