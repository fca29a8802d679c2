"""The filesystem under test on a booted board: freshly made on the scratch partition, or a folder of the root."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from fsjoule.errors import BoardError, LabError, MeasurementInvalid
from fsjoule.filesystems import unmount_argv
from fsjoule.model import Provision
from fsjoule.model.filesystem import Filesystem
from fsjoule.ports import CommandResult, Shell

SCRATCH_DIRECTORY: Final = "/tmp/fsjoule/scratch"  # noqa: S108 - on the board, whose /tmp is ours alone
ROOT_DIRECTORY: Final = "/fsjoule-bench"
_PURGE_TIMEOUT_S: Final = 300.0
_MAKE_TIMEOUT_S: Final = 120.0
_MOUNT_TIMEOUT_S: Final = 60.0
_SYNC_TIMEOUT_S: Final = 180.0


def checked(shell: Shell, *argv: str, timeout_s: float = 30.0) -> CommandResult:
    """Run a program on the board. Raises LabError with its output if it fails."""
    result = shell.run(argv, timeout_s=timeout_s)
    if result.exit_code != 0:
        said = result.stdout.strip()[-500:]
        raise LabError(f"on the board, `{' '.join(argv)}` failed ({result.exit_code}): {said}", transient=True)
    return result


def attempted(shell: Shell, *argv: str, timeout_s: float = 30.0) -> None:
    """Run a program whose failure is the filesystem's fault. Raises MeasurementInvalid with its output if it fails."""
    result = shell.run(argv, timeout_s=timeout_s)
    if result.exit_code != 0:
        said = result.stdout.strip()[-300:]
        raise MeasurementInvalid(argv[0], [f"`{' '.join(argv)}` ended with exit code {result.exit_code}: {said}"])


@dataclass
class Scratch:
    """The device of one boot that may be overwritten; `purge` discards it before each make, `identity` gives UUIDs."""

    shell: Shell
    device: str
    purge: bool
    identity: Callable[[], UUID | None] = lambda: None

    def make(self, filesystem: Filesystem) -> None:
        """Make a fresh, unmounted filesystem. Raises MeasurementInvalid if that fails, BoardError for a used device."""
        # Discarding asks nobody, not even a mounted root.
        if re.search(rf"^{re.escape(self.device)} (?!{SCRATCH_DIRECTORY} )", self.unmount(), re.MULTILINE):
            raise BoardError(
                f"{self.device}, which may be overwritten, is mounted on the board: nothing was written",
                transient=False,
                hint="the environment file's scratch_device is another partition than the root",
            )
        if self.purge:
            checked(self.shell, "blkdiscard", "-f", self.device, timeout_s=_PURGE_TIMEOUT_S)
        if filesystem.raw:
            return
        attempted(self.shell, *filesystem.make_argv(self.device, self.identity()), timeout_s=_MAKE_TIMEOUT_S)

    def mount(self, filesystem: Filesystem) -> str:
        """Mount the filesystem; returns the directory. Raises MeasurementInvalid if that fails."""
        checked(self.shell, "mkdir", "-p", SCRATCH_DIRECTORY)
        attempted(self.shell, *filesystem.mount_argv(self.device, SCRATCH_DIRECTORY), timeout_s=_MOUNT_TIMEOUT_S)
        return SCRATCH_DIRECTORY

    def forget(self, filesystem: Filesystem) -> None:
        """Empty the cache of a mounted filesystem that has its own. Raises as `mount` does."""
        if filesystem.keeps_cache:
            self.unmount()
            self.mount(filesystem)

    def unmount(self) -> str:
        """Unmount if mounted: an operation that failed half-way must not make the next one fail.

        Returns what was mounted on the board, in the form of /proc/mounts.
        """
        mounts = checked(self.shell, "cat", "/proc/mounts").stdout
        if types := re.findall(rf"^\S+ {SCRATCH_DIRECTORY} (\S+) ", mounts, re.MULTILINE):
            checked(self.shell, *unmount_argv(types[-1], SCRATCH_DIRECTORY), timeout_s=_SYNC_TIMEOUT_S)
        return mounts


def working_directory(scratch: Scratch, filesystem: Filesystem, provision: Provision) -> str:
    """An empty directory on the filesystem under test, or the device itself for `raw`."""
    if provision is Provision.SCRATCH:
        scratch.make(filesystem)
        return scratch.device if filesystem.raw else scratch.mount(filesystem)
    root = root_type(scratch.shell)
    if root != filesystem.kernel_type:
        raise BoardError(f"the board's root is {root}, not {filesystem.name}", transient=False)
    checked(scratch.shell, "rm", "-rf", ROOT_DIRECTORY, timeout_s=_SYNC_TIMEOUT_S)
    checked(scratch.shell, "mkdir", ROOT_DIRECTORY)
    return ROOT_DIRECTORY


def root_type(shell: Shell) -> str:
    """The kernel's name for the root filesystem's type."""
    mounts = checked(shell, "cat", "/proc/mounts").stdout
    types = re.findall(r"^\S+ / (\S+) ", mounts, re.MULTILINE)
    return types[-1] if types else "unknown"


def settle(shell: Shell) -> None:
    """Write all dirty pages back and drop the caches, so that a window starts from the card."""
    checked(shell, "sync", timeout_s=_SYNC_TIMEOUT_S)
    checked(shell, "sh", "-c", "echo 3 > /proc/sys/vm/drop_caches")
