"""Every module leaves the process as it found it, so that any order of the modules gives the same result."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator

import pytest

from fsjoule.host.messages import lines_to


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
