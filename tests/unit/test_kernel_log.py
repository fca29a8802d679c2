"""The judge of kernel logs, on lines of real kinds."""

from __future__ import annotations

import re
import subprocess
from typing import Final

import pytest

from fsjoule.bench.kernel_log import (
    KINDS,
    Level,
    MessageSubject,
    complaints,
    grep_command,
    is_damaged,
    messages,
    remarks,
    warnings,
)
from fsjoule.lab.shell import PANIC

# What the kernel prints after its time, and the kind's name with its detail.
DOUBTFUL: Final = {
    "mmc1: error -110 whilst initialising SD card": "MMC error",
    "mmc0: error -84 whilst initialising MMC card": "MMC error",
    "mmcblk1: error -110 transferring data, sector 2048, nr 8, cmd response 0x900, card status 0xc00": "MMC error",
    "mmcblk0: recovery failed!": "MMC error",
    "mmc0: Timeout waiting for hardware interrupt.": "MMC error",
    "mmc0: running CQE recovery": "MMC error",
    "mmc0: card never left busy state": "MMC error",
    "mmc1: Card stuck being busy! __mmc_poll_for_busy": "MMC error",
    "mmc0: cache flush error -110": "MMC error",
    "sunxi-mmc 1c0f000.mmc: data error, sending stop command": "MMC error",
    "sunxi-mmc 1c0f000.mmc: fatal err update clk timeout": "MMC error",
    "mmc_host mmc1: Timeout sending command (cmd 0x202000 arg 0x0 status 0x80202000)": "MMC error",
    "blk_update_request: I/O error, dev mmcblk1, sector 2048": "I/O error",
    "I/O error, dev mmcblk0, sector 0 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2": "I/O error",
    "Buffer I/O error on dev mmcblk1p3, logical block 0, lost sync page write": "I/O error",
    "critical medium error, dev sda, sector 12345 op 0x0:(READ) flags 0x0 phys_seg 1": "I/O error",
    "critical space allocation error, dev sda, sector 8 op 0x1:(WRITE)": "I/O error",
    "JBD2: I/O error when updating journal superblock for mmcblk1p2-8.": "I/O error",
    "JBD2: Detected IO errors while flushing file data on mmcblk1p3-8": "I/O error",
    "BTRFS warning (device mmcblk1p3): lost page write due to IO error on /dev/mmcblk1p3 (-5)": "I/O error",
    "fio: attempt to access beyond end of device": "I/O error",
    "mmc_erase: erase error -110, status 0x800": "MMC error",
    "mmc0: Unexpected interrupt 0x00000001.": "MMC error",
    "mmc0: Got data interrupt 0x00000002 even though no data operation was in progress.": "MMC error",
    "dwmmc_rockchip fe320000.mmc: Unexpected command timeout, state 3": "MMC error",
    "usb 1-1: reset high-speed USB device number 2 using ci_hdrc": "USB reset",
    "usb 2-1: reset SuperSpeed USB device number 3 using xhci_hcd": "USB reset",
    "usb usb1-port1: disabled by hub (EMI?), re-enabling...": "USB reset",
    "xhci_hcd 0000:01:00.0: xHCI host controller not responding, assume dead": "USB reset",
    "sd 0:0:0:0: [sda] tag#3 uas_eh_abort_handler 0 uas-tag 4 inflight: CMD OUT": "UAS abort",
    "scsi host0: uas_eh_device_reset_handler start": "UAS abort",
    "sd 0:0:0:0: [sda] tag#0 FAILED Result: hostbyte=DID_ERROR driverbyte=DRIVER_OK cmd_age=30s": "SCSI error",
    "sd 0:0:0:0: [sda] tag#0 Sense Key : Medium Error [current]": "SCSI error",
    "sd 0:0:0:0: rejecting I/O to offline device": "SCSI error",
    "sd 0:0:0:0: Device offlined - not ready after error recovery": "SCSI error",
    "sd 0:0:0:0: [sda] tag#0 timing out command, waited 180s": "SCSI error",
    "ufshcd-qcom 1d84000.ufshc: ufshcd_abort: Device abort task at tag 12": "SCSI error",
    "nvme nvme0: I/O 12 QID 1 timeout, completion polled": "NVMe error",
    "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10": "NVMe error",
    "nvme nvme0: Device not ready; aborting reset, CSTS=0x1": "NVMe error",
    "nvme0n1: Read(0x2) @ LBA 4096, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR": "NVMe error",
    "device-mapper: verity: 179:258: data block 9797 is corrupted": "block refused by dm-verity",
    "ata1: hard resetting link": "ATA error",
    "ata2.00: exception Emask 0x0 SAct 0x40 SErr 0x0 action 0x6 frozen": "ATA error",
    "ata2.00: failed command: WRITE FPDMA QUEUED": "ATA error",
    "ata1.00: qc timeout after 5000 msecs (cmd 0xec)": "ATA error",
    "ata1: limiting SATA link speed to 1.5 Gbps": "ATA error",
    "EXT4-fs error (device mmcblk1p3): ext4_find_entry:1463: inode #2": "filesystem error",
    "EXT4-fs (mmcblk1p3): Remounting filesystem read-only": "filesystem error",
    "EXT4-fs (mmcblk1p3): Ignoring removed nobh option": "mount option without effect",
    "Aborting journal on device mmcblk1p2-8.": "filesystem error",
    "EXT4-fs (mmcblk1p3): This should not happen!! Data will be lost": "filesystem error",
    "BTRFS error (device mmcblk1p3): bdev /dev/mmcblk1p3 errs: wr 1": "filesystem error",
    "BTRFS: error (device sda1: state A) in btrfs_commit_transaction:2418: errno=-5 IO failure": "filesystem error",
    "BTRFS warning (device mmcblk1p3): csum failed root 5 ino 257 off 0 csum 0x8941f998": "filesystem error",
    "XFS (mmcblk1p3): Metadata corruption detected at xfs_agi_verify+0x80/0x1c0": "filesystem error",
    "XFS (mmcblk1p3): Corruption of in-memory data (0x8) detected at xfs_defer_finish": "filesystem error",
    "F2FS-fs (mmcblk1p3): Inconsistent error blkaddr:0x0, sit bitmap:0": "filesystem error",
    "F2FS-fs (mmcblk1p3): access invalid blkaddr:1598541474": "filesystem error",
    "F2FS-fs (mmcblk1p3): Stopped filesystem due to reason: 3": "filesystem error",
    "FAT-fs (mmcblk1p3): Filesystem has been set read-only": "filesystem error",
    "UBIFS error (ubi0:0 pid 412): ubifs_read_node [ubifs]: bad node type (255 but expected 1)": "filesystem error",
    "ubi0 error: ubi_io_read [ubi]: error -74 (ECC error) while reading 2048 bytes": "filesystem error",
    "SQUASHFS error: zlib decompression failed, data probably corrupt": "filesystem error",
    "NILFS error (device mmcblk1p3): nilfs_bmap_lookup_contig: broken bmap": "filesystem error",
    "FAT-fs (mmcblk1p3): error, fat_get_cluster: invalid cluster chain": "filesystem error",
    # OpenZFS: module/os/linux/zfs/vdev_disk.c, module/zfs/zio.c, module/os/linux/spl/spl-err.c.
    "zio pool=fsjoule vdev=/dev/sda1 error=5 type=2 offset=270336 size=4096 flags=1572992": "filesystem error",
    "WARNING: Pool 'fsjoule' has encountered an uncorrectable I/O failure and has been suspended.": "filesystem error",
    "VERIFY3(0 == dmu_bonus_hold(os, obj, FTAG, &db)) failed (0 == 5)": "filesystem error",
    "PANIC at zfs_znode.c:335:zfs_znode_sa_init()": "filesystem error",
    "PANIC: zfs: adding existent segment to range tree (offset=5000 size=200)": "filesystem error",
    "Out of memory: Killed process 412 (fio) total-vm:21480kB, anon-rss:900kB": "out of memory",
    "fio invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0": "out of memory",
    "hwmon hwmon1: Undervoltage detected!": "under-voltage",
    "Under-voltage detected! (0x00050005)": "under-voltage",
    "CPU0: Core temperature above threshold, cpu clock throttled (total events = 1)": "overheated",
    "INFO: task fio:412 blocked for more than 120 seconds.": "hung task fio",
    "INFO: task jbd2/mmcblk1p3-:99 blocked in I/O wait for more than 120 seconds.": "hung task jbd2/mmcblk1p3-",
    "rcu: INFO: rcu_sched self-detected stall on CPU": "RCU stall",
    "INFO: rcu_sched detected stalls on CPUs/tasks:": "RCU stall",
    "rcu: rcu_preempt kthread starved for 2502 jiffies! g73 f0x0 RCU_GP_WAIT_FQS(5)": "RCU stall",
    "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [fio:412]": "lockup",
    "NMI watchdog: Watchdog detected hard LOCKUP on cpu 1": "lockup",
    'irq 45: nobody cared (try booting with the "irqpoll" option)': "lost interrupt",
    "clocksource: timekeeping watchdog on CPU0: Marking clocksource 'tsc' as unstable because the skew is too large:": (
        "clock unstable"
    ),
}
DAMAGE: Final = {
    "8<--- cut here ---": "Oops",
    "Unable to handle kernel NULL pointer dereference at virtual address 00000010": "Oops",
    "Internal error: Oops: 17 [#1] SMP ARM": "Oops",
    "BUG: kernel NULL pointer dereference, address: 0000000000000008": "Oops",
    "Oops: 0002 [#1] PREEMPT SMP PTI": "Oops",
    "general protection fault, probably for non-canonical address 0xdead000000000100: 0000 [#1]": "Oops",
    "Kernel panic - not syncing: Fatal exception": "Oops",
    "SError Interrupt on CPU0, code 0x00000000bf000002 -- SError": "Oops",
    "Oops [#1]": "Oops",
    "kernel BUG at fs/ext4/inode.c:2717!": "BUG fs/ext4/inode.c",
    "BUG: Bad page state in process fio  pfn:12345": "BUG Bad page state in process fio",
    "BUG: KASAN: slab-use-after-free in ext4_find_extent+0x1a4/0x2c0": "BUG KASAN",
    "BUG: scheduling while atomic: fio/412/0x00000002": "BUG scheduling while atomic",
}
REMARKS: Final = {
    "EXT4-fs warning (device mmcblk1p3): ext4_dirblock_csum_verify:404: No space": "filesystem warning",
    "kworker/u2:1: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL|__GFP_COMP)": "page allocation failure",
    "mce: [Hardware Error]: Machine check events logged": "hardware error",
    "WARNING: CPU: 0 PID: 412 at fs/ext4/inode.c:3689 ext4_iomap_begin+0x1a4/0x2c0": (
        "WARNING fs/ext4/inode.c ext4_iomap_begin"
    ),
    "WARNING: fs/ext4/inode.c:3701 at ext4_iomap_begin+0x1b0/0x2c0, CPU#0: fio/412": (
        "WARNING fs/ext4/inode.c ext4_iomap_begin"
    ),
    "WARNING: possible circular locking dependency detected": "WARNING possible circular locking dependency detected",
    "WARNING: held lock freed!": "WARNING held lock freed",
    "WARNING: HARDIRQ-safe -> HARDIRQ-unsafe lock order detected": (
        "WARNING HARDIRQ-safe -> HARDIRQ-unsafe lock order detected"
    ),
    "UBSAN: shift-out-of-bounds in drivers/mmc/core/mmc.c:412:12": "WARNING drivers/mmc/core/mmc.c",
    "EDAC MC0: 1 CE memory read error on DIMM_A (channel:0 slot:0)": "hardware error",
    "EXT4-fs (mmcblk1p2): error count since last fsck: 4": "filesystem warning",
    "BTRFS info (device mmcblk1p3): bdev /dev/mmcblk1p3 errs: wr 2, rd 0, flush 1, corrupt 0, gen 0": (
        "filesystem warning"
    ),
    "usb 1-1: USB disconnect, device number 2": "USB device lost",
    "usb 1-1: device descriptor read/64, error -71": "USB device lost",
}
HARMLESS: Final = (
    "EXT4-fs (mmcblk1p3): mounted filesystem with ordered data mode. Opts: errors=remount-ro",
    "EXT4-fs (mmcblk1p3): recovery complete",
    "mmc2: error -110 whilst initialising SDIO card",
    "brcmfmac mmc2:0001:1: Direct firmware load for brcm/fw.txt failed with error -2",
    "BTRFS info (device mmcblk1p3): using crc32c (crc32c-generic) checksum algorithm",
    "F2FS-fs (mmcblk1p3): Mounted with checkpoint version = 4e1f2a1",
    "XFS (mmcblk1p3): Ending clean mount",
    "mmcblk1: mmc1:4567 QEMU! 1.00 GiB",
    "mmc0: new ultra high speed SDR104 SDHC card at address aaaa",
    "ata1: SATA link down (SStatus 0 SControl 300)",
    "nvme nvme0: Shutdown timeout set to 8 seconds",
    "rtl8188: DEBUG: firmware loaded",
    "BTRFS info (device mmcblk1p3): bdev /dev/mmcblk1p3 errs: wr 0, rd 0, flush 0, corrupt 0, gen 0",
    "EDAC MC0: Giving out device to module igen6_edac controller Intel_client_SoC MC#0",
    "F2FS-fs (mmcblk1p2): Magic Mismatch, valid(0xf2f52010) - read(0x0)",
    "UBIFS (ubi0:0): background thread ubifs_bgt0_0 started, PID 99",
    "blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
    "ZFS: Loaded module v2.3.2-2, ZFS pool version 5000, ZFS filesystem version 5",
    "Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on, data leaks possible",
    "hwmon hwmon1: Voltage normalised",
    "usb 1-1: new high-speed USB device number 2 using ci_hdrc",
    "rcu: INFO: Hierarchical SRCU implementation.",
    "watchdog: Delayed init of the lockup detector failed: -19",
    "clocksource: Switched to clocksource arch_sys_counter",
    "Kernel command line: console=ttymxc0,115200 root=/dev/mmcblk1p2 panic=5 errors=continue",
    "random: crng init done",
)


def log(*lines: str) -> str:
    return "".join(f"[{number:5d}.000001] {line}\n" for number, line in enumerate(("ok", *lines, "ok"), start=1))


@pytest.mark.parametrize(("line", "named"), {**DOUBTFUL, **DAMAGE}.items())
def test_an_error_makes_the_measurement_invalid(line: str, named: str) -> None:
    found = list(messages(log(line)))
    assert [each.named for each in found] == [named]
    assert complaints(found) == [f"the kernel reported: {log(line).splitlines()[1]}"]
    assert is_damaged(found) is (line in DAMAGE)


@pytest.mark.parametrize(("line", "named"), REMARKS.items())
def test_a_warning_is_told_in_the_same_words_after_each_boot(line: str, named: str) -> None:
    found = list(messages(log(line)))
    told = [*remarks(found), *warnings(found)]
    assert (complaints(found), told) == (
        [],
        [named if found[0].kind.part is MessageSubject.KERNEL else f"the kernel reported: {named}"],
    )


@pytest.mark.parametrize("line", HARMLESS)
def test_healthy_boards_may_say(line: str) -> None:
    assert list(messages(log(line))) == []


def test_faults_of_the_kernel_are_a_result_of_their_own() -> None:
    oops = [*DAMAGE][:3]
    found = list(messages(log("mmc0: running CQE recovery", *oops, *oops, [*REMARKS][3])))
    assert warnings(found) == ("Oops", "WARNING fs/ext4/inode.c ext4_iomap_begin")
    assert len(complaints(found)) == len({"MMC error", "Oops"})  # the first line of each kind


def test_a_board_without_python_finds_the_same_with_grep() -> None:
    lines = [*DOUBTFUL, *DAMAGE, *REMARKS, *HARMLESS]
    script = f"dmesg() {{ cat; }}\n{grep_command()}"
    done = subprocess.run(["sh", "-c", script], input=log(*lines), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == log(*lines).splitlines()[1 : 1 + len(DOUBTFUL) + len(DAMAGE)]
    assert done.stderr == ""


def test_the_echo_of_the_search_is_no_message_of_a_kernel() -> None:
    typed = f"root@board:~# {grep_command(MessageSubject, Level)}\r\n"
    assert not re.search(PANIC, typed)
    assert list(messages(typed)) == []


def test_each_kind_has_an_example_here() -> None:
    seen = {each.kind for each in messages(log(*DOUBTFUL, *DAMAGE, *REMARKS))}
    assert {kind.name for kind in KINDS if kind.level is not Level.HARMLESS} == {kind.name for kind in seen}
