"""What a boot loader says when it gives up, and what it is taken for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from fsjoule.errors import ConfigError
from fsjoule.lab import boot_failures
from fsjoule.lab.flashers import check_boots
from fsjoule.model import ImageFacts

SCANNED = "switch to partitions #0, OK\r\nmmc0 is current device\r\nScanning mmc 0:1...\r\n"
FOUND = SCANNED + "Found /extlinux/extlinux.conf\r\nRetrieving file: /extlinux/extlinux.conf\r\n1:\tfsjoule\r\n"
# A newer U-Boot's, on a Raspberry Pi.
BOOTFLOWS = "** Booting bootflow '<NULL>' with efi_mgr\r\nLoading Boot0000 'mmc 0' failed\r\n"


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("Trying to boot from MMC1\r\nSPL: failed to boot from all boot devices\r\n", "found no U-Boot behind it"),
        (FOUND + "   Verifying Checksum ... Bad Data CRC\r\n", "found the kernel damaged: too large"),
        (FOUND + "zimage: Bad magic!\r\nBad Linux ARM zImage magic!\r\n", "does not know the format of the kernel"),
        (FOUND + "Skipping fsjoule for failure retrieving kernel\r\n", "cannot read a file that extlinux.conf names"),
        (SCANNED + "BOOTP broadcast 1\r\n", "there is no extlinux/extlinux.conf on the card's boot partition"),
        ("** No partition table - mmc 0 **\r\nBOOTP broadcast 1\r\n", "there is no partition table on the card"),
        (SCANNED + "Found U-Boot script /boot.scr\r\nBOOTP broadcast 1", "it gave up what the card names"),
        (FOUND + "EXTLINUX FAILED: continuing...\r\nConfig file not found\r\n", "it gave up what the card names"),
        (SCANNED + "\r\n=> ", "there is no extlinux/extlinux.conf"),
        ("Begin: Waiting for root ... done.\r\nALERT!  /dev/mmcblk1p2 does not exist", "the initramfs found no root"),
        (
            "device-mapper: verity: 179:2: data block 5 is corrupted",
            "dm-verity refused a block of the root: the card is damaged",
        ),
        ("resetting ...\r\n### ERROR ### Please RESET the board ###\r\n", "it gave up and cannot reset this board"),
        ("You are in emergency mode", "the root came up without all that it needs"),
        (BOOTFLOWS + "Boot failed (err=-14)\r\nU-Boot> ", "there is no extlinux/extlinux.conf"),
        (BOOTFLOWS + "** Booting bootflow 'mmc.part_1' with extlinux\r\nU-Boot> ", "it gave up what the card names"),
    ],
)
def test_a_failure_ends_the_wait_and_has_a_meaning(said: str, meaning: str) -> None:
    found = re.search(f"{boot_failures.FAILURE}|{boot_failures.NOTHING_FOUND}", said)
    assert found
    reason = boot_failures.reason(found[0], said)
    assert meaning in reason
    assert reason.endswith(f"({found[0].strip()})")


def test_a_boot_that_works_is_no_failure() -> None:
    said = FOUND + "Retrieving file: /zImage\r\n==> crc32\r\nStarting kernel ...\r\n\r\nfsjoule login: "
    assert not re.search(f"{boot_failures.FAILURE}|{boot_failures.NOTHING_FOUND}", said)


def test_the_last_line_of_a_board_that_went_silent_tells_where_it_was() -> None:
    said = ["U-Boot SPL 2025.01", "DRAM: 1024 MiB", "Trying to boot from MMC1"]
    assert "(SPL) started what is in U-Boot's place" in boot_failures.last_words(said)
    assert "the kernel has not said a word" in boot_failures.last_words([*said, "Starting kernel ..."])
    assert boot_failures.last_words([*said, "Loading modules"]) == boot_failures.last_words([]) == ""


def test_what_is_not_u_boots_is_told_as_it_is() -> None:
    panic = "Kernel panic - not syncing: VFS"
    assert boot_failures.reason(panic, FOUND + panic) == panic


@dataclass
class Card:
    path: Path
    facts: ImageFacts


@pytest.mark.parametrize("name", ["", "imx6ul"])
def test_a_board_that_starts_from_its_card_takes_no_card_without_a_boot_loader(name: str) -> None:
    facts = ImageFacts(name, "6.1", "", "0", {"zImage": "1"}, {})
    loaded = ImageFacts(name, "6.1", "", "0", {"boot loader spl (u-boot.bin)": "1"}, {})
    check_boots(Card(Path("card.img"), loaded), "board")
    if not name:  # of an image of the user's nothing is known
        check_boots(Card(Path("card.img"), facts), "board")
        return
    with pytest.raises(
        ConfigError, match=r"recipe 'imx6ul' has no boot loader, and board starts(.|\n)*to the recipe imx6ul"
    ):
        check_boots(Card(Path("card.img"), facts), "board")


PANIC = "\nKernel panic - not syncing: Attempted to kill init! exitcode=0x00000100\n"
XFS = """[    3.1] XFS (mmcblk1p2): Superblock has unknown incompatible features (0x20) enabled.
[    3.1] XFS (mmcblk1p2): Filesystem cannot be safely mounted by this kernel.
[    3.1] XFS (mmcblk1p2): SB validate failed with error -22.
mount: mounting /dev/mmcblk1p2 on /root failed: Invalid argument
initramfs: cannot mount /dev/mmcblk1p2 as xfs"""
EXT4 = """EXT4-fs (mmcblk1p2): couldn't mount because of unsupported optional features (10000)
initramfs: cannot mount /dev/mmcblk1p2 as ext4"""
BTRFS = """[ 2.0] BTRFS warning (device mmcblk1p2): cannot mount because of unknown incompat features (0x8000)
initramfs: cannot mount /dev/mmcblk1p2 as btrfs"""
OPTION = """[ 2.0] EXT4-fs (mmcblk1p2): Unrecognized mount option "nobarier" or missing value
initramfs: cannot mount /dev/mmcblk1p2 as ext4"""
F2FS = """[2.0][   T1] F2FS-fs (mmcblk1p2): Filesystem with casefold feature cannot be mounted without CONFIG_UNICODE
initramfs: cannot mount /dev/mmcblk1p2 as f2fs"""
XFS_LATER = """[ 3.1] XFS (mmcblk1p2): Superblock has unknown read-only compatible features (0x10) enabled.
initramfs: cannot mount /dev/disk/by-partuuid/1234-02 as xfs"""
BLOCKS = """[ 3.1] XFS (mmcblk1p2): File system with blocksize 16384 bytes. Only pagesize (4096) or less
initramfs: cannot mount /dev/mmcblk1p2 as xfs"""
EROFS = """[ 2.0] erofs (device mmcblk1p2): unidentified incompatible feature 40, please upgrade kernel
initramfs: cannot mount /dev/mmcblk1p2 as erofs"""
KERNELS_OWN = """[ 3.1] EXT4-fs (mmcblk1p2): couldn't mount RDWR because of unsupported optional features (400)
[ 3.2] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(179,2)"""
OTHERS = """[ 1.0] brcmfmac: unknown parameter 'x' ignored
[ 1.0] FAT-fs (mmcblk1p1): Unrecognized mount option "x" or missing value
initramfs: cannot mount /dev/mmcblk1p2 as ext4"""
DAMAGED = """[ 2.0] EXT4-fs (mmcblk1p2): VFS: Can't find ext4 filesystem
initramfs: cannot mount /dev/mmcblk1p2 as ext4"""
USB = "[ 2.0] usbcore: unknown parameter 'autosuspend_ms' ignored"
OLD = "EXT4-fs (sda1): couldn't mount because of unsupported optional features (10000)\n" + "Loading\n" * 9
ABSENT = "initramfs: the root device '/dev/mmcblk1p2' did not appear within 20 s; there is: mmcblk0 mmcblk0p1 mmcblk0p2"


@pytest.mark.parametrize(
    ("said", "why", "for_good"),
    [
        (XFS, "XFS (mmcblk1p2): Superblock has unknown incompatible features (0x20) enabled. (cannot mount", True),
        (EXT4, "EXT4-fs (mmcblk1p2): couldn't mount because of unsupported optional features (10000) (cannot", True),
        (BTRFS, "BTRFS warning (device mmcblk1p2): cannot mount because of unknown incompat features (0x8000)", True),
        (OPTION, 'EXT4-fs (mmcblk1p2): Unrecognized mount option "nobarier" or missing value (cannot mount', True),
        (
            F2FS,
            "F2FS-fs (mmcblk1p2): Filesystem with casefold feature cannot be mounted without CONFIG_UNICODE (",
            True,
        ),
        (XFS_LATER, "XFS (mmcblk1p2): Superblock has unknown read-only compatible features (0x10) enabled. (", True),
        (BLOCKS, "XFS (mmcblk1p2): File system with blocksize 16384 bytes.", True),
        (EROFS, "erofs (device mmcblk1p2): unidentified incompatible feature 40, please upgrade kernel (", True),
        (
            KERNELS_OWN,
            "EXT4-fs (mmcblk1p2): couldn't mount RDWR because of unsupported optional features (400) (Un",
            True,
        ),
        (OTHERS, "cannot mount /dev/mmcblk1p2 as ext4", False),
        (DAMAGED, "cannot mount /dev/mmcblk1p2 as ext4", False),
        (ABSENT, ABSENT.removeprefix("initramfs: "), False),
        (f"{USB}\n{ABSENT}", ABSENT.removeprefix("initramfs: "), False),
        (f"{USB}\n{DAMAGED}", "cannot mount /dev/mmcblk1p2 as ext4", False),
        (f"{XFS}\n{ABSENT}", ABSENT.removeprefix("initramfs: "), False),
        (f"{XFS}\n{DAMAGED}", "cannot mount /dev/mmcblk1p2 as ext4", False),
        (f"{OLD}{DAMAGED}", "cannot mount /dev/mmcblk1p2 as ext4", False),
    ],
)
def test_a_root_that_a_kernel_cannot_mount_is_told_in_the_filesystems_words(
    said: str, why: str, *, for_good: bool
) -> None:
    told, never = boot_failures.root_failure(f"Starting kernel ...\n{said}{PANIC}")
    assert told.startswith(why)
    assert never == for_good
    assert "\n" not in told


def test_another_panic_is_no_failure_of_the_root() -> None:
    said = f"usbcore: unknown mount option\n{PANIC}"
    assert boot_failures.root_failure(said) == ("", False)


@pytest.mark.parametrize(
    ("banner", "banners"),
    [
        ("NOTICE:  BL31: v2.10.0\nNOTICE:  BL31: Built : 12:00:00\n", 3),
        ("U-Boot TPL 2024.01 (x)\n", 3),
        ("\n\nU-Boot dub-2017.03-r9.1 (x)\n\n", 3),
        ("barebox 2025.01.0 #1\n", 3),
        ("[    0.000000][    T0] Linux version 6.1 (x)\n", 5),
    ],
)
def test_a_loop_is_seen_by_whatever_starts_again(banner: str, banners: int) -> None:
    assert not boot_failures.loop("\n" + banner * (banners - 1))
    assert "at least 3 times so far" in boot_failures.loop("\n" + banner * banners)


@pytest.mark.parametrize(
    "line",
    [
        "Oops [#1]",
        "SError Interrupt on CPU0, code 0x00000000bf000002 -- SError",
        "Internal error: synchronous external abort: 0000000096000210 [#1] SMP",
        "kernel BUG at fs/ext4/inode.c:2717!",
    ],
)
def test_each_architecture_has_its_oops(line: str) -> None:
    assert boot_failures.oops(f"[    2.0] {line}\n") == f"the kernel failed and went on: {line}"


@pytest.mark.parametrize(
    ("said", "garbled"),
    [
        (bytes(range(256)) * 5, True),
        (b"\xff\x00\xf8\x80" * 200, True),
        ("\u250c\u2500\u2510\u2502\u2514\u2518 \u041c\u0435\u043d\u044e\n".encode() * 50, False),  # a menu on a console
        (b"Starting kernel ...\n" * 50, False),
    ],
)
def test_text_of_any_language_is_text(said: bytes, *, garbled: bool) -> None:
    assert boot_failures.is_garbled(said.decode(errors="replace")) is garbled
