"""Virtual labs for tests, each in a state directory of its own, and meters at a desk."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from command_line import CommandLine
from meter_desk import Desk, desk

from fsjoule.virtual.lab import services


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty state directory, which this process and all that it starts use."""
    return _use(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def module_state(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """The same for all tests of a module."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield _use(tmp_path_factory.mktemp("state"), monkeypatch)


def _use(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(directory))
    # A coordinator that the developer has at hand is not the test's.
    # Nor is the time at which make began.
    for name in ("LG_COORDINATOR", "LG_PLACE", "LG_ENV", "FSJOULE_SETUP_STARTED"):
        monkeypatch.delenv(name, raising=False)
    return directory


@pytest.fixture(scope="session")
def program() -> Path:
    """The simulator of the meter."""
    return services.simulator()


@pytest.fixture(name="desk")
def _desk() -> Generator[Desk]:
    with desk() as empty:
        yield empty


@pytest.fixture
def fsjoule(fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch, desk: Desk) -> CommandLine:
    """The command line, with the meter of the desk."""
    monkeypatch.setenv("FSJOULE_METER", str(desk.stream))
    return fsjoule
