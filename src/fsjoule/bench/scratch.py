"""The filesystem under test on a booted board: freshly made on the scratch partition, or a folder of the root.

Further storage devices are brought up at first use, and identified before anything is erased.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol
from uuid import UUID

from fsjoule.bench import data_image
from fsjoule.bench.media import MEDIA, RESERVE_OF_1024, names_in_mounts
from fsjoule.errors import BoardError, LabError, MeasurementInvalid
from fsjoule.filesystems import unmount_argv
from fsjoule.layers import NOTHING, ChosenLayer, Stack, drivers
from fsjoule.model import CARD, MIB, Provision, Storage
from fsjoule.model.emmc import NO_CACHE, WITHOUT_CACHE
from fsjoule.model.filesystem import Filesystem
from fsjoule.model.layer import LayerPlace, layered, of_series
from fsjoule.model.medium import medium_of
from fsjoule.ports import Command, CommandResult, Shell

SCRATCH_DIRECTORY: Final = "/tmp/fsjoule/scratch"  # noqa: S108 - on the board, whose /tmp is ours alone
ROOT_DIRECTORY: Final = "/fsjoule-bench"
_PURGE_TIMEOUT_S: Final = 300.0
_LAYER_TIMEOUT_S: Final = 1800.0  # some write the whole device
_MAKE_TIMEOUT_S: Final = 120.0
_MOUNT_TIMEOUT_S: Final = 60.0
_SYNC_TIMEOUT_S: Final = 180.0
_LAST_WORDS: Final = 3
_SAID: Final = 300


# Loads the board's driver modules until the device appears; every image has it.
_ATTACH: Final = "/usr/lib/fsjoule/attach"
_ATTACH_TIMEOUT_S: Final = 60.0
_TOLERANCE: Final = 0.1  # devices are not always as large as sold


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the board's that has to succeed. If it fails, the `filesystem` is why, or else the lab.

    `called` is its name in errors, instead of its words.
    """

    command: Command
    filesystem: bool = False
    called: str = ""

    def error(self, result: CommandResult, kernel: str = "") -> LabError | MeasurementInvalid:
        """The error for its failure, with its output and what the `kernel` said last."""
        result = replace(result, argv=(self.called,)) if self.called else result
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


class AgeingProgram(Protocol):
    """Gives filesystems their age."""

    def put(self, scratch: Scratch, kind: Filesystem) -> bool:
        """Put a filesystem with its age onto an unused device, if that can be done."""
        ...

    def age(self, scratch: Scratch, kind: Filesystem) -> object:
        """Replay the use of a filesystem that was just made, and is unmounted."""
        ...


@dataclass
class Scratch:
    """The device of one boot that may be overwritten; `purge` discards it before each make, `identity` gives UUIDs.

    With a `stack` filesystems are on `device`, its highest one, and `below` is what may be overwritten. `ageing`
    gives an aged filesystem its age.
    """

    shell: Shell
    device: str
    purge: bool
    identity: Callable[[], UUID | None] = lambda: None
    ageing: AgeingProgram | None = None
    stack: Stack = NOTHING
    below: str = ""
    disk: str = ""
    _checked: bool = field(default=False, init=False)

    def set_up(self, stack: Stack, device: str, disk: str) -> None:
        """Put layers above a device of a disk, instead of those that were.

        Nothing may be mounted. Raises BoardError for a used device, and MeasurementInvalid for a layer that the board
        refuses, with no layer left behind.
        """
        if gone := self._down():
            perform(self.shell, gone)
        self.device = self.below = device
        self.stack, self.disk = stack, disk
        if not stack.layers:
            return
        self._check_unused(self._mounts())
        try:
            perform(self.shell, self._up(prepares=True))
        except MeasurementInvalid:
            perform(self.shell, self._down())
            raise
        self.device = self._levels()[1]

    def drivers(self) -> str:
        """The kernel's drivers of the layers' ciphers and checksums, once they have worked: `xts(aes) by xts-aes`."""
        if not self.stack.algorithms:
            return ""
        found = drivers(checked(self.shell, "cat", "/proc/crypto").stdout, self.stack.algorithms)
        return ", ".join(f"{name} by {driver}" for name, driver in found.items())

    def _levels(self) -> tuple[list[tuple[ChosenLayer, dict[str, str]]], str]:
        """Each layer with what stands for something in its programs, lowest first; and the highest device."""
        levels: list[tuple[ChosenLayer, dict[str, str]]] = []
        device = self.below
        for level, each in enumerate(self.stack.layers):
            node = f"fsjoule-{level}"
            given = {"device": device, "node": node, "disk": self.disk, "directory": SCRATCH_DIRECTORY}
            levels.append((each, given))
            device = f"/dev/mapper/{node}" if each.row.place is LayerPlace.DEVICE else device
        return levels, device

    def _up(self, *, prepares: bool = False, mounted: bool = False) -> list[Step]:
        """The steps that set the layers up: those on the `mounted` filesystem, or the others."""
        return [
            Step(Command(each.argv(program, **given), _LAYER_TIMEOUT_S), filesystem=True, called=f"layer {each.name}")
            for each, given in self._levels()[0]
            if (each.row.place is LayerPlace.DIRECTORY) is mounted
            for program in (each.row.prepare if prepares else (), each.row.up)
            if program
        ]

    def _down(self) -> list[Step]:
        """The steps that take the layers away, highest first, whichever of them are there."""
        return [
            lab_step(*each.argv(each.row.down, **given), timeout_s=_MOUNT_TIMEOUT_S)
            for each, given in reversed(self._levels()[0])
            if each.row.place is not LayerPlace.DIRECTORY
        ]

    def _check_unused(self, mounts: str) -> None:
        """Raise BoardError if the device is mounted elsewhere. Discarding asks nobody, not even a mounted root."""
        for device in filter(None, dict.fromkeys((self.device, self.below))):
            named = "|".join(map(re.escape, names_in_mounts(device)))
            if re.search(rf"^({named}) (?!{SCRATCH_DIRECTORY} )", mounts, re.MULTILINE):
                raise BoardError(
                    f"{device}, which may be overwritten, is mounted on the board: nothing was written",
                    transient=False,
                    hint="the environment file's scratch_device is another partition than the root",
                )

    def make(self, filesystem: Filesystem) -> None:
        """Make a fresh, unmounted filesystem. Raises MeasurementInvalid if that fails, BoardError for a used device."""
        ageing = self.ageing if filesystem.age else None
        if ageing is not None:
            perform(self.shell, self._unused())
            if ageing.put(self, filesystem):
                return
        perform(self.shell, self.making(filesystem))
        if ageing is not None:
            ageing.age(self, filesystem)

    def making(
        self, filesystem: Filesystem, files: Sequence[Step] = (), files_bytes: int = data_image.MOUNTED_BYTES
    ) -> list[Step]:
        """The steps of `make`; `files` lay out those of a read-only filesystem. Raises BoardError for a used device."""
        steps = self._unused()
        if self.purge and self.stack.layers and not self.stack.is_prepared:
            purge = lab_step("blkdiscard", "-f", self.below, timeout_s=_PURGE_TIMEOUT_S)
            steps += [*self._down(), purge, *self._up()]
        elif self.purge and not self.stack.layers:
            steps.append(lab_step("blkdiscard", "-f", self.device, timeout_s=_PURGE_TIMEOUT_S))
        if filesystem.read_only:
            steps += self._image(filesystem, files, files_bytes)
        elif not filesystem.raw:
            make = filesystem.make_argv(self.device, self.identity())
            steps.append(filesystem_step(*make, timeout_s=_MAKE_TIMEOUT_S))
        return steps

    def _image(self, filesystem: Filesystem, files: Sequence[Step], files_bytes: int) -> list[Step]:
        limit_s = data_image.TIMEOUT_S
        self._checked |= filesystem.verity
        made = data_image.image_argvs(filesystem, self.device, self.identity(), files_bytes)
        return [
            *(lab_step(*argv) for argv in data_image.FOLDER_ARGVS),
            *(files or [lab_step(*data_image.ONE_FILE_ARGV)]),
            lab_step(*data_image.FILL_ARGV, timeout_s=limit_s),
            *(filesystem_step(*argv, timeout_s=limit_s) for argv in made),
            lab_step(*data_image.CLEAR_ARGV),
        ]

    def mount(self, filesystem: Filesystem) -> str:
        """Mount the filesystem; returns the directory. Raises MeasurementInvalid if that fails."""
        perform(self.shell, self.mounting(filesystem))
        return SCRATCH_DIRECTORY

    def node(self, filesystem: Filesystem) -> str:
        """The device that is mounted."""
        return data_image.VERITY_NODE if filesystem.verity else self.device

    def mounting(self, filesystem: Filesystem) -> list[Step]:
        """The steps of `mount`."""
        mount = filesystem.mount_argv(self.node(filesystem), SCRATCH_DIRECTORY)
        return [
            lab_step("mkdir", "-p", SCRATCH_DIRECTORY),
            filesystem_step(*mount, timeout_s=_MOUNT_TIMEOUT_S),
            *self._up(mounted=True),
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
        if steps := self._freeing(mounts):
            perform(self.shell, steps)
        return mounts

    def _unused(self) -> list[Step]:
        """The steps after which nothing uses the device. Raises BoardError for a used device."""
        mounts = self._mounts()
        self._check_unused(mounts)
        return self._freeing(mounts)

    def _freeing(self, mounts: str) -> list[Step]:
        """The steps after which nothing uses the device."""
        release = MEDIA[medium_of(self.device.removeprefix("/dev/"))].release
        closing = (data_image.CLOSE_ARGV if self._checked else (), release)
        return [*_unmounting(mounts), *(lab_step(*argv) for argv in closing if argv)]

    def _mounts(self) -> str:
        return checked(self.shell, "cat", "/proc/mounts").stdout


def _unmounting(mounts: str) -> list[Step]:
    """The steps that unmount the scratch filesystem, and a folder in its place, as far as /proc/mounts has them."""
    types = re.findall(rf"^\S+ {SCRATCH_DIRECTORY} (\S+) ", mounts, re.MULTILINE)
    return [lab_step(*unmount_argv(each, SCRATCH_DIRECTORY), timeout_s=_SYNC_TIMEOUT_S) for each in reversed(types)]


def working_directory(scratch: Scratch, filesystem: Filesystem, provision: Provision) -> str:
    """An empty directory on the filesystem under test, or the device itself for `raw`."""
    directory, steps = provisioning(scratch, filesystem, provision)
    perform(scratch.shell, steps)
    return directory


def provisioning(scratch: Scratch, filesystem: Filesystem, provision: Provision) -> tuple[str, list[Step]]:
    """The directory of `working_directory`, and the steps that make it."""
    if provision is Provision.SCRATCH:
        if filesystem.age:
            scratch.make(filesystem)
            return SCRATCH_DIRECTORY, scratch.mounting(filesystem)
        steps = scratch.making(filesystem)
        if filesystem.raw:
            return scratch.device, steps
        return SCRATCH_DIRECTORY, [*steps, *scratch.mounting(filesystem)]
    if filesystem.read_only:
        raise BoardError(f"the board's root {filesystem.name} is read-only: no file can be put there", transient=False)
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
    attached = shell.run((_ATTACH, storage.device, *storage.module.split()), timeout_s=_ATTACH_TIMEOUT_S)
    if attached.exit_code != 0:
        raise BoardError(
            f"the board has no {name}: {attached.stdout.strip()[-300:]}",
            hint=f"does the environment file name the board's {storage.medium}, and does the kernel have its driver?",
            transient=False,
        )
    row = MEDIA[storage.medium]
    size_bytes = _number(shell, row.size, storage) * row.unit_bytes
    if abs(size_bytes - storage.size_bytes) > _TOLERANCE * storage.size_bytes:
        raise BoardError(
            f"{name} is {storage.device} with {size_bytes / MIB:.0f} MiB, and the environment file says "
            f"{storage.size_bytes / MIB:.0f} MiB: it was not touched",
            hint="correct the device or the size in the environment file",
            transient=False,
        )
    if row.bad_blocks:
        bad, block_bytes = (_number(shell, each, storage) for each in row.bad_blocks)
        blocks = size_bytes // block_bytes
        reserve = math.ceil(blocks * RESERVE_OF_1024 / 1024)
        if bad > reserve:
            raise BoardError(
                f"{name} has {bad} bad blocks of {blocks}, and {reserve} are held in reserve: nothing was written",
                hint="it is worn out: replace it",
                transient=False,
            )
    if row.prepare:
        shell.run(("sh", "-c", row.prepare))
    for file in row.titles:
        answer = shell.run(("cat", file.format(device=storage.device)))
        if answer.exit_code == 0 and answer.stdout.strip():
            return f"{name} {answer.stdout.strip()}"
    return name


def _number(shell: Shell, file: str, storage: Storage) -> int:
    return int(checked(shell, "cat", file.format(device=storage.device)).stdout)


def takes_discards(shell: Shell, storage: Storage) -> bool:
    """Whether an attached device can be purged; most sticks cannot. True if the kernel does not say."""
    row = MEDIA[storage.medium]
    if not row.discards:
        return False
    answer = shell.run(("cat", row.discards.format(device=storage.device)))
    return answer.exit_code != 0 or answer.stdout.strip() != "0"


def name_of(reported: str, further: Iterable[str]) -> str:
    """The board's name for a series' storage, as `reported` by `attach`; the card's name for any other.

    With layers it has them too, and a setting.
    """
    device, layers = of_series(reported)
    plain, setting, _ = device.partition(WITHOUT_CACHE)
    name = next((name for name in further if plain == name or plain.startswith(f"{name} ")), CARD)
    return layered(f"{name}:{NO_CACHE}" if setting else name, layers)


def scratch_node(storage: Storage) -> str:
    """The node that filesystems are made on."""
    return MEDIA[storage.medium].node.format(device=storage.device)
