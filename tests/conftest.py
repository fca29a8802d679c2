"""Every module leaves the process as it found it, so that any order of the modules gives the same result."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fsjoule.host.messages import lines_to

if TYPE_CHECKING:
    from command_line import CommandLine


@pytest.fixture(autouse=True, scope="module")
def _leaves_the_process_as_it_was() -> Generator[None]:
    before = _process()
    yield
    assert _process() == before


@pytest.fixture
def said() -> Generator[list[str]]:
    """The lines that a user would see of the test, as they come."""
    lines: list[str] = []
    with lines_to(lines.append):
        yield lines


@pytest.fixture
def fsjoule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line, in a folder of the test's own."""
    from command_line import command_line  # noqa: PLC0415 - few tests need all that it imports

    monkeypatch.chdir(tmp_path)
    return command_line(monkeypatch, capfd)


def _process() -> dict[str, object]:
    """What tests share because they share a process, and what one of them may leave to the next by mistake."""
    manager = sys.modules.get("labgrid.resource.remote")
    return {
        "folder": os.getcwd(),  # noqa: PTH109 - the text is compared
        "environment": {name: text for name, text in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
        "signals": {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)},
        "labgrid's coordinator": manager is not None
        and manager.RemotePlaceManager in manager.ResourceManager.instances,
    }
