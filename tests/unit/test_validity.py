from __future__ import annotations

import pytest

from fsjoule import validity
from fsjoule.model import SampleCounts, Window


@pytest.mark.parametrize(("window_s", "valid"), [(10.0, True), (10.4, True), (10.5, False), (9.99, False)])
def test_the_window_brackets_the_work(window_s: float, *, valid: bool) -> None:
    complaints = validity.window_complaints(Window(0, window_s * 1e6), 10.0, 0.25)
    assert bool(complaints) is not valid


@pytest.mark.parametrize(("lost", "missed", "valid"), [(0, 0, True), (5, 5, True), (6, 5, False)])
def test_missing_samples(lost: int, missed: int, *, valid: bool) -> None:
    complaints = validity.sample_complaints(SampleCounts(10_000, 10_000 - lost - missed, missed, lost))
    assert bool(complaints) is not valid


@pytest.mark.parametrize(
    "line",
    [
        "[   12.3] mmc1: error -110 whilst initialising SD card",
        "[   12.3] blk_update_request: I/O error, dev mmcblk1, sector 2048",
        "[   12.3] EXT4-fs error (device mmcblk1p3): ext4_find_entry:1463: inode #2",
        "[   12.3] BTRFS error (device mmcblk1p3): bdev /dev/mmcblk1p3 errs: wr 1",
        "[   12.3] Buffer I/O error on dev mmcblk1p3, logical block 0, lost sync page write",
    ],
)
def test_kernel_errors_are_found(line: str) -> None:
    assert validity.kernel_complaints(f"ok\n{line}\nok") == [f"the kernel reported: {line}"]


def test_ordinary_messages_are_not_errors() -> None:
    log = (
        "[    5.1] EXT4-fs (mmcblk1p3): mounted filesystem with ordered data mode. Quota mode: none.\n"
        "[    6.2] BTRFS info (device mmcblk1p3): using crc32c (crc32c-generic) checksum algorithm\n"
        "[    6.3] mmcblk1: mmc1:4567 QEMU! 1.00 GiB\n"
    )
    assert validity.kernel_complaints(log) == []
