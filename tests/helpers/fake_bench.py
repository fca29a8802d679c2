"""What a board behind fakes of the ports says of itself, and what it answers when all goes well."""

from __future__ import annotations

from pathlib import Path

from fsjoule.bench.onboard.marks import THREADS
from fsjoule.model import MIB, BoardFacts, BoardProfile, ImageFacts
from fsjoule.ports import CommandResult

FIO_JSON = (Path(__file__).parents[1] / "unit" / "data" / "fio-3.33-write.json").read_bytes()
COUNTERS = b"cpu  100 0 50 800 20 0 5 0 0 0\n 10 0 80 5 20 0 160 9 0 30 14 0 0 0 0 2 1\n"
AFTER = b"cpu  150 0 80 900 30 0 10 0 0 0\n 14 0 112 5 30 0 16544 9 0 75 14 1 0 8 0 5 1\n"
PROFILE = BoardProfile("fake", "imx6ul", True, "/dev/ttymxc1", "mmcblk1", "/dev/mmcblk1p3", False, 1.0)
FACTS = BoardFacts("fake", "m", "6.1", "v", "c", 1, 512 * MIB, "card", 1024 * MIB, "bus", "ext4")
IMAGE = ImageFacts("imx6ul", "6.1", "p", "0" * 64, {}, {})


def answer(argv: tuple[str, ...]) -> CommandResult:
    """A board on which everything goes well."""
    output = COUNTERS.decode() if argv[:2] == ("cat", "/proc/stat") else ""
    output = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 1 0 0 20 0 1 0 0 0 0\n" if argv == THREADS else output
    output = "4096 1000 900\n" if argv[:2] == ("stat", "-f") else output
    return CommandResult(argv, 0, output)
