"""Files on the kernel's dm-flakey, a device that damages writes, and how the filesystem deals with that.

Source: the kernel's Documentation/admin-guide/device-mapper/dm-flakey.rst. While the device is "down", the first byte
of every write request (a bio, which can have many blocks) becomes 0x00; reads are never changed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from fsjoule.bench.judge import Evidence
from fsjoule.bench.measurer import Measurer
from fsjoule.bench.onboard import survival as onboard_safety
from fsjoule.bench.onboard.survival import FROM_POOL, POOL, Promised
from fsjoule.bench.scratch import SCRATCH_DIRECTORY, Scratch, attempted, checked
from fsjoule.bench.survivors import Survey
from fsjoule.errors import also
from fsjoule.model import FlakeyModel, FlakeyWorkload, Planned
from fsjoule.model.filesystem import Filesystem
from fsjoule.ports import Shell

_NAME: Final = "fsjoule-flakey"
_DEVICE: Final = f"/dev/mapper/{_NAME}"
_BEGINS_S: Final = 10
_FOREVER_S: Final = 1_000_000
_MARGIN_S: Final = 1.0  # the kernel counts whole seconds
_DAMAGE: Final = "5 corrupt_bio_byte 1 w 0 0"
_INTERVALS_S: Final = {FlakeyModel.AFTER_10S: (_BEGINS_S, _FOREVER_S), FlakeyModel.ALTERNATING: (1, 1)}
_WRITE_TIMEOUT_S: Final = 300.0


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

    def measure(self, measurer: Measurer) -> Evidence:
        """Raises LabError when the board does not answer. The outcome has the filesystem's errors."""
        with measurer.phases("provisioning"):
            measurer.turn_to(self.entry.storage, onboard_safety.SCRIPTS)
        return measurer.around(self.entry, lambda kind: self._measure(measurer, kind))

    def _measure(self, measurer: Measurer, kind: Filesystem) -> Evidence:
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
        evidence = Survey(measurer, kind, promised).run(self.entry.number)
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
