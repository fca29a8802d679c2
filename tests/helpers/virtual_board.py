"""A virtual board program for tests, and who stands around it: someone at the console, the meter at its wires."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
import tty
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import requests
from waiting import wait_for

from fsjoule.host import process
from fsjoule.virtual.board.config import BoardConfig, BoardReady, CardConfig, WiresConfig
from fsjoule.virtual.board.power import FEED_CAPACITY, FEED_HEADER, FEED_MAGIC, FEED_RECORDS_OFFSET

PROMPT = "root@fsjoule:~# "
# Generous: the machine may be busy with much else.
BOOT_TIMEOUT_S = 180.0
COMMAND_TIMEOUT_S = 120.0

_FEED_RECORD = np.dtype([("time_ns", "<i8"), ("volts", "<f8"), ("amperes", "<f8")])


def board_config(folder: Path, name: str = "test") -> BoardConfig:
    """A board whose files are all in `folder`."""
    return BoardConfig(
        name=name,
        log_dir=folder / "logs",
        ready_file=folder / "ready.json",
        feed=folder / "power.feed",
        card=CardConfig(image=folder / "card.img", control_socket=folder / "mux.sock"),
        wires=WiresConfig(folder / "console", folder / "marks", folder / "pin"),
    )


class BoardProgram:
    """`python -m fsjoule.virtual.board.program` with its own config; ended with the block at the latest."""

    def __init__(self, config: BoardConfig) -> None:
        self.config = config
        config.ready_file.parent.mkdir(parents=True, exist_ok=True)
        self.log = config.ready_file.with_name("board.log")
        toml = config.ready_file.with_name("board.toml")
        toml.write_text(config.to_toml())
        self.process = process.start([sys.executable, "-m", "fsjoule.virtual.board.program", toml], log=self.log)
        self.ready = self._wait_ready()

    def _wait_ready(self) -> BoardReady:
        found: list[BoardReady] = []

        def is_ready() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            ready = BoardReady.read(self.config.ready_file)
            # A program that was killed has left its own.
            found.extend([ready] if ready is not None and ready.pid == self.process.pid else [])
            return bool(found)

        wait_for(is_ready, "the board program is ready")
        return found[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process.stop(self.process)

    @property
    def outlet(self) -> str:
        return self.ready.outlet_url.format(index=0)

    @property
    def base_url(self) -> str:
        return self.ready.status_url.removesuffix("/status")

    def power(self, on: bool) -> None:
        requests.put(self.outlet, data=b"1" if on else b"0", timeout=90).raise_for_status()

    def seed(self, seed: int | str) -> None:
        requests.put(f"{self.base_url}/seed", data=str(seed), timeout=30).raise_for_status()

    def status(self) -> dict[str, Any]:
        return requests.get(self.ready.status_url, timeout=30).json()

    def wait_state(self, state: str) -> None:
        wait_for(lambda: self.status()["state"] == state, f"state {state}")

    def mux(self, mode: str) -> subprocess.CompletedProcess[bytes]:
        argv = [sys.executable, "-m", "fsjoule.virtual.lab.usbsdmux", self.ready.mux_control, mode]
        return process.run(argv, timeout_s=90, check=False)

    def console(self) -> ConsoleUser:
        return ConsoleUser(self.config.wires.console)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


class ConsoleUser:
    """Somebody at the console's pty: waits for texts and types."""

    def __init__(self, tty_path: Path) -> None:
        self._fd = os.open(tty_path, os.O_RDWR | os.O_NOCTTY)
        self.seen = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def expect(self, text: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """What came up to and with `text`."""
        deadline = time.monotonic() + timeout_s
        while text not in self.seen:
            remaining_s = deadline - time.monotonic()
            assert remaining_s > 0, f"no {text!r} within {timeout_s} s; the console says: {self.seen[-2000:]}"
            if select.select([self._fd], [], [], remaining_s)[0]:
                self.seen += os.read(self._fd, 65536).decode(errors="replace").replace("\r", "")
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def type(self, line: str) -> None:
        os.write(self._fd, line.encode() + b"\n")

    def login(self, timeout_s: float = BOOT_TIMEOUT_S) -> None:
        self.expect("login: ", timeout_s)
        self.type("root")
        self.expect(PROMPT)

    def run(self, command: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Run a command; returns what came up until its end, the echo of the command included."""
        # The quotes keep the terminal's echo from looking like the end.
        self.type(f"{command}; echo do''ne")
        output = self.expect("\ndone\n", timeout_s)
        self.expect(PROMPT)
        return output.removesuffix("\ndone\n")


class MeterTty:
    """The meter's end of the mark wire: a pty with a link to it, that can go away and come back."""

    def __init__(self, link: Path) -> None:
        self._master, slave = os.openpty()
        tty.setraw(slave)
        link.unlink(missing_ok=True)
        link.symlink_to(os.ttyname(slave))
        self._link = link
        os.close(slave)
        self.seen = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._master)
        self._link.unlink(missing_ok=True)

    def expect(self, text: bytes, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while text not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} within {timeout_s} s; the wire says: {self.seen!r}"
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self._master, 4096)
                except OSError:
                    # No writer has it open yet.
                    time.sleep(0.02)
        self.seen = self.seen.partition(text)[2]


@dataclass(frozen=True)
class FeedRecords:
    """The newest records of a power feed, oldest first."""

    time_ns: npt.NDArray[np.int64]
    volts: npt.NDArray[np.float64]
    amperes: npt.NDArray[np.float64]

    def mean_watts(self, start_ns: int, stop_ns: int) -> float:
        """Weighted by the length of each record's interval, over the records that end within a span."""
        length = np.diff(self.time_ns, prepend=self.time_ns[0])
        chosen = (self.time_ns > start_ns) & (self.time_ns <= stop_ns)
        return float(np.average((self.volts * self.amperes)[chosen], weights=length[chosen]))


def read_feed(path: Path) -> FeedRecords:
    content = path.read_bytes()
    magic, capacity, _, head = FEED_HEADER.unpack_from(content)
    assert (magic, capacity) == (FEED_MAGIC, FEED_CAPACITY)
    ring = np.frombuffer(content, _FEED_RECORD, FEED_CAPACITY, FEED_RECORDS_OFFSET)
    # The oldest few may be overwritten while the file is read.
    order = np.arange(max(0, head - FEED_CAPACITY + 1000), head) % FEED_CAPACITY
    records = ring[order]
    return FeedRecords(records["time_ns"], records["volts"], records["amperes"])
