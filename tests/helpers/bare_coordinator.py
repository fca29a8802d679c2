"""labgrid's real coordinator with places that have no board."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fsjoule.errors import InfrastructureError
from fsjoule.host import process
from fsjoule.lab.coordinator import connected
from fsjoule.virtual.lab.services import beside_python

LIMIT_S = 120.0


@dataclass
class BareCoordinator:
    """The coordinator at `address`, which LG_COORDINATOR names already; its places are files in `folder`."""

    address: str
    folder: Path
    _program: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        argv = [beside_python("labgrid-coordinator"), "--listen", self.address]
        self._program = process.start(argv, log=self.folder / "coordinator.log", cwd=self.folder)
        within(lambda: self.reservations() == [])

    def stop(self) -> None:
        if self._program is not None:
            process.stop(self._program, timeout_s=LIMIT_S)

    def client(self, *arguments: str, place: str = "bench", user: str = "") -> str:
        variables: dict[str, str | None] = {"LG_HOSTNAME": "otherhost", "LG_USERNAME": user} if user else {}
        argv = [beside_python("labgrid-client"), "-p", place, *arguments]
        return process.run(argv, timeout_s=LIMIT_S, env=variables).stdout.decode()

    def make(self, place: str, **tags: str) -> None:
        self.client("create", place=place)
        if tags:
            self.client("set-tags", *(f"{key}={value}" for key, value in tags.items()), place=place)

    def holders(self) -> Mapping[str, str | None]:
        with connected() as coordinator:
            return {name: place.acquired for name, place in coordinator.places.items()}

    def reservations(self) -> list[str]:
        """The state of each reservation, the oldest first."""
        with connected() as coordinator:
            found = sorted(coordinator.reservations(), key=lambda each: each.created)
        return [each.state.name for each in found]


@contextmanager
def bare_coordinator(folder: Path, set_variable: Callable[[str, str], None]) -> Generator[BareCoordinator]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    set_variable("LG_COORDINATOR", address)
    coordinator = BareCoordinator(address, folder)
    try:
        coordinator.start()
        yield coordinator
    finally:
        coordinator.stop()


def within(done: Callable[[], bool], why: Callable[[], object] = lambda: "") -> None:
    """Return when `done`; a coordinator that is not up yet is awaited, too."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            if done():
                return
        except InfrastructureError:
            if time.monotonic() >= deadline:
                raise
        assert time.monotonic() < deadline, why()
        time.sleep(0.1)
