"""The judge of kernel logs: which of the kernel's messages make figures doubtful, and which are results themselves.

`KINDS` is one table for benches, the doctor and LAVA's smoke test. Its patterns are written in what POSIX's extended
regular expressions and Python's have in common, because a board without Python searches with grep.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final

from fsjoule.filesystems import FILESYSTEMS


class Level(Enum):
    """What a message means for the figures that were measured meanwhile."""

    BOOT = "the kernel is damaged: no figure of this boot counts any more"
    INVALID = "the measurement does not count"
    REMARK = "the measurement counts, and the message is told beside it"
    HARMLESS = "healthy boards say so"


class MessageSubject(StrEnum):
    """What the message is about. The value says what to look at."""

    KERNEL = "the kernel, which is at fault"
    MEMORY = "the board's memory: a smaller workload, or another board"
    POWER = "the supply and its cable, and the cooling"
    STORAGE = "the card, its contacts, the mux's cable"
    FILESYSTEM = "the filesystem's own check (fsck), and the card"


@dataclass(frozen=True, slots=True)
class MessageKind:
    """A kind of message: `pattern` finds it, `source` is the file of Linux that prints it.

    `detail` is a Python pattern whose groups tell two messages of this kind apart, the same in each boot.
    """

    name: str
    level: Level
    part: MessageSubject
    pattern: str
    source: str
    detail: str = ""
    _found: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_found", re.compile(self.pattern))

    def matches(self, line: str) -> bool:
        return self._found.search(line) is not None

    def named(self, line: str) -> str:
        """The kind, with what tells this message apart: `WARNING in fs/ext4/inode.c ext4_iomap_begin`."""
        match = re.search(self.detail, line) if self.detail else None
        return " ".join((self.name, *(group for group in match.groups() if group))) if match else self.name


_OF_FILESYSTEMS: Final = "|".join(dict.fromkeys(row.errors for row in FILESYSTEMS.values() if row.errors))

# The first that matches a line counts.
KINDS: Final = (
    # ------------------------------------------------------------------------------------------------------- harmless
    # A slot is asked for an SDIO card first, and each card that is none lets that time out.
    MessageKind(
        "no SDIO card",
        Level.HARMLESS,
        MessageSubject.STORAGE,
        r"mmc[0-9]+: error -[0-9]+ whilst initialising SDIO",
        "drivers/mmc/core/core.c",
    ),
    # A drive without a medium.
    MessageKind(
        "an empty drive",
        Level.HARMLESS,
        MessageSubject.STORAGE,
        r"I/O error.* dev (fd|sr)[0-9]",
        "drivers/block/floppy.c",
    ),
    # -------------------------------------------------------------------------------------------------------- storage
    MessageKind(
        "I/O error",
        Level.INVALID,
        MessageSubject.STORAGE,
        r"I/O error|[^A-Z]IO error|critical [a-z ]+ error, dev|device offline error, dev|lost a?sync page write"
        r"|blk_update_request: [a-z ]+ error|attempt to access beyond end of device",
        "block/blk-core.c, fs/jbd2/commit.c, fs/btrfs/disk-io.c",
    ),
    MessageKind(
        "MMC error",
        Level.INVALID,
        MessageSubject.STORAGE,
        r"mmc(blk)?[0-9]+: .*([Ee]rror|[Tt]imeout|timed out|recovery|left busy state|[Cc]ard stuck"
        r"|Unexpected interrupt|even though no [a-z]+ operation)|mmc_erase: "
        r"|(mmc|sdhci|sdhost)[^ ]* [^ ]+: .*(data error|[Tt]imeout|timed out|fatal err)",
        "drivers/mmc/core/core.c, block.c, host/*.c",
    ),
    MessageKind(
        "USB reset",
        Level.INVALID,
        MessageSubject.STORAGE,
        r"usb [0-9.-]+: reset .*USB device|port[0-9]+: disabled by hub|HC died|[Hh]ost controller .*assume dead",
        "drivers/usb/core/hub.c, drivers/usb/host/xhci-ring.c",
    ),
    MessageKind(
        "USB device lost",
        Level.REMARK,
        MessageSubject.STORAGE,
        r"usb [0-9.-]+: (USB disconnect|device descriptor read/[0-9a-z]+, error|device not accepting)"
        r"|port[0-9]+: over-current",
        "drivers/usb/core/hub.c",
    ),
    MessageKind(
        "UAS abort", Level.INVALID, MessageSubject.STORAGE, r"uas_(eh|zap)_[a-z_]+", "drivers/usb/storage/uas.c"
    ),
    MessageKind(
        "SCSI error",
        Level.INVALID,
        MessageSubject.STORAGE,
        r"Sense Key : (Medium|Hardware) Error|Sense Key : Aborted|rejecting I/O to (offline|dead)|FAILED Result: "
        r"|Device offlined|timing out command|ufshcd_(abort|check_errors|err_handler)",
        "drivers/scsi/scsi_logging.c, scsi_error.c, drivers/ufs/core/ufshcd.c",
    ),
    MessageKind(
        "NVMe error",
        Level.INVALID,
        MessageSubject.STORAGE,
        # A healthy drive may say "Shutdown timeout set to 8 seconds".
        r"nvme[^ ]*: .*(timeout,|controller is down|Abort status|Device not ready|[(]sct 0x)"
        r"|nvme nvme[0-9]+: resetting",
        "drivers/nvme/host/pci.c, core.c",
    ),
    MessageKind(
        "ATA error",
        Level.INVALID,
        MessageSubject.STORAGE,
        r"ata[0-9.]+: ((hard|soft) resetting link|failed command|exception Emask|qc timeout|COMRESET failed"
        r"|limiting (SATA link )?speed)",
        "drivers/ata/libata-eh.c",
    ),
    MessageKind(
        "block refused by dm-verity",
        Level.INVALID,
        MessageSubject.STORAGE,
        r"device-mapper: verity: .*block [0-9]+ is corrupted",
        "drivers/md/dm-verity-target.c",
    ),
    # ----------------------------------------------------------------------------------------------------- filesystem
    MessageKind(
        "filesystem error",
        Level.INVALID,
        MessageSubject.FILESYSTEM,
        rf"{_OF_FILESYSTEMS}|Remounting filesystem read-only|csum failed|[Cc]hecksum (error|mismatch|verify failed)"
        r"|[Aa]borting journal|[Aa]borted journal|forced readonly|Shutting down filesystem|has been shut down"
        r"|has been set read-only|[Dd]ata will be lost|potential data loss|(UBIFS|UBI|ubi[0-9]+|SQUASHFS) error"
        r"|erofs:? [(]device .*(failed to decompress|corrupted)",
        "fs/*/super.c, fs/ext4/inode.c, drivers/mtd/ubi/ubi.h",
    ),
    MessageKind(
        "mount option without effect",  # its series says that the filesystem has it
        Level.INVALID,
        MessageSubject.FILESYSTEM,
        r"-fs .*: [Ii]gnoring .*option|[Mm]ount option .*ignored",
        "fs/ext4/super.c, fs/f2fs/super.c",
    ),
    MessageKind(
        "filesystem warning",
        Level.REMARK,
        MessageSubject.FILESYSTEM,
        r"(EXT4-fs|BTRFS:?|XFS|F2FS-fs|NILFS|UDF-fs|FAT-fs)( \([^)]*\):)? [Ww]arning"
        r"|error count since last fsck|BTRFS .* errs: .* [1-9]",
        "fs/*/super.c",
    ),
    # ----------------------------------------------------------------------------------------------- memory and power
    MessageKind(
        "out of memory",
        Level.INVALID,
        MessageSubject.MEMORY,
        r"[Oo]ut of memory: |invoked oom-killer|oom-kill:",
        "mm/oom_kill.c",
    ),
    MessageKind(
        "page allocation failure", Level.REMARK, MessageSubject.MEMORY, r"page allocation failure", "mm/page_alloc.c"
    ),
    MessageKind(
        "under-voltage",
        Level.INVALID,
        MessageSubject.POWER,
        r"[Uu]nder-?voltage detected",
        "drivers/hwmon/raspberrypi-hwmon.c",
    ),
    MessageKind(
        "overheated",
        Level.INVALID,
        MessageSubject.POWER,
        r"temperature above threshold|critical temperature reached|clock( is)? throttled",
        "arch/x86/kernel/cpu/mce/therm_throt.c, drivers/thermal/thermal_core.c",
    ),
    MessageKind(
        "hardware error",
        Level.REMARK,
        MessageSubject.POWER,
        r"\[Hardware Error\]|AER: .*error|PCIe Bus Error|EDAC .*: [0-9]+ [CU]E ",
        "arch/x86/kernel/cpu/mce/core.c, drivers/pci/pcie/aer.c, drivers/edac/edac_mc.c",
    ),
    # --------------------------------------------------------------------------------------------------------- kernel
    MessageKind(
        "lockup",
        Level.INVALID,
        MessageSubject.KERNEL,
        r"BUG: (soft|workqueue) lockup|hard LOCKUP",
        "kernel/watchdog.c",
    ),
    MessageKind(
        "hung task",
        Level.INVALID,
        MessageSubject.KERNEL,
        r"INFO: task .* blocked (for more than|in )",
        "kernel/hung_task.c",
        r"task ([^ :]+)",
    ),
    MessageKind(
        "RCU stall",
        Level.INVALID,
        MessageSubject.KERNEL,
        r"detected (expedited )?stall|kthread starved for [0-9]+ jiffies",
        "kernel/rcu/tree_stall.h",
    ),
    MessageKind("lost interrupt", Level.INVALID, MessageSubject.KERNEL, r": nobody cared", "kernel/irq/spurious.c"),
    MessageKind(
        "clock unstable",
        Level.INVALID,
        MessageSubject.KERNEL,
        r"Marking clocksource .* as unstable",
        "kernel/time/clocksource.c",
    ),
    MessageKind(
        "Oops",
        Level.BOOT,
        MessageSubject.KERNEL,
        r"8<--- cut here|Oops( -|:| \[#)|Internal error: |Unable to handle kernel|BUG: (unable to handle|kernel NULL)"
        r"|general protection fault|SErr[o]r Int|Kernel panic - not syncing",
        "arch/arm/kernel/traps.c, arch/arm64/kernel/traps.c, arch/x86/mm/fault.c",
    ),
    MessageKind(
        "BUG",
        Level.BOOT,
        MessageSubject.KERNEL,
        # Some drivers have lines that begin with "DEBUG: ".
        r"kernel BUG at |(^|[^A-Z])BUG: ",
        "lib/bug.c, mm/page_alloc.c, mm/kasan/report.c",
        r"BUG at ([^ :]+)|BUG: ([A-Za-z]+(?: [a-z]+)*)",
    ),
    # Newer kernels name the place before the processor.
    MessageKind(
        "WARNING",
        Level.REMARK,
        MessageSubject.KERNEL,
        r"WARNING: (CPU: |[^ ]+:[0-9]+ at |(possible|inconsistent|suspicious|bad|held|lock|Nested|[A-Z]+-safe) )"
        r"|UBSAN: ",
        "kernel/panic.c, kernel/locking/lockdep.c, lib/ubsan.c",
        r"(?:at|in|WARNING:) ([a-z][^ :]*):\d+(?:(?: at)? ([A-Za-z_][\w.]*))?|WARNING: ((?:[A-Z]+-)?[a-z][a-zA-Z >-]+)",
    ),
)

_SHOWN: Final = 3
_DOUBTFUL: Final = (Level.BOOT, Level.INVALID)


@dataclass(frozen=True, slots=True)
class Message:
    """A line of a kernel log that is of a kind."""

    kind: MessageKind
    line: str

    @property
    def named(self) -> str:
        return self.kind.named(self.line)


def messages(kernel_log: str) -> Iterator[Message]:
    """The lines that are of any kind but a harmless one."""
    for line in kernel_log.splitlines():
        kind = next((kind for kind in KINDS if kind.matches(line)), None)
        if kind is not None and kind.level is not Level.HARMLESS:
            yield Message(kind, line.strip())


def doubtful(kernel_messages: Iterable[Message]) -> list[Message]:
    """The first message of each kind that makes figures doubtful, at most three."""
    first: dict[str, Message] = {}
    for each in kernel_messages:
        if each.kind.level in _DOUBTFUL:
            first.setdefault(each.kind.name, each)
    return list(first.values())[:_SHOWN]


def complaints(kernel_messages: Iterable[Message]) -> list[str]:
    """Why a measurement with these messages does not count."""
    return [f"the kernel reported: {each.line}" for each in doubtful(kernel_messages)]


def remarks(kernel_messages: Iterable[Message]) -> list[str]:
    """What the kernel said besides, once for each, in the same words after each boot."""
    lines = (
        each.named
        for each in kernel_messages
        if each.kind.level is Level.REMARK and each.kind.part is not MessageSubject.KERNEL
    )
    return [f"the kernel reported: {each}" for each in dict.fromkeys(lines)]


def warnings(kernel_messages: Iterable[Message]) -> tuple[str, ...]:
    """The faults of the kernel itself, once for each: a result that two kernels are compared by."""
    return tuple(dict.fromkeys(each.named for each in kernel_messages if each.kind.part is MessageSubject.KERNEL))


def is_damaged(kernel_messages: Iterable[Message]) -> bool:
    return any(each.kind.level is Level.BOOT for each in kernel_messages)


def grep_command(parts: Container[MessageSubject] = MessageSubject, levels: Container[Level] = _DOUBTFUL) -> str:
    """A shell command that prints those lines of a board's kernel log; it fails if there is none."""
    of_parts = [kind for kind in KINDS if kind.part in parts]
    harmless = [kind.pattern for kind in of_parts if kind.level is Level.HARMLESS]
    patterns = [kind.pattern for kind in of_parts if kind.level in levels and kind.level is not Level.HARMLESS]
    without = f"grep -Ev {_typed(harmless)} | " if harmless else ""
    return f"dmesg | {without}grep -E {_typed(patterns)}"


def _typed(patterns: Iterable[str]) -> str:
    """The patterns for a shell, each word with a bracket: who listens to the console takes no echo for a panic."""
    return shlex.quote(re.sub(r"(?<![\[\\A-Za-z-])([A-Za-z])(?=[A-Za-z]{2})", r"[\1]", "|".join(patterns)))
