"""Raw flash memory as a kind of storage: what is made on it, and what it counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_bench import PROFILE, answer

from fsjoule.bench.data_image import image_argvs
from fsjoule.bench.measurer import Measurer
from fsjoule.bench.media import counter_files
from fsjoule.bench.onboard import marks
from fsjoule.bench.phases import Phases
from fsjoule.bench.scratch import Scratch, attach
from fsjoule.errors import BoardError, ConfigError, MeasurementInvalid
from fsjoule.filesystems import filesystem
from fsjoule.host.clock import HostClock
from fsjoule.model import CARD, KIB, MIB, Planned, Storage
from fsjoule.model.medium import Medium, medium_of
from fsjoule.ports import CommandResult
from fsjoule.suites import Planning, plan_entries, suite
from fsjoule.testing import FakeMeter, FakeShell

NAND = Storage("mtd0", 128 * MIB, module="nandsim", forgets=True)
STICK = Storage("sda", 512 * MIB)
_CPU = "cpu  100 0 50 800 20 0 5 0 0 0\ncpu0 1 2 3\n"
_HITS = "  nand_read_page_op  {} 0\n  nand_prog_page_op  {} 0\n  nand_prog_page_begin_op  {} 0\n  nand_erase_op  {} 0\n"
BEFORE = _CPU + _HITS.format(100, 0, 10, 5) + "134217728\n131072\n2048\n3\n0\n1\n4\n"
AFTER = _CPU + _HITS.format(140, 0, 30, 8) + "134217728\n131072\n2048\n5\n0\n2\n6\n"


def plan(*names: str, storages: tuple[str, ...] | None = None, **further: Storage) -> tuple[Planned, ...]:
    wanted = Planning(names, ("6.1",), 1, 1, storages=storages, further=further)
    return plan_entries(suite("quick"), wanted).entries


def test_a_device_says_what_kind_it_is() -> None:
    kinds = {name: medium_of(name) for name in ("mtd0", "mtd12", "sda", "mmcblk1p3", "mtdblock0")}
    assert [name for name, kind in kinds.items() if kind is Medium.MTD] == ["mtd0", "mtd12"]


def test_pages_and_blocks_are_counted_with_the_flashs_own_state() -> None:
    device = marks.usage(BEFORE, AFTER).device
    assert device is not None
    assert device.flash is not None
    assert (device.reads, device.read_bytes, device.writes, device.written_bytes) == (40, 40 * 2048, 20, 20 * 2048)
    assert (device.flash.erases, device.flash.corrected_bits, device.flash.bad_blocks) == (3, 2, 2)
    assert device.flash.most_erased == 6
    unmounted = AFTER.removesuffix("6\n")  # UBI is gone
    assert marks.usage(BEFORE, unmounted).device.flash.most_erased is None  # type: ignore[union-attr]


def test_a_kernel_without_probes_counts_nothing_rather_than_zero() -> None:
    uncounted = f"{_CPU}134217728\n131072\n2048\n0\n0\n0\n"
    assert marks.usage(uncounted, uncounted).device is None
    with pytest.raises(MeasurementInvalid, match="the flash's counters are incomplete"):
        marks.usage(BEFORE, _CPU + "2048\n")


def test_the_counters_of_each_kind_are_read_from_its_files() -> None:
    assert counter_files("sda", Medium.BLOCK) == ("/sys/class/block/sda/stat",)
    assert "/sys/class/mtd/mtd3/ecc_failures" in counter_files("mtd3", Medium.MTD)


def test_each_filesystem_goes_onto_its_own_kind_of_storage() -> None:
    pairs = {(e.storage, e.filesystem) for e in plan("ext4", "ubifs", stick=STICK, nand=NAND) if not e.workload.is_boot}
    assert pairs == {(CARD, "ext4"), ("nand", "ubifs")}
    chosen = plan("ext4", "ubifs", storages=("stick", "nand"), stick=STICK, nand=NAND)
    assert {(e.storage, e.filesystem) for e in chosen if not e.workload.is_boot} == {
        ("stick", "ext4"),
        ("nand", "ubifs"),
    }


@pytest.mark.parametrize(
    ("names", "storages", "message"),
    [
        (("ubifs",), (CARD,), "ubifs is made on an MTD device, and card is none; this board's MTD devices: nand"),
        (("ext4",), ("nand",), "ext4 is made on a block device, and nand is none"),
        (("jffs2", "ext4"), ("nand",), "ext4 is made on a block device, and nand is none"),
        (("ubifs",), ("nand:nocache",), "nand is mtd0, and nocache is for eMMCs"),
        (("ext4",), (CARD, "nand"), "nand is an MTD device, and ext4 is made on another kind of storage"),
    ],
)
def test_what_does_not_go_together_is_refused(names: tuple[str, ...], storages: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(*names, storages=storages, nand=NAND)


def test_a_board_without_raw_flash_says_so() -> None:
    with pytest.raises(ConfigError, match=r"ubifs is made on an MTD device.*\n.*this board has no such storage"):
        plan("ubifs", stick=STICK)


def test_no_power_is_cut_where_the_power_keeps_the_content() -> None:
    def cuts(nand: Storage) -> tuple[str, ...]:
        wanted = Planning(("jffs2", "ext4"), ("6.1",), 1, 1, further={"nand": nand})
        return plan_entries(suite("elc2015/power-loss"), wanted).left_out

    assert any("nand is simulated in the board's memory" in each for each in cuts(NAND))
    assert not any("nand" in each for each in cuts(replace(NAND, forgets=False)))


def test_ubifs_brings_its_volume_and_takes_it_away() -> None:
    ubifs = filesystem("ubifs:zstd")
    made = ubifs.make_argv("/dev/mtd0")
    assert "ubiformat -q -y /dev/mtd0" in made[2]
    assert made[4:] == ("mkfs.ubifs", "-y", "-x", "zstd", "/dev/ubi9_0")
    mounted = filesystem("ubifs:noatime").mount_argv("/dev/mtd0", "/mnt")
    assert mounted[3:] == ("/dev/mtd0", "-o", "noatime", "/dev/ubi9_0", "/mnt")
    assert "ubidetach" in ubifs.unmount_argv("/mnt")[2]
    assert filesystem("jffs2").mount_argv("/dev/mtd0", "/mnt")[2:] == (
        'exec mount -t jffs2 "${0##*/}" "$@"',
        "/dev/mtd0",
        "/mnt",
    )


def test_what_a_failed_mount_attached_is_let_go_before_erasing() -> None:
    scratch = Scratch(FakeShell(lambda argv: CommandResult(argv, 0, "")), "/dev/mtd0", purge=False)
    released, made = (step.command.argv for step in scratch.making(filesystem("jffs2")))
    assert released[2].index("ubiblock --remove") < released[2].index("ubidetach -d 9")
    assert made[0] == "flash_erase"


def test_worn_flash_is_refused_before_anything_is_written() -> None:
    def board(bad: int) -> FakeShell:
        numbers = {"size": 128 * MIB, "bad_blocks": bad, "erasesize": 128 * KIB, "name": ""}
        return FakeShell(lambda argv: CommandResult(argv, 0, str(numbers.get(argv[-1].rpartition("/")[2], ""))))

    assert attach(board(20), "nand", NAND) == "nand"
    worn = board(21)
    with pytest.raises(BoardError, match="nand has 21 bad blocks of 1024, and 20 are held in reserve"):
        attach(worn, "nand", NAND)
    assert {argv[0] for argv in worn.asked} == {"/usr/lib/fsjoule/attach", "cat"}


def test_layers_are_for_block_devices() -> None:
    wanted = Planning(("ubifs",), ("6.1",), 1, 1, further={"nand": NAND}, stacks=("dm-crypt",))
    with pytest.raises(ConfigError, match="ubifs is on raw flash, and layers are for block devices"):
        plan_entries(suite("quick"), wanted)


@pytest.mark.parametrize("name", ["mtd0", "/dev/mtdblock0"])
def test_raw_flash_that_the_board_uses_is_not_erased(name: str) -> None:
    shell = FakeShell(lambda argv: CommandResult(argv, 0, f"{name} /data jffs2 rw 0 0\n"))
    with pytest.raises(BoardError, match="/dev/mtd0, which may be overwritten, is mounted on the board"):
        Scratch(shell, "/dev/mtd0", purge=False).make(filesystem("jffs2"))


def test_an_image_goes_onto_a_volume_of_ubi() -> None:
    squashfs = filesystem("squashfs-ubi:zstd")
    *_, write = image_argvs(squashfs, "/dev/mtd0", None, MIB)
    assert "ubiupdatevol /dev/ubi9_0" in write[2]
    assert "dd if=" not in write[2]
    assert squashfs.mount_argv("/dev/mtd0", "/mnt")[-4:] == ("-o", "ro", "/dev/ubiblock9_0", "/mnt")
    with pytest.raises(ConfigError, match="no root partition can be made with squashfs-ubi"):
        _ = squashfs.as_root


def test_modules_are_loaded_in_one_order() -> None:
    """A set has another order in each process: two runs in guest time would differ."""
    shell = FakeShell(answer)
    measurer = Measurer(shell, FakeMeter(None), HostClock(), PROFILE, seed=1, phases=Phases(HostClock()))
    names = filesystem("ubifs").modules
    measurer.load_modules(*names)
    measurer.load_modules(*names, "jffs2")
    assert [argv[1] for argv in shell.asked if argv[0] == "modprobe"] == [*names, "jffs2"]
