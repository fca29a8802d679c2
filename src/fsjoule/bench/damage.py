"""Files that a power cut or a damaging device may cost, and the survey of the filesystem afterwards.

The device that damages is the kernel's dm-flakey. Source: its Documentation/admin-guide/device-mapper/dm-flakey.rst.
While it is "down", the first byte of every write request (a bio, which can have many blocks) becomes 0x00; reads are
never changed.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from fsjoule.bench.judge import WorkFacts
from fsjoule.bench.measurer import IDLE_S, Measurer
from fsjoule.bench.onboard import survival as onboard_safety
from fsjoule.bench.onboard.survival import FROM_POOL, POOL, Promised
from fsjoule.bench.scratch import SCRATCH_DIRECTORY, Scratch, attempted, checked
from fsjoule.errors import BoardError, also
from fsjoule.filesystems import filesystem
from fsjoule.model import DamageOutcome, FileFate, FlakeyModel, FlakeyWorkload, Planned, PowerLossWorkload
from fsjoule.model.filesystem import Filesystem
from fsjoule.ports import Cut, Shell

_MOUNT_TIMEOUT_S: Final = 180.0
_READ_TIMEOUT_S: Final = 300.0
_CHECK_TIMEOUT_S: Final = 300.0
_WARNINGS: Final = ("dmesg", "--level", "emerg,alert,crit,err,warn")


_SEED_BITS: Final = 31
_POOL_TIMEOUT_S: Final = 60.0


_NAME: Final = "fsjoule-flakey"
_DEVICE: Final = f"/dev/mapper/{_NAME}"
_BEGINS_S: Final = 10
_FOREVER_S: Final = 1_000_000
_MARGIN_S: Final = 1.0  # the kernel counts whole seconds
_DAMAGE: Final = "5 corrupt_bio_byte 1 w 0 0"
_INTERVALS_S: Final = {FlakeyModel.AFTER_10S: (_BEGINS_S, _FOREVER_S), FlakeyModel.ALTERNATING: (1, 1)}
_WRITE_TIMEOUT_S: Final = 300.0


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

    def run(self, number: int) -> WorkFacts:
        """Mount, with time and energy measured, and look. A failing program or a panic is a finding."""
        self.fates = onboard_safety.all_refused(self.promised)
        evidence = WorkFacts(trace=None, marks=("", ""), idle_s=IDLE_S)
        try:
            evidence = self._mount(number)
            with self.measurer.phases("survey"):
                if self.mounts:
                    self._read()
                    # Last, because reading damaged data can make a filesystem read-only.
                    mounts = checked(self.measurer.shell, "cat", "/proc/mounts").stdout
                    self.read_only = onboard_safety.is_read_only(mounts, SCRATCH_DIRECTORY)
                    self.measurer.scratch.unmount()
                self.messages = onboard_safety.messages(checked(self.measurer.shell, *_WARNINGS).stdout)
                self._check()
        except BoardError as error:
            evidence.board_lost = True
            self.messages = (*self.messages, error.what)
        evidence.outcome = self._outcome()
        return evidence

    def _mount(self, number: int) -> WorkFacts:
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

    def _outcome(self) -> DamageOutcome:
        return DamageOutcome(
            files=onboard_safety.counted(self.fates),
            mounts=self.mounts,
            read_only=self.read_only,
            check_exit=self.check_exit,
            check_clean=None if self.check_exit is None else self.check_exit == 0,
            damaged=onboard_safety.named(self.fates),
            repaired=self.repaired,
            messages=self.messages,
        )


@dataclass(frozen=True, slots=True)
class PowerLoss:
    """One iteration. Its seed decides the moment of the cut, the files, and a disk's losses from its cache."""

    entry: Planned
    workload: PowerLossWorkload
    seed: int

    @classmethod
    def of(cls, entry: Planned, workload: PowerLossWorkload, plan_seed: int) -> PowerLoss:
        """The iteration of a plan's entry. A plan always has the same iterations; each has its own seed."""
        name = f"{plan_seed} {entry.repetition} {entry.kernel} {entry.slug}"
        return cls(entry, workload, random.Random(name).getrandbits(_SEED_BITS))  # noqa: S311 - recorded, not a secret

    @property
    def cut_after_s(self) -> float:
        """Seconds from the writer's start to the cut."""
        moment = random.Random(self.seed)  # noqa: S311 - recorded, not a secret
        return moment.uniform(self.workload.earliest_s, self.workload.latest_s)

    @property
    def kind(self) -> Filesystem:
        """The filesystem, with the workload's mount options."""
        plain = filesystem(self.entry.filesystem)
        options = (*plain.mount_options, "sync") if self.workload.sync else plain.mount_options
        return dataclasses.replace(plain, mount_options=options)

    def begin(self, measurer: Measurer) -> None:
        """Make and mount the filesystem, and leave the writer running. Raises LabError, MeasurementInvalid."""
        kind = self.kind
        with measurer.phases("provisioning"):
            # Times tell an old ext4 journal on the disk from the new one. A board without a clock starts every boot at
            # the same time; then ext4 takes the old journal for its own, damaged, and cannot be mounted.
            now = measurer.clock.utc()[: len("2026-01-01T00:00:00")]
            checked(measurer.shell, "date", "-u", "-s", now.replace("T", " "))
            measurer.load_modules(*kind.modules)
            measurer.turn_to(self.entry.storage, onboard_safety.SCRIPTS)
            pool = onboard_safety.pool_argv(self.seed, onboard_safety.writer_pool_bytes(self.workload))
            checked(measurer.shell, *pool, timeout_s=_POOL_TIMEOUT_S)
            measurer.scratch.make(kind)
            directory = measurer.scratch.mount(kind)
            # mkfs's writes must be on the device: only files may be lost.
            checked(measurer.shell, "sync")
        measurer.shell.start(onboard_safety.writer_argv(self.workload, directory, self.seed))

    def recover(self, measurer: Measurer, cut: Cut) -> WorkFacts:
        """Look, after the next boot, for the files that the board had acknowledged on its console."""
        promised = onboard_safety.promised(cut.console)
        with measurer.phases("provisioning"):
            measurer.turn_to(self.entry.storage, onboard_safety.SCRIPTS)

        def look(_kind: Filesystem) -> WorkFacts:
            return Survey(measurer, self.kind, promised).run(measurer.numbered(self.entry))

        evidence = measurer.around(self.entry, look)
        if evidence.outcome is not None:
            evidence.outcome = dataclasses.replace(evidence.outcome, cut_s=self.cut_after_s, seed=self.seed)
        evidence.notes += cut.losses
        if ended := onboard_safety.stopped(cut.console):
            evidence.complaints.append(f"the files were not written until the power was cut: {ended}")
        return evidence


@dataclass(frozen=True, slots=True)
class _Part:
    """One file: a part of the random bytes in the board's memory."""

    name: str
    offset: int
    size_bytes: int

    @property
    def command(self) -> str:
        """The command that prints the file, or writes it to a file with `of=` added."""
        return f"{FROM_POOL} skip={self.offset} count={self.size_bytes}"


@dataclass(frozen=True, slots=True)
class _Written:
    """Files up to `last` were synced `synced_s` after the device was made; `said` has the output of failed programs."""

    last: str
    synced_s: float
    said: str


@dataclass(frozen=True, slots=True)
class Flakey:
    """One iteration. `seed` gives the contents of the files."""

    entry: Planned
    workload: FlakeyWorkload
    seed: int

    def measure(self, measurer: Measurer) -> WorkFacts:
        """Raises LabError when the board does not answer. The outcome has the filesystem's errors."""
        with measurer.phases("provisioning"):
            measurer.turn_to(self.entry.storage, onboard_safety.SCRIPTS)
        return measurer.around(self.entry, lambda kind: self._measure(measurer, kind))

    def _measure(self, measurer: Measurer, kind: Filesystem) -> WorkFacts:
        shell = measurer.shell
        with measurer.phases("provisioning"):
            measurer.load_modules("dm-flakey")
            promised = self._contents(shell)
            measurer.scratch.make(kind)
        with measurer.phases("flakey"), _flakey_device(measurer.scratch, self.workload.model) as device:
            begun_s = _uptime_s(shell)
            checked(shell, "mkdir", "-p", SCRATCH_DIRECTORY)
            attempted(shell, *kind.mount_argv(device, SCRATCH_DIRECTORY))
            written = [self._write(shell, self._parts[:1], begun_s)]
            if self.workload.model is FlakeyModel.AFTER_10S:
                # A fast device would have written everything before the damage begins.
                measurer.rest(max(0.0, begun_s + _BEGINS_S + _MARGIN_S - _uptime_s(shell)))
            written.append(self._write(shell, self._parts[1:], begun_s))
            measurer.scratch.unmount()
        while_writing = measurer.kernel_log()
        measurer.clear_kernel_log()
        evidence = Survey(measurer, kind, promised).run(measurer.numbered(self.entry))
        evidence.notes += [f"not all was written: {each.said[-200:]}" for each in written if each.said]
        log = [f"{each.last} was synced {each.synced_s:.1f} s after the device was made" for each in written]
        evidence.attachments["while-writing.log"] = "\n".join([*log, while_writing]).encode()
        return evidence

    @property
    def _parts(self) -> list[_Part]:
        large, small = self.workload.size_bytes, self.workload.file_bytes
        return [
            _Part("large", 0, large),
            *(_Part(f"small-{i + 1}", large + i * small, small) for i in range(self.workload.files)),
        ]

    def _contents(self, shell: Shell) -> list[Promised]:
        """Make the random bytes; returns the files with their checksums, taken from memory."""
        last = self._parts[-1]
        made = f"{POOL}-{self.seed}"
        if shell.run(("test", "-f", made)).exit_code != 0:
            # Once per boot: all filesystems of a boot get the same files.
            pool = onboard_safety.pool_argv(self.seed, last.offset + last.size_bytes)
            checked(shell, *pool, timeout_s=_WRITE_TIMEOUT_S)
            checked(shell, "touch", made)
        summing = "\n".join(f"{part.command} | sha256sum" for part in self._parts)
        sums = checked(shell, "sh", "-e", "-c", summing, timeout_s=_WRITE_TIMEOUT_S).stdout.splitlines()
        return [
            Promised(part.name, part.size_bytes, line.split()[0]) for part, line in zip(self._parts, sums, strict=True)
        ]

    def _write(self, shell: Shell, parts: Sequence[_Part], begun_s: float) -> _Written:
        writing = [f"{part.command} of={SCRATCH_DIRECTORY}/{part.name}" for part in parts]
        written = shell.run(("sh", "-c", "\n".join([*writing, "sync"])), timeout_s=_WRITE_TIMEOUT_S)
        return _Written(parts[-1].name, _uptime_s(shell) - begun_s, written.stdout.strip())


@contextmanager
def _flakey_device(scratch: Scratch, model: FlakeyModel) -> Generator[str]:
    """A device over the scratch partition that damages writes, for the body. Raises MeasurementInvalid."""
    sectors = checked(scratch.shell, "blockdev", "--getsz", scratch.device).stdout.strip()
    clean_s, damaging_s = _INTERVALS_S[model]
    table = f"0 {sectors} flakey {scratch.device} 0 {clean_s} {damaging_s} {_DAMAGE}"
    try:
        # A board without udev gets the node from dmsetup.
        attempted(scratch.shell, "dmsetup", "create", _NAME, "--verifyudev", "--table", table)
        yield _DEVICE
    except BaseException as error:
        with also(error, "removing the device that damages"):
            _remove_flakey_device(scratch)
        raise
    _remove_flakey_device(scratch)


def _remove_flakey_device(scratch: Scratch) -> None:
    scratch.unmount()
    scratch.shell.run(("dmsetup", "remove", "--verifyudev", "--retry", _NAME))


def _uptime_s(shell: Shell) -> float:
    return float(checked(shell, "cat", "/proc/uptime").stdout.split()[0])
