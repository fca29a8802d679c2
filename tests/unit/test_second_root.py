"""An image's root on the second root partition of a board, whose shell is this computer's and whose card is a file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from busybox import path_with

from fsjoule.errors import BoardError
from fsjoule.lab.flashers import Partition
from fsjoule.lab.second_slot import Upload, bring_root, read_root
from fsjoule.model import MIB
from fsjoule.ports import CommandResult
from fsjoule.testing import FakeShell

ROOT, SECOND = (Partition(number, start * 2048, 8 * 2048, bootable=False) for number, start in ((2, 1), (4, 12)))
# A block map's blocks of 4 KiB: the first and the sixth MiB of the root, after a MiB of the boot partition.
BLOCK_MAP = "<BlockSize> 4096 </BlockSize><Range> 0-300 </Range><Range> 1600-1610 </Range>"


def _image(folder: Path) -> Path:
    image = folder / "card.img"
    with image.open("wb") as file:
        file.truncate(20 * MIB)
        for place in (MIB + 5000, 6 * MIB + 300_000):
            file.seek(place)
            file.write(os.urandom(10_000))
    image.with_name("card.img.bmap").write_text(BLOCK_MAP)
    return image


@dataclass
class _Board:
    """A board whose second root partition is a file, full of another filesystem's bytes. It counts uploads."""

    folder: Path
    mounts: str = "/dev/root / ext4 rw 0 0"
    place: tuple[int, ...] = (SECOND.start, SECOND.size)
    uploads: list[int] = field(default_factory=list[int])
    damage: Callable[[bytes], bytes] = bytes

    def __post_init__(self) -> None:
        self.device = self.folder / "card4"
        self.device.write_bytes(b"\xaa" * (8 * MIB))
        sysfs = self.folder / "sys" / "card4"
        sysfs.mkdir(parents=True)
        for name, value in zip(("start", "size"), self.place, strict=False):
            (sysfs / name).write_text(f"{value}\n")
        (self.folder / "mounts").write_text(self.mounts.replace("SECOND", "/dev/card4") + "\n")
        self.path = path_with(self.folder / "tools", "dd", "sha256sum", "gzip", "cat")
        self.shell = FakeShell(self._run)

    def _run(self, argv: tuple[str, ...]) -> CommandResult:
        here = {
            "/dev/card4": str(self.device),
            "/sys/class/block": f"{self.folder}/sys",
            "/proc/mounts /proc/swaps /proc/cmdline": f"{self.folder}/mounts",
            "/proc/sys/vm/drop_caches": "/dev/null",
            "/tmp/fsjoule-root.gz": f"{self.folder}/packed",
        }
        script = argv[-1]
        for there, own in here.items():
            script = script.replace(there, own)
        environment = {**os.environ, "PATH": self.path}
        done = subprocess.run(
            ["dash", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        return CommandResult(argv, done.returncode, done.stdout + done.stderr)

    def error(self, what: str) -> BoardError:
        return BoardError(f"board {what}")

    def connect(self) -> Upload:
        def upload(_path: str, content: bytes) -> None:
            self.uploads.append(len(content))
            (self.folder / "packed").write_bytes(self.damage(content))

        return upload

    def bring(self, image: Path) -> int:
        root = read_root(image, ROOT, [ROOT, SECOND])
        assert root is not None
        return bring_root(self, self.shell, "card", root, self.connect)


@pytest.fixture
def board(tmp_path: Path) -> _Board:
    return _Board(tmp_path)


def test_the_mapped_parts_of_a_root_come_onto_the_second_root_partition(board: _Board, tmp_path: Path) -> None:
    image = _image(tmp_path)
    assert board.bring(image) == 2
    there, root = board.device.read_bytes(), image.read_bytes()[MIB : 9 * MIB]
    for number in range(8):
        wanted = {0: root[:MIB], 5: root[5 * MIB : 6 * MIB]}.get(number, b"\xaa" * MIB)
        assert there[number * MIB : (number + 1) * MIB] == wanted, number


def test_only_what_differs_is_sent_again(board: _Board, tmp_path: Path) -> None:
    image = _image(tmp_path)
    board.bring(image)
    assert board.bring(image) == 0
    with board.device.open("r+b") as file:
        file.seek(5 * MIB + 77)
        file.write(b"journal")
    assert board.bring(image) == 1
    assert len(board.uploads) == 2


def test_a_root_that_arrives_damaged_is_named(board: _Board, tmp_path: Path) -> None:
    board.damage = lambda content: content[:-2000]
    with pytest.raises(BoardError, match=r"has other bytes on .*card4 than were written, \d MiB of 2"):
        board.bring(_image(tmp_path))


@pytest.mark.parametrize(
    ("mounts", "place", "says"),
    [
        ("SECOND / ext4 rw 0 0", (SECOND.start, SECOND.size), "in use, its second root partition: nothing was written"),
        (
            "/dev/root / ext4 rw 0 0\nquiet root=SECOND rw",
            (SECOND.start, SECOND.size),
            "in use, its second root partition",
        ),
        ("SECOND none swap", (SECOND.start, SECOND.size), "in use, its second root partition: nothing was written"),
        (
            "",
            (SECOND.start + 8, SECOND.size),
            "at sector 24584 with 16384 sectors, but the image's second root begins at 24576",
        ),
        (
            "",
            (SECOND.start, 4096),
            "at sector 24576 with 4096 sectors, but the image's second root begins at 24576 with",
        ),
        (
            "",
            (),
            "board has no /dev/card4, but the image's second root begins at 24576 with 16384: nothing was written",
        ),
    ],
)
def test_a_partition_that_is_used_or_elsewhere_is_not_written(
    tmp_path: Path, mounts: str, place: tuple[int, ...], says: str
) -> None:
    board = _Board(tmp_path, mounts, place)
    with pytest.raises(BoardError, match=says) as raised:
        board.bring(_image(tmp_path))
    assert not raised.value.transient
    assert not board.uploads
    assert board.device.read_bytes() == b"\xaa" * (8 * MIB)


def test_an_image_without_a_second_root_partition_of_the_roots_size_has_none(tmp_path: Path) -> None:
    image = _image(tmp_path)
    assert read_root(image, ROOT, [ROOT, replace(SECOND, number=3)]) is None
    assert read_root(image, ROOT, [ROOT, replace(SECOND, size=7 * 2048)]) is None


def test_a_root_has_one_digest_and_another_one_with_another_byte(tmp_path: Path) -> None:
    image = _image(tmp_path)

    def digest() -> str:
        root = read_root(image, ROOT, [ROOT, SECOND])
        assert root is not None
        return root.digest

    first = digest()
    assert digest() == first
    with image.open("r+b") as file:
        file.seek(MIB)
        file.write(b"other")
    assert digest() != first
