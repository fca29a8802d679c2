"""The emulated Orange Pi PC with a network, whose own U-Boot writes its card by TFTP."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

from lab_board import lab_board

from fsjoule import images
from fsjoule.host import process
from fsjoule.lab import BoardStrategy
from fsjoule.lab.flashers import NamedCard
from fsjoule.lab.shell import LabgridShell
from fsjoule.model import MIB, ImageFacts
from fsjoule.virtual.lab.files import LabPaths

ENVIRONMENT: Final = Path(__file__).parents[2] / "env" / "virtual-orangepi-network.yaml"
NAME: Final = "orangepi-network"
LOADER_BYTES: Final = 4 * MIB


class TftpBoard:
    """A board with its strategy; `flash` and `boot` raise what the strategy raises."""

    def __init__(self, strategy: BoardStrategy) -> None:
        self.strategy = strategy
        self.paths = LabPaths.of(NAME)

    @property
    def flasher(self) -> Any:
        strategy: Any = self.strategy
        return strategy.flasher

    def flash(self, image: Path) -> None:
        self.strategy.forget_card()
        self.strategy.card = NamedCard(image, ImageFacts("", image.name, "", str(image), {}, {}))
        self.strategy.transition("flashed")

    def boot(self) -> str:
        """Start the board from its card. Returns the kernel's release after the login."""
        self.strategy.transition("booted")
        strategy: Any = self.strategy
        shell = LabgridShell(strategy.shell, strategy.recorder, strategy.lose, strategy.look)
        return shell.run(["uname", "-r"], timeout_s=120).stdout.strip()

    def off(self) -> None:
        self.strategy.transition("off")

    def holds(self, image: Path) -> bool:
        same = ["cmp", "--silent", f"--bytes={image.stat().st_size}", image, self.paths.card]
        return process.run(same, timeout_s=120, check=False).returncode == 0

    def fetched(self) -> int:
        """Pieces that have been fetched since the lab is up."""
        return (self.paths.logs / "console.log").read_text(errors="replace").count("Bytes transferred")

    def cut_power(self) -> None:
        record = self.paths.read()
        assert record is not None
        request = urllib.request.Request(urljoin(record.boards[0].status_url, "/outlet/0"), b"0", method="PUT")
        with urllib.request.urlopen(request, timeout=30):
            pass

    @contextmanager
    def power_cut_after(self, pieces: int, *, timeout_s: float) -> Generator[None]:
        """Cut the power as soon as so many more pieces have been fetched."""
        done, wanted = threading.Event(), self.fetched() + pieces

        def cut() -> None:
            deadline = time.monotonic() + timeout_s
            while not done.is_set() and time.monotonic() < deadline:
                if self.fetched() >= wanted:
                    self.cut_power()
                    return
                time.sleep(0.05)

        thread = threading.Thread(target=cut)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def loader_of(kernel: str) -> bytes:
    """The start of a card: partition table, SPL and U-Boot."""
    card = images.build_card(kernel, "ext4", recipe="orangepi-qemu")
    with card.path.open("rb") as file:
        return file.read(LOADER_BYTES)


@contextmanager
def tftp_board(loader: bytes, size_mib: int) -> Generator[TftpBoard]:
    """A lab, its place acquired, and its board with a card that has only its boot loader, as if written by hand."""
    paths = LabPaths.of(NAME)
    paths.root.mkdir(parents=True)
    paths.card.write_bytes(loader)
    process.run(["truncate", f"--size={size_mib}M", paths.card], timeout_s=30)
    with lab_board(NAME, ENVIRONMENT, "orangepi-network") as strategy:
        yield TftpBoard(strategy)
