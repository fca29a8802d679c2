"""Errors among the kernel's messages."""

from __future__ import annotations

import pytest

from fsjoule.bench.kernel_log import kernel_complaints


@pytest.mark.parametrize(
    "line",
    [
        "[   12.3] mmc1: error -110 whilst initialising SD card",
        "[   12.3] blk_update_request: I/O error, dev mmcblk1, sector 2048",
        "[   12.3] EXT4-fs error (device mmcblk1p3): ext4_find_entry:1463: inode #2",
        "[   12.3] BTRFS error (device mmcblk1p3): bdev /dev/mmcblk1p3 errs: wr 1",
        "[   12.3] Buffer I/O error on dev mmcblk1p3, logical block 0, lost sync page write",
        # OpenZFS: module/os/linux/zfs/vdev_disk.c, module/zfs/zio.c, module/os/linux/spl/spl-err.c.
        "[   12.3] zio pool=fsjoule vdev=/dev/sda1 error=5 type=2 offset=270336 size=4096 flags=1572992",
        "[   12.3] WARNING: Pool 'fsjoule' has encountered an uncorrectable I/O failure and has been suspended.",
        "[   12.3] VERIFY3(0 == dmu_bonus_hold(os, obj, FTAG, &db)) failed (0 == 5)",
        "[   12.3] PANIC at zfs_znode.c:335:zfs_znode_sa_init()",
        "[   12.3] PANIC: zfs: adding existent segment to range tree (offset=5000 size=200)",
    ],
)
def test_kernel_errors_are_found(line: str) -> None:
    assert kernel_complaints(f"ok\n{line}\nok") == [f"the kernel reported: {line}"]


def test_ordinary_messages_are_not_errors() -> None:
    log = (
        "[    5.1] EXT4-fs (mmcblk1p3): mounted filesystem with ordered data mode. Quota mode: none.\n"
        "[    6.2] BTRFS info (device mmcblk1p3): using crc32c (crc32c-generic) checksum algorithm\n"
        "[    6.3] mmcblk1: mmc1:4567 QEMU! 1.00 GiB\n"
        "[    7.0] ZFS: Loaded module v2.3.2-2, ZFS pool version 5000, ZFS filesystem version 5\n"
    )
    assert kernel_complaints(log) == []
