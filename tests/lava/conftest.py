"""One LAVA server for all tests here, with a virtual lab's place as its device."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from lava_place import LavaPlace
from lava_server import DEVICE, SHELL_SECRETS, WORKER, Server, server

from fsjoule.virtual.lab import lab


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("FSJOULE_STATE_DIR", str(folder))
        for name in ("LG_COORDINATOR", "LG_PLACE", "LG_ENV"):
            monkeypatch.delenv(name, raising=False)
        yield folder


@pytest.fixture(scope="session")
def place(state: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[LavaPlace]:
    handle = lab.up(DEVICE, owner_pid=os.getpid())
    variables = {"FSJOULE_STATE_DIR": str(state), **SHELL_SECRETS}
    yield LavaPlace(DEVICE, tmp_path_factory.mktemp("lava"), handle.environment | variables)
    assert lab.down(DEVICE)


@pytest.fixture(scope="session")
def lava(place: LavaPlace, tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """The server, with the place as a device."""
    with server(tmp_path_factory.mktemp("server")) as running:
        told = ("--worker", WORKER, "--server", running.url)
        running.add_device(DEVICE, DEVICE, place.device("--template", "--wait", "2m", *told))
        yield running
