"""Surveys a filesystem after its device was cut off or has damaged it: mounts, reads, checks and repairs it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fsjoule.bench.judge import Evidence
from fsjoule.bench.measurer import IDLE_S, Measurer
from fsjoule.bench.onboard import survival as onboard_safety
from fsjoule.bench.onboard.survival import Promised
from fsjoule.bench.scratch import SCRATCH_DIRECTORY, checked
from fsjoule.errors import BoardError
from fsjoule.model import FileFate, Outcome
from fsjoule.model.filesystem import Filesystem

_MOUNT_TIMEOUT_S: Final = 180.0
_READ_TIMEOUT_S: Final = 300.0
_CHECK_TIMEOUT_S: Final = 300.0
_WARNINGS: Final = ("dmesg", "--level", "emerg,alert,crit,err,warn")


@dataclass
class Survey:
    """Looks for files that a filesystem promised to keep. Findings are stored at once, in case the board panics."""

    measurer: Measurer
    kind: Filesystem
    promised: Sequence[Promised]
    mounts: bool = False
    read_only: bool = False
    fates: dict[str, FileFate] = dataclasses.field(default_factory=dict[str, FileFate])
    messages: tuple[str, ...] = ()
    check_exit: int | None = None
    repaired: bool | None = None

    def run(self, number: int) -> Evidence:
        """Mount, with time and energy measured, and look. A failing program or a panic is a finding."""
        self.fates = onboard_safety.all_refused(self.promised)
        evidence = Evidence(trace=None, marks=("", ""), idle_s=IDLE_S)
        try:
            evidence = self._mount(number)
            with self.measurer.phases("survey"):
                if self.mounts:
                    self._read()
                    # Last, because reading damaged data can make a filesystem read-only.
                    self.read_only = self._is_read_only()
                    self.measurer.scratch.unmount()
                self.messages = onboard_safety.messages(checked(self.measurer.shell, *_WARNINGS).stdout)
                self._check()
        except BoardError as error:
            evidence.board_lost = True
            self.messages = (*self.messages, error.what)
        evidence.outcome = self._outcome()
        return evidence

    def _mount(self, number: int) -> Evidence:
        device = self.measurer.scratch.device
        checked(self.measurer.shell, "mkdir", "-p", SCRATCH_DIRECTORY)
        argv = self.kind.mount_argv(device, SCRATCH_DIRECTORY)
        evidence, mounted = self.measurer.timed(number, argv, time_limit_s=_MOUNT_TIMEOUT_S)
        self.mounts = mounted.exit_code == 0
        if not self.mounts:
            said = mounted.stdout.strip().partition("\n")[0]
            evidence.notes.append(f"the filesystem could not be mounted: {said}")
            options = (*self.kind.mount_options, "ro")
            argv = dataclasses.replace(self.kind, mount_options=options).mount_argv(device, SCRATCH_DIRECTORY)
            self.mounts = self.measurer.shell.run(argv, timeout_s=_MOUNT_TIMEOUT_S).exit_code == 0
        return evidence

    def _read(self) -> None:
        shell = self.measurer.shell
        shell.put(onboard_safety.LIST, onboard_safety.file_list(self.promised))
        read = shell.run((onboard_safety.INSPECTOR, SCRATCH_DIRECTORY), timeout_s=_READ_TIMEOUT_S)
        self.fates = onboard_safety.fates(read.stdout, self.promised)

    def _is_read_only(self) -> bool:
        mounts = checked(self.measurer.shell, "cat", "/proc/mounts").stdout
        return onboard_safety.is_read_only(mounts, SCRATCH_DIRECTORY)

    def _check(self) -> None:
        shell, device = self.measurer.shell, self.measurer.scratch.device
        if self.kind.check:
            checking = shell.run(self.kind.check_argv(device), timeout_s=_CHECK_TIMEOUT_S)
            self.check_exit = checking.exit_code
        if self.kind.repair and (not self.mounts or self.check_exit):
            shell.run((*self.kind.repair, device), timeout_s=_CHECK_TIMEOUT_S)
            argv = self.kind.mount_argv(device, SCRATCH_DIRECTORY)
            self.repaired = shell.run(argv, timeout_s=_MOUNT_TIMEOUT_S).exit_code == 0
            if self.repaired and not self.mounts:
                self._read()
            self.measurer.scratch.unmount()

    def _outcome(self) -> Outcome:
        return Outcome(
            files=onboard_safety.counted(self.fates),
            mounts=self.mounts,
            read_only=self.read_only,
            check_exit=self.check_exit,
            check_clean=None if self.check_exit is None else self.check_exit == 0,
            damaged=onboard_safety.named(self.fates),
            repaired=self.repaired,
            messages=self.messages,
        )
