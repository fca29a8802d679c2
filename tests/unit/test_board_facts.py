"""What a booted board is asked about itself, and what becomes of its answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fsjoule.lab.facts import board_facts
from fsjoule.ports import Command, CommandResult
from fsjoule.testing import FakeShell

_CARD = "/sys/devices/platform/soc/2190000.mmc/mmc_host/mmc1/mmc1:0001/block/mmcblk1"
_DISK = "/sys/devices/pci0000:00/0000:00:04.0/virtio1/block/vda"
_FILES = {
    "/proc/cpuinfo": "processor\t: 0\nmodel name\t: ARMv7 Processor rev 5 (v7l)\n\nHardware\t: Freescale i.MX6\n",
    "/sys/class/block/mmcblk1/size": "4096\n",
    "/proc/meminfo": "MemTotal:         503012 kB\nMemFree: 1 kB\n",
    "/sys/class/block/mmcblk1/device/name": "QEMU!\n",
    "/proc/mounts": "rootfs / rootfs rw 0 0\n/dev/mmcblk1p2 / ext4 rw 0 0\n",
    "/proc/device-tree/model": "Freescale i.MX6 UltraLite\0",
}
_IOS = "clock:\t\t50000000 Hz\nbus width:\t2 (4 bits)\ntiming spec:\t2 (sd high-speed)\n"


@dataclass
class _Board(FakeShell):
    """A board that counts how often it is spoken to."""

    trips: int = 0

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> CommandResult:
        self.trips += 1
        return super().run(argv, timeout_s=timeout_s)

    def run_all(self, commands: Sequence[Command]) -> tuple[CommandResult, ...]:
        before = self.trips
        results = super().run_all(commands)
        self.trips = before + 1
        return results


def _board(files: dict[str, str], device: str) -> _Board:
    def answer(argv: tuple[str, ...]) -> CommandResult:
        match argv:
            case ("cat", path):
                return CommandResult(argv, 0 if path in files else 1, files.get(path, "no such file"))
            case ("uname", "-r"):
                return CommandResult(argv, 0, "6.1.0\n")
            case ("readlink", *_):
                return CommandResult(argv, 0, f"{device}\n")
            case ("sh", "-c", script):
                assert script.endswith("cat /sys/kernel/debug/mmc1/ios")
                return CommandResult(argv, 0, _IOS)
            case _:
                return CommandResult(argv, 0, "")

    return _Board(answer)


def test_facts_of_a_board_with_a_card_take_two_trips() -> None:
    board = _board(_FILES, _CARD)
    facts = board_facts(board, "board", "mmcblk1")
    assert (facts.machine, facts.kernel_release, facts.storage) == ("Freescale i.MX6 UltraLite", "6.1.0", "QEMU!")
    assert (facts.cpu, facts.cpus, facts.root_filesystem) == ("ARMv7 Processor rev 5 (v7l)", 1, "ext4")
    assert (facts.storage_bytes, facts.memory_bytes) == (4096 * 512, 503012 * 1024)
    assert facts.storage_bus == "50000000 Hz, 4 bits, sd high-speed"
    assert board.trips == 2


def test_a_board_without_a_device_tree_and_an_mmc_host_is_asked_for_what_it_has() -> None:
    files = {path: text for path, text in _FILES.items() if "device-tree" not in path and "name" not in path}
    files["/sys/class/dmi/id/product_name"] = "Standard PC\n"
    facts = board_facts(_board(files, _DISK), "board", "mmcblk1")
    assert (facts.machine, facts.storage, facts.storage_bus, facts.kernel_release) == ("Standard PC", "", "", "6.1.0")


def test_a_board_that_tells_no_model_is_named_by_its_processor() -> None:
    files = {path: text for path, text in _FILES.items() if "device-tree" not in path}
    assert board_facts(_board(files, _CARD), "board", "mmcblk1").machine == "Freescale i.MX6"
