"""The check before a disk is written, on real loop devices, and the real disks of this machine."""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from fsjoule.errors import LabError
from fsjoule.host import process
from fsjoule.lab.disk_program import objection
from fsjoule.lab.disks import BoardsDisk, look
from fsjoule.model import MIB
from fsjoule.virtual.disks.loop_device import LoopDevice

BOARDS = BoardsDisk(simulated=True)


@dataclass(frozen=True)
class _Resource:
    """A labgrid resource of this computer."""

    path: str

    def wrap_command(self, command: list[str]) -> list[str]:
        return command


@pytest.fixture
def device(tmp_path: Path) -> Generator[LoopDevice]:
    """A loop device with an ext4 filesystem of 32 MiB in a partition, as a card in a reader."""
    image = tmp_path / "labs" / "virtual" / "card.img"
    image.parent.mkdir(parents=True)
    image.write_bytes(bytes(64 * MIB))
    process.run(["sfdisk", image], timeout_s=30, input_bytes=b"start=2048, size=65536\n")
    device = LoopDevice()
    device.attach(image)
    process.run(["partx", "--add", device.path], timeout_s=30)
    yield device
    process.run(["partx", "--delete", device.path], timeout_s=30, check=False)
    device.close()


def _check(device: LoopDevice | Path, boards: BoardsDisk = BOARDS, image_bytes: int = MIB) -> None:
    path = device.path if isinstance(device, LoopDevice) else device
    boards.check(_Resource(str(path)), image_bytes)


def test_a_free_disk_is_the_boards_if_the_board_is_simulated(device: LoopDevice) -> None:
    _check(device)
    with pytest.raises(LabError, match=rf"{device.path} is not a USB disk; nothing was written"):
        _check(device, BoardsDisk(simulated=False))


def test_a_disk_with_a_mounted_partition_is_in_use(device: LoopDevice, tmp_path: Path) -> None:
    partition = Path(f"{device.path}p1")
    process.run(["mkfs.ext4", "-q", partition], timeout_s=60)
    folder = tmp_path / "mounted"
    folder.mkdir()
    process.run(["mount", partition, folder], timeout_s=30)
    try:
        with pytest.raises(
            LabError, match=rf"in use on the exporter: {partition.name} is mounted on {folder}; nothing"
        ):
            _check(device)
        with pytest.raises(LabError, match=r"p1 is a partition, no disk; nothing was written"):
            _check(partition)
    finally:
        process.run(["umount", folder], timeout_s=30)
    _check(device)


def test_a_disk_that_another_program_has_for_itself_is_in_use(device: LoopDevice) -> None:
    """As a filesystem that is mounted in another container, swap space, or a part of a RAID has it."""
    claim = os.open(device.path, os.O_RDWR | os.O_EXCL)
    try:
        with pytest.raises(LabError, match=r"in use on the exporter: another program has it for itself"):
            _check(device)
    finally:
        os.close(claim)
    _check(device)


def test_a_disk_of_another_size_is_another_disk(device: LoopDevice) -> None:
    _check(device, BoardsDisk(simulated=True, offered_bytes=64 * MIB))
    with pytest.raises(LabError, match=r"has 67108864 bytes, but the board offers 1073741824: it is another disk"):
        _check(device, BoardsDisk(simulated=True, offered_bytes=1024 * MIB))
    with pytest.raises(LabError, match=r"has 67108864 bytes, but the image has 134217728"):
        _check(device, image_bytes=128 * MIB)
    with pytest.raises(LabError, match=r"has 64 MiB, more than the largest card \(32 MiB\)"):
        _check(device, BoardsDisk(simulated=True, largest_bytes=32 * MIB))


def test_a_disk_without_the_serial_number_or_the_name_of_the_boards_is_another_disk(device: LoopDevice) -> None:
    with pytest.raises(LabError, match=r"has the serial number \(none\), not 000000001234"):
        _check(device, BoardsDisk(simulated=True, serial="000000001234"))
    with pytest.raises(LabError, match=r"is not /dev/disk/by-path/pci-usb-1"):
        _check(device, BoardsDisk(simulated=True, link="/dev/disk/by-path/pci-usb-1"))


def test_a_disk_whose_cable_is_out_is_no_disk(device: LoopDevice) -> None:
    process.run(["partx", "--delete", device.path], timeout_s=30)
    device.unplug()
    with pytest.raises(LabError, match=r"has no medium; nothing was written"):
        _check(device)


def test_no_disk_of_this_machine_may_be_written_for_a_real_board() -> None:
    """None is a USB disk, except one that a developer has plugged in."""
    names = [each.name for each in Path("/sys/class/block").iterdir() if Path(f"/dev/{each.name}").exists()]
    assert names
    for name in names:
        disk = look(_Resource(f"/dev/{name}"))
        assert disk.bus == "usb" or objection(asdict(disk), asdict(BoardsDisk(simulated=False)), 0), disk
