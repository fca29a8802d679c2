"""A place of a real coordinator and a real exporter, for programs that hold it one after the other."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bare_coordinator import LIMIT_S, BareCoordinator, bare_coordinator

from fsjoule.errors import LabError, PlaceHeldError
from fsjoule.host import process
from fsjoule.lab import lease
from fsjoule.lab.coordinator import connected
from fsjoule.virtual.lab.services import beside_python

_EXPORTED = "bench:\n  NetworkService:\n    address: 127.0.0.1\n    username: root\n"


@pytest.fixture(name="coordinator")
def _coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[BareCoordinator]:
    """Has the place `bench`, for which nobody exports anything yet."""
    with bare_coordinator(tmp_path, monkeypatch.setenv) as coordinator:
        coordinator.make("bench")
        coordinator.client("add-match", "*/bench/*")
        yield coordinator


@contextmanager
def exporter(folder: Path) -> Generator[None]:
    file = folder / "exporter.yaml"
    file.write_text(_EXPORTED)
    command = [beside_python("labgrid-exporter"), "--name", "bench", "--hostname", "127.0.0.1", file]
    program = process.start(command, log=folder / "exporter.log")
    try:
        yield
    finally:
        process.stop(program, timeout_s=30)


def _resources() -> int:
    with connected() as coordinator:
        return len(coordinator.place("bench").acquired_resources)


@pytest.mark.usefixtures("coordinator")
def test_a_closed_connection_has_no_thread_left() -> None:
    """A daemon thread that Python stops while it holds gRPC's lock keeps the program from exiting."""
    before = set(threading.enumerate())
    for _ in range(20):
        with connected() as coordinator:
            coordinator.place("bench")
        assert set(threading.enumerate()) <= before


def test_an_acquisition_that_was_cut_off_is_completed_when_the_exporter_is_there_again(
    coordinator: BareCoordinator, tmp_path: Path
) -> None:
    # labgrid lets a place be acquired without its resources: so it is left when its exporter dies meanwhile.
    coordinator.client("acquire", "--allow-unmatched")
    assert (lease.is_ours("bench"), _resources()) == (True, 0)
    with pytest.raises(LabError, match="lacks a resource"):
        lease.complete("bench", wait_s=0)
    coordinator.client("acquire", "--allow-unmatched")
    with exporter(tmp_path):
        lease.complete("bench", wait_s=LIMIT_S)
        assert (lease.is_ours("bench"), _resources()) == (True, 1)
        lease.release("bench")


def test_somebody_who_was_faster_keeps_the_place(coordinator: BareCoordinator, tmp_path: Path) -> None:
    coordinator.client("acquire", "--allow-unmatched", user="ada")
    lease.complete("bench", wait_s=LIMIT_S)
    assert not lease.is_ours("bench")
    with exporter(tmp_path), pytest.raises(PlaceHeldError, match="otherhost/ada"):
        lease.acquire("bench", wait_s=0)
