"""Operations that are timed as a whole: the state from which each starts, and its command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from fsjoule.bench.onboard import files as onboard_files
from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.scratch import SCRATCH_DIRECTORY, Scratch, attempted, checked
from fsjoule.errors import MeasurementInvalid
from fsjoule.model import KIB, Space, TimedKind, TimedWorkload
from fsjoule.model.filesystem import Filesystem
from fsjoule.ports import Shell

_TIME_LIMIT_S: Final = 300.0
_FILES_TIME_LIMIT_S: Final = 1800.0
# Copying from the board's memory reads nothing from the card; copying from the root filesystem does.
_IN_MEMORY: Final = f"{onboard.DIRECTORY}/source"
_ON_ROOT: Final = "/fsjoule-source"
_RANDOM_BYTES_PER_S: Final = 0.5 * 1024 * KIB


@dataclass(frozen=True, slots=True)
class TimedWork:
    """One timed operation on the scratch partition. `identity` returns the UUID of the next filesystem."""

    scratch: Scratch
    kind: Filesystem
    workload: TimedWorkload
    identity: Callable[[], UUID | None]

    @property
    def _shell(self) -> Shell:
        return self.scratch.shell

    @property
    def unmounts_after(self) -> tuple[str, ...]:
        """The command that unmounts the filesystem after the operation, in the same window; empty if there is none."""
        return self.kind.unmount_argv(SCRATCH_DIRECTORY) if self.workload.operation.on_files else ()

    @property
    def time_limit_s(self) -> float:
        return _FILES_TIME_LIMIT_S if self.workload.operation.on_files else _TIME_LIMIT_S

    def prepare(self) -> tuple[str, ...]:
        """Bring about the operation's initial state; returns the operation's command. Raises MeasurementInvalid."""
        workload, device = self.workload, self.scratch.device
        self.scratch.unmount()
        if workload.operation is not TimedKind.MKFS:
            self.scratch.make(self.kind)
        match workload.operation:
            case TimedKind.MKFS:
                return self.kind.make_argv(device, self.identity())
            case TimedKind.MOUNT:
                if workload.fill:
                    self._filled(workload.fill)
                    self.scratch.unmount()
                checked(self._shell, "mkdir", "-p", SCRATCH_DIRECTORY)
                return self.kind.mount_argv(self.scratch.node(self.kind), SCRATCH_DIRECTORY)
            case TimedKind.UMOUNT:
                self.scratch.mount(self.kind)
                return self.kind.unmount_argv(SCRATCH_DIRECTORY)
            case TimedKind.FSCK:
                return self.kind.check_argv(device)
            case TimedKind.COPY:
                source = _ON_ROOT if workload.from_root else _IN_MEMORY
                self._random_file(source, workload.size_bytes)
                directory = self.scratch.mount(self.kind)
                # A copy is complete once it has reached the card.
                return ("sh", "-c", f"cp {source} {directory}/copy && sync")
            case TimedKind.BOOT:
                raise ValueError("a boot is measured by the run, not on a booted board")
            case _:
                return self._prepare_files()

    def space(self) -> Space | None:
        """The space of the filesystem just made, and the number of kernel threads that its mount adds."""
        if self.workload.operation is not TimedKind.MKFS:
            return None
        before = self._kernel_threads()
        directory = self.scratch.mount(self.kind)
        answer = checked(self._shell, "stat", "-f", "-c", "%S %b %f", directory).stdout.split()
        after = self._kernel_threads()
        self.scratch.unmount()
        block, total, free = (int(word) for word in answer)
        return Space(block * total, block * (total - free), max(0, after - before))

    def _prepare_files(self) -> tuple[str, ...]:
        directory, workload = SCRATCH_DIRECTORY, self.workload
        match workload.operation:
            case TimedKind.WRITE_FILES:
                operation = onboard_files.write(directory, workload.size_bytes)
            case TimedKind.HASH_FILES:
                self.scratch.mount(self.kind)
                self._run(onboard_files.write(directory, workload.size_bytes))
                self.scratch.unmount()
                operation = onboard_files.hash_all(directory)
            case TimedKind.FRAGMENT:
                self._make_block()
                operation = onboard_files.fragment(directory, workload.fill)
            case _:
                self._filled(workload.fill)
                self.scratch.unmount()
                operation = onboard_files.remove_all(directory)
        self.scratch.mount(self.kind)
        return operation

    def _filled(self, share: float) -> None:
        self._make_block()
        self.scratch.mount(self.kind)
        self._run(onboard_files.fill(SCRATCH_DIRECTORY, share))

    def _run(self, argv: tuple[str, ...]) -> None:
        attempted(self._shell, *argv, timeout_s=_FILES_TIME_LIMIT_S)

    def _make_block(self) -> None:
        self._random_file(onboard_files.BLOCK, onboard_files.BLOCK_BYTES)

    def _random_file(self, path: str, size_bytes: int) -> None:
        """Make a file of random bytes, which no filesystem can compress; an existing file of this size is kept."""
        present = self._shell.run(("stat", "-c", "%s", path))
        if present.exit_code == 0 and present.stdout.strip() == str(size_bytes):
            return
        limit_s = 30.0 + size_bytes / _RANDOM_BYTES_PER_S
        count = str(size_bytes // KIB)
        made = self._shell.run(("dd", "if=/dev/urandom", f"of={path}", "bs=1024", f"count={count}"), timeout_s=limit_s)
        if made.exit_code != 0:
            raise MeasurementInvalid("source", [f"the file to copy could not be made: {made.stdout.strip()[-200:]}"])

    def _kernel_threads(self) -> int:
        return onboard.kernel_thread_count(checked(self._shell, *onboard.THREADS).stdout)
