"""The check before a disk is written: loop devices that pass for USB disks, and the real disks of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
from unprivileged import NO_POWERS

from fsjoule.host import process
from fsjoule.lab.disk_program import objection
from fsjoule.lab.disks import BoardsDisk, look
from fsjoule.model import MIB

BOARDS = BoardsDisk(simulated=False)
FREE = ""
# Writes a disk and reads it back, as the exporter does with a USB disk.
WRITER = """\
import json, sys
from fsjoule.lab.disk_program import ByteRange, ImageStream, compare, look, write
disk, descriptor = look(sys.argv[1])
written = write(descriptor, ImageStream(sys.argv[2]), [ByteRange(0, -1)], "sha256", disk)
compare(descriptor, written)
print(json.dumps([each.length for each in written]))
"""


@dataclass(frozen=True)
class _Resource:
    """A labgrid resource of this computer."""

    path: str

    def wrap_command(self, command: list[str]) -> list[str]:
        return command


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image of 64 MiB with a partition of 32 MiB."""
    image = tmp_path / "card.img"
    image.write_bytes(bytes(64 * MIB))
    process.run(["sfdisk", image], timeout_s=30, input_bytes=b"start=2048, size=65536\n")
    return image


@pytest.fixture
def device(image: Path) -> Generator[Path]:
    """A loop device with the image, as a card in a reader. The kernel detaches it when nothing has it open."""
    made = process.run(["losetup", "--find", "--show", image], timeout_s=30)
    device = Path(made.stdout.decode().strip())
    try:
        opened = os.open(device, os.O_RDONLY)
    finally:
        process.run(["losetup", "--detach", device], timeout_s=30)
    try:
        process.run(["partx", "--add", device], timeout_s=30)
        yield device
        process.run(["partx", "--delete", device], timeout_s=30, check=False)
    finally:
        os.close(opened)


def _objection(path: Path, boards: BoardsDisk = BOARDS, image_bytes: int = MIB) -> str:
    return objection(asdict(replace(look(_Resource(str(path))), bus="usb")), asdict(boards), image_bytes)


def test_a_disk_that_is_free_may_be_written_if_it_is_at_usb(device: Path) -> None:
    assert _objection(device) == FREE
    disk = asdict(look(_Resource(str(device))))
    assert objection(disk, asdict(BOARDS), MIB) == "is not a USB disk"
    assert "the card of a virtual lab" in objection(disk, asdict(BoardsDisk(simulated=True)), MIB)


def test_a_disk_with_a_mounted_partition_is_in_use(device: Path, tmp_path: Path) -> None:
    partition = Path(f"{device}p1")
    process.run(["mkfs.ext4", "-q", partition], timeout_s=60)
    folder = tmp_path / "mounted"
    folder.mkdir()
    process.run(["mount", partition, folder], timeout_s=30)
    try:
        assert f"in use on the exporter: {partition.name} is mounted on {folder}" in _objection(device)
        assert _objection(partition) == "is a partition, no disk"
    finally:
        process.run(["umount", folder], timeout_s=30)
    assert _objection(device) == FREE


def test_a_disk_that_another_program_has_for_itself_is_in_use(device: Path) -> None:
    """As a filesystem that is mounted in another container, swap space, or a part of a RAID has it."""
    claim = os.open(device, os.O_RDWR | os.O_EXCL)
    try:
        assert _objection(device) == "is in use on the exporter: another program has it for itself"
    finally:
        os.close(claim)
    assert _objection(device) == FREE


def test_a_disk_of_another_size_is_another_disk(device: Path) -> None:
    assert _objection(device, replace(BOARDS, offered_bytes=64 * MIB)) == FREE
    other = _objection(device, replace(BOARDS, offered_bytes=1024 * MIB))
    assert other == "has 67108864 bytes, but the board offers 1073741824: it is another disk"
    assert _objection(device, image_bytes=128 * MIB) == "has 67108864 bytes, but the image has 134217728"
    assert (
        _objection(device, replace(BOARDS, largest_bytes=32 * MIB)) == "has 64 MiB, more than the largest card (32 MiB)"
    )


def test_a_disk_without_the_serial_number_or_the_name_of_the_boards_is_another_disk(device: Path) -> None:
    serial, link = "000000001234", "/dev/disk/by-path/pci-usb-1"
    assert _objection(device, replace(BOARDS, serial=serial)) == f"has the serial number (none), not {serial}"
    assert _objection(device, replace(BOARDS, link=link)) == f"is not {link}"


def test_a_disk_without_a_medium_is_no_disk(device: Path, image: Path) -> None:
    process.run(["partx", "--delete", device], timeout_s=30)
    os.truncate(image, 0)
    process.run(["losetup", "--set-capacity", device], timeout_s=30)
    assert _objection(device) == "has no medium"


def test_a_user_without_privileges_writes_a_disk_and_reads_it_back(device: Path, image: Path, tmp_path: Path) -> None:
    """As docs/flashing.md recommends: a member of the group that owns the disk. No flush of the kernel's is needed."""
    written = tmp_path / "written.img"
    written.write_bytes(os.urandom(9 * MIB))
    process.run(["partx", "--delete", device], timeout_s=30)
    command = [*NO_POWERS, sys.executable, "-c", WRITER, str(device), str(written)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert sum(json.loads(said.stdout)) == 9 * MIB
    with image.open("rb") as card:
        assert card.read(9 * MIB) == written.read_bytes()


def test_no_disk_of_this_machine_may_be_written_for_a_real_board() -> None:
    """None is a USB disk, except one that a developer has plugged in."""
    names = [each.name for each in Path("/sys/class/block").iterdir() if Path(f"/dev/{each.name}").exists()]
    assert names
    for name in names:
        disk = look(_Resource(f"/dev/{name}"))
        assert disk.bus == "usb" or objection(asdict(disk), asdict(BOARDS), 0), disk
