"""A meter at a desk: the real simulator on its terminals, ser2net before it if one likes, and ways to disturb it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import tty
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from meter_process import renewed
from waiting import wait_for

from fsjoule.host import process
from fsjoule.host.messages import lines_to
from fsjoule.meter.links.streams import holders
from fsjoule.virtual.lab import services
from fsjoule.virtual.lab.services import free_ports, listens

LIMIT_S = 120.0
SPEED = 1_000_000


@dataclass
class Desk:
    """A folder with the meter's terminals, and what runs around them."""

    devices: Path
    closing: ExitStack
    port: int = field(default_factory=lambda: free_ports(1)[0])

    @property
    def stream(self) -> Path:
        return self.devices / "meter"

    @property
    def marks(self) -> Path:
        return self.devices / "marks"

    def start_meter(self, *options: str, load: str = "5.0,0.25") -> subprocess.Popen[bytes]:
        """A meter with a constant load of volts and amperes, or with the feed that the options name."""
        source = () if "--feed" in options else ("--load", load)
        links = ("--stream-link", str(self.stream), "--marks-link", str(self.marks))
        there = renewed(self.stream, self.marks)
        # Not to the output that a test may read as a command's JSON.
        with lines_to(partial(print, file=sys.stderr)):
            built = services.simulator()
        simulator = process.start([built, *source, *links, *options])
        self.closing.callback(process.stop, simulator)
        wait_for(there, "no meter")
        return simulator

    def start_nothing(self) -> int:
        """A terminal with nobody behind it. Returns the descriptor of its other side."""
        master, slave = os.openpty()
        self.closing.callback(os.close, master)
        tty.setraw(slave)
        self.stream.symlink_to(os.ttyname(slave))
        os.close(slave)  # it would count as a second reader
        return master

    def start_ser2net(self, *, telnet: bool = True) -> subprocess.Popen[bytes]:
        """As labgrid's exporter starts it, or with a raw port."""
        layer = "telnet(rfc2217,mode=server)," if telnet else ""
        connector = f"serialdev(nouucplock=true),{self.stream},{SPEED}n81,local"
        lines = [f"connection: &con01#  accepter: {layer}tcp,127.0.0.1,{self.port}", f"  connector: {connector}"]
        lines += ["  options:", "    max-connections: 10"]
        ser2net = process.start(["ser2net", "-d", "-n", *(word for line in lines for word in ("-Y", line))])
        self.closing.callback(process.stop, ser2net)
        wait_for(lambda: listens(self.port), "no ser2net")
        return ser2net

    def thief(self, *, greedy: bool = True) -> subprocess.Popen[bytes]:
        """Somebody else who reads the meter's terminal: always, or every other tenth of a second."""
        often = f"exec cat {self.stream}" if greedy else f"while :; do timeout 0.1 cat {self.stream}; sleep 0.1; done"
        # As terminal programs set it; else a read that finds nothing is an end of file to cat.
        cat = process.start(["sh", "-c", f"stty -F {self.stream} min 1; {often}"])
        self.closing.callback(process.stop, cat)
        wait_for(lambda: "cat (" in str([*map(str, holders(str(self.stream)))]), "cat does not open it")
        return cat

    def mark(self, text: str) -> None:
        with self.marks.open("wb", buffering=0) as marks:
            marks.write(text.encode() + b"\n")

    @contextmanager
    def marking(self) -> Generator[None]:
        """A board that sends a mark every now and then."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(0.3):
                self.mark("S1")

        thread = threading.Thread(target=run)
        thread.start()
        yield
        ended.set()
        thread.join()


@contextmanager
def desk() -> Generator[Desk]:
    """An empty desk; whatever was put on it is cleared away at the end."""
    devices = Path(tempfile.mkdtemp(prefix="fsjoule-test-", dir="/dev/shm"))
    with ExitStack() as closing:
        closing.callback(shutil.rmtree, devices)
        yield Desk(devices, closing)
