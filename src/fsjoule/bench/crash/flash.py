"""Crash states of a filesystem on raw NAND: after each program of a page and each erasure, and with a page torn.

The kernel's NAND core does all of them in two functions; probes there trace them, with the pages' data. A page is
programmed at once or torn, and nothing is held back, so that an epoch has one write. The spare area is not recorded:
its checksums are made again. Source: drivers/mtd/nand/raw/nand_base.c.
"""

from __future__ import annotations

from dataclasses import dataclass

from fsjoule.bench.crash import onboard
from fsjoule.bench.crash.check import STEP_S, CrashWork, Recording
from fsjoule.bench.measurer import Measurer
from fsjoule.bench.own_command import CommandWork
from fsjoule.bench.scratch import SCRATCH_DIRECTORY, checked
from fsjoule.model.filesystem import Filesystem
from fsjoule.model.write_log import MADE, SECTOR_BYTES


@dataclass
class FlashWork(CrashWork):
    """One measurement on raw flash, on the device itself."""

    def _record(self, measurer: Measurer, kind: Filesystem) -> int:
        """Returns the sectors of an erase block."""
        shell, scratch = measurer.shell, measurer.scratch
        scratch.unmount()
        erase_size = f"/sys/class/mtd/{scratch.device.rpartition('/')[2]}/erasesize"
        block = int(checked(shell, "cat", erase_size).stdout) // SECTOR_BYTES
        measurer.install(onboard.recorder(block))
        work = CommandWork(self.entry, self.workload, self.workload.command, self.contents)
        work.put_files(measurer)
        checked(shell, onboard.RECORDER, scratch.device, timeout_s=STEP_S)
        scratch.make(kind)
        checked(shell, "sh", "-c", f"echo {MADE} > {onboard.MARKER}")
        scratch.mount(kind)
        self._run(measurer, work, work.words(SCRATCH_DIRECTORY, self.workload.command.argv, sync=False))
        scratch.unmount()
        return block

    def _checker(self, measurer: Measurer, kind: Filesystem, recording: Recording, sectors: int) -> dict[str, bytes]:
        log = recording.log
        changed = sorted({each.sector // sectors for each in log.entries[log.made :] if each.writes})
        return onboard.flash_checker(
            kind, measurer.scratch.device, sectors, changed, recording.files, marks=self.marks(measurer)
        )
