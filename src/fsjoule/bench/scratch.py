"""The filesystem under test on a booted board: freshly made on the scratch partition, or a folder of the root.

Further storage devices are brought up at first use, and identified before anything is erased.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from fsjoule.errors import BoardError, LabError, MeasurementInvalid
from fsjoule.filesystems import unmount_argv
from fsjoule.model import CARD, MIB, Provision, Storage
from fsjoule.model.filesystem import Filesystem
from fsjoule.ports import Command, CommandResult, Shell

SCRATCH_DIRECTORY: Final = "/tmp/fsjoule/scratch"  # noqa: S108 - on the board, whose /tmp is ours alone
ROOT_DIRECTORY: Final = "/fsjoule-bench"
_PURGE_TIMEOUT_S: Final = 300.0
_MAKE_TIMEOUT_S: Final = 120.0
_MOUNT_TIMEOUT_S: Final = 60.0
_SYNC_TIMEOUT_S: Final = 180.0
_LAST_WORDS: Final = 3
_SAID: Final = 300


# Loads the board's driver modules until the device appears; every image has it.
_ATTACH: Final = "/usr/lib/fsjoule/attach"
_ATTACH_TIMEOUT_S: Final = 60.0
_SECTOR_BYTES: Final = 512
_TOLERANCE: Final = 0.1  # devices are not always as large as sold


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the board's that has to succeed. If it fails, the `filesystem` is why, or else the lab."""

    command: Command
    filesystem: bool = False

    def error(self, result: CommandResult, kernel: str = "") -> LabError | MeasurementInvalid:
        """The error for its failure, with its output and what the `kernel` said last."""
        if self.filesystem:
            return MeasurementInvalid(result.argv[0], [refusal(result, kernel)])
        shown, said = " ".join(result.argv), result.stdout.strip()
        return LabError(f"on the board, `{shown}` failed ({result.exit_code}): {said[-500:]}", transient=True)


def refusal(result: CommandResult, kernel: str = "") -> str:
    """Why a program of the filesystem failed, with its output but for the middle, and what the `kernel` said last.

    Most programs say first what is wrong, and then how they are called.
    """
    said = " ".join(result.stdout.split())
    if len(said) > _SAID:
        said = f"{said[: _SAID // 2]} ... {said[-_SAID // 2 :]}"
    why = f"`{' '.join(result.argv)}` ended with exit code {result.exit_code}: {said}"
    return f"{why}; the kernel: {kernel}" if kernel else why


def lab_step(*argv: str, timeout_s: float = 30.0) -> Step:
    return Step(Command(argv, timeout_s))


def filesystem_step(*argv: str, timeout_s: float = 30.0) -> Step:
    return Step(Command(argv, timeout_s), filesystem=True)


def perform(shell: Shell, steps: Sequence[Step]) -> tuple[CommandResult, ...]:
    """Do the steps, at the cost of few round trips. Raises the error of the first one that fails."""
    results = shell.run_all([step.command for step in steps])
    for step, result in zip(steps, results, strict=False):
        if result.exit_code != 0:
            raise step.error(result, last_words(shell) if step.filesystem else "")
    return results


def last_words(shell: Shell) -> str:
    """What the kernel said last: mount(8) tells "wrong fs type" of each superblock that its kernel refuses."""
    try:
        lines = shell.run(["dmesg"]).stdout.splitlines()
    except LabError:
        return ""  # the command that failed is the first cause
    words = (re.sub(r"^(<\d+>)?\[ *[\d.]+\] *", "", line).strip() for line in lines)
    # What fsjoule did before is not why.
    said = [each for each in words if each and not re.search(r"[Uu]nmount|drop_caches", each)]
    return ", ".join(said[-_LAST_WORDS:])


def checked(shell: Shell, *argv: str, timeout_s: float = 30.0) -> CommandResult:
    """Run a program on the board. Raises LabError with its output if it fails."""
    return perform(shell, [lab_step(*argv, timeout_s=timeout_s)])[0]


def attempted(shell: Shell, *argv: str, timeout_s: float = 30.0) -> None:
    """Run a program whose failure is the filesystem's fault. Raises MeasurementInvalid with its output if it fails."""
    perform(shell, [filesystem_step(*argv, timeout_s=timeout_s)])


@dataclass
class Scratch:
    """The device of one boot that may be overwritten; `purge` discards it before each make, `identity` gives UUIDs.

    `ageing` replays the use of an aged filesystem that was just made.
    """

    shell: Shell
    device: str
    purge: bool
    identity: Callable[[], UUID | None] = lambda: None
    ageing: Callable[[Scratch, Filesystem], None] = lambda _scratch, _kind: None

    def make(self, filesystem: Filesystem) -> None:
        """Make a fresh, unmounted filesystem. Raises MeasurementInvalid if that fails, BoardError for a used device."""
        perform(self.shell, self.making(filesystem))
        self.ageing(self, filesystem)

    def making(self, filesystem: Filesystem) -> list[Step]:
        """The steps of `make`. Raises BoardError for a used device."""
        mounts = self._mounts()
        # Discarding asks nobody, not even a mounted root.
        if re.search(rf"^{re.escape(self.device)} (?!{SCRATCH_DIRECTORY} )", mounts, re.MULTILINE):
            raise BoardError(
                f"{self.device}, which may be overwritten, is mounted on the board: nothing was written",
                transient=False,
                hint="the environment file's scratch_device is another partition than the root",
            )
        steps = _unmounting(mounts)
        if self.purge:
            steps.append(lab_step("blkdiscard", "-f", self.device, timeout_s=_PURGE_TIMEOUT_S))
        if not filesystem.raw:
            make = filesystem.make_argv(self.device, self.identity())
            steps.append(filesystem_step(*make, timeout_s=_MAKE_TIMEOUT_S))
        return steps

    def mount(self, filesystem: Filesystem) -> str:
        """Mount the filesystem; returns the directory. Raises MeasurementInvalid if that fails."""
        perform(self.shell, self.mounting(filesystem))
        return SCRATCH_DIRECTORY

    def mounting(self, filesystem: Filesystem) -> list[Step]:
        """The steps of `mount`."""
        mount = filesystem.mount_argv(self.device, SCRATCH_DIRECTORY)
        return [
            lab_step("mkdir", "-p", SCRATCH_DIRECTORY),
            filesystem_step(*mount, timeout_s=_MOUNT_TIMEOUT_S),
        ]

    def forgetting(self, filesystem: Filesystem) -> list[Step]:
        """The steps that empty the cache of a mounted filesystem that has its own."""
        if not filesystem.keeps_cache:
            return []
        unmount = filesystem.unmount_argv(SCRATCH_DIRECTORY)
        return [lab_step(*unmount, timeout_s=_SYNC_TIMEOUT_S), *self.mounting(filesystem)]

    def unmount(self) -> str:
        """Unmount if mounted: an operation that failed half-way must not make the next one fail.

        Returns what was mounted on the board, in the form of /proc/mounts.
        """
        mounts = self._mounts()
        if steps := _unmounting(mounts):
            perform(self.shell, steps)
        return mounts

    def _mounts(self) -> str:
        return checked(self.shell, "cat", "/proc/mounts").stdout


def _unmounting(mounts: str) -> list[Step]:
    """The step that unmounts the scratch filesystem, if it is mounted according to /proc/mounts."""
    types = re.findall(rf"^\S+ {SCRATCH_DIRECTORY} (\S+) ", mounts, re.MULTILINE)
    return [lab_step(*unmount_argv(types[-1], SCRATCH_DIRECTORY), timeout_s=_SYNC_TIMEOUT_S)] if types else []


def working_directory(scratch: Scratch, filesystem: Filesystem, provision: Provision) -> str:
    """An empty directory on the filesystem under test, or the device itself for `raw`."""
    directory, steps = provisioning(scratch, filesystem, provision)
    perform(scratch.shell, steps)
    return directory


def provisioning(scratch: Scratch, filesystem: Filesystem, provision: Provision) -> tuple[str, list[Step]]:
    """The directory of `working_directory`, and the steps that make it."""
    if provision is Provision.SCRATCH:
        steps = scratch.making(filesystem)
        if filesystem.raw:
            return scratch.device, steps
        if filesystem.age:
            scratch.make(filesystem)
            steps = []
        return SCRATCH_DIRECTORY, [*steps, *scratch.mounting(filesystem)]
    root = root_type(scratch.shell)
    if root != filesystem.kernel_type:
        raise BoardError(f"the board's root is {root}, not {filesystem.name}", transient=False)
    return ROOT_DIRECTORY, [
        lab_step("rm", "-rf", ROOT_DIRECTORY, timeout_s=_SYNC_TIMEOUT_S),
        lab_step("mkdir", ROOT_DIRECTORY),
    ]


def root_type(shell: Shell) -> str:
    """The kernel's name for the root filesystem's type."""
    mounts = checked(shell, "cat", "/proc/mounts").stdout
    types = re.findall(r"^\S+ / (\S+) ", mounts, re.MULTILINE)
    return types[-1] if types else "unknown"


def settling() -> list[Step]:
    """The steps that write all dirty pages back and drop the caches, so that a window starts from the card."""
    return [
        lab_step("sync", timeout_s=_SYNC_TIMEOUT_S),
        lab_step("sh", "-c", "echo 3 > /proc/sys/vm/drop_caches"),
    ]


def attach(shell: Shell, name: str, storage: Storage) -> str:
    """Bring a storage device up; returns its own name for people and for the series: `QEMU NVMe Ctrl`.

    Raises BoardError if it does not appear, or if its size differs from the environment file's, because all of it is
    going to be overwritten.
    """
    attached = shell.run((_ATTACH, storage.device), timeout_s=_ATTACH_TIMEOUT_S)
    if attached.exit_code != 0:
        raise BoardError(
            f"the board has no {name}: {attached.stdout.strip()[-300:]}",
            hint="does the environment file name the board's block device, and does the kernel have its driver?",
            transient=False,
        )
    block = f"/sys/class/block/{storage.device}"
    size_bytes = int(checked(shell, "cat", f"{block}/size").stdout) * _SECTOR_BYTES
    if abs(size_bytes - storage.size_bytes) > _TOLERANCE * storage.size_bytes:
        raise BoardError(
            f"{name} is {storage.device} with {size_bytes / MIB:.0f} MiB, and the environment file says "
            f"{storage.size_bytes / MIB:.0f} MiB: it was not touched",
            hint="correct the device or the size in the environment file",
            transient=False,
        )
    for file in ("device/model", "device/name"):
        answer = shell.run(("cat", f"{block}/{file}"))
        if answer.exit_code == 0 and answer.stdout.strip():
            return f"{name} {answer.stdout.strip()}"
    return name


def takes_discards(shell: Shell, storage: Storage) -> bool:
    """Whether an attached device can be purged; most sticks cannot. True if the kernel does not say."""
    answer = shell.run(("cat", f"/sys/class/block/{storage.device}/queue/discard_max_bytes"))
    return answer.exit_code != 0 or answer.stdout.strip() != "0"


def name_of(reported: str, further: Iterable[str]) -> str:
    """The board's name for a series' storage, as `reported` by `attach`; the card's name for any other."""
    return next((name for name in further if reported == name or reported.startswith(f"{name} ")), CARD)


def scratch_node(storage: Storage) -> str:
    """A node that no program takes for a whole disk's: zpool would partition it, and wait for udev."""
    return f"/dev/fsjoule/{storage.device}"
