"""What a virtual lab has in the system: processes, links to ttys and the card. A lab that has ended has nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

from fsjoule.virtual.lab import lab

_LIMIT_S = 40.0


def processes(state: Path) -> list[str]:
    """Command lines of living processes that belong to labs of this state directory: it is in their environment."""
    needle = f"FSJOULE_STATE_DIR={state}\0".encode()
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            inherits = needle in (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        # sshd and ssh hide or lose their environment; their command line names a file of the lab. A zombie has none.
        if command and (inherits or f"{state}/labs" in command):
            found.append(f"{entry.name} {command}")
    return found


def assert_nothing_left(state: Path, devices: Path) -> None:
    """Wait until nothing is left of the labs of a state directory; fail if something stays."""
    deadline = time.monotonic() + _LIMIT_S
    while left := [*processes(state), *([str(devices)] if devices.exists() else [])]:
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.1)


def assert_free() -> None:
    """The place of the lab `virtual` is nobody's, and its board is off."""
    status = lab.status("virtual")
    assert status.holder is None
    assert status.board is not None
    assert status.board["power"] == "off"
