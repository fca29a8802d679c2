"""What is done to a filesystem to see whether it keeps what it promised, and what became of its files."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

_KIB = 1024
_MIB = 1024 * 1024


class FileFate(StrEnum):
    """What became of a file whose sync had returned, as whoever reads it sees it.

    What is DETECTED or REFUSED is damage that nobody can take for the file. The fates after them are not noticed, and
    only whoever knows the file's checksum sees them.
    """

    INTACT = "intact"
    DETECTED = "detected"  # it is damaged, and reading it is an error
    REFUSED = "refused"  # its filesystem cannot be mounted, not even after a repair
    SILENT = "silent"  # it is damaged, and reading it is none
    ZEROED = "zeroed"  # as silent; most of it is zeros, or it is shorter than it was
    MISSING = "missing"  # it is not there


class FlakeyModel(StrEnum):
    """When a device damages what is written to it."""

    AFTER_10S = "after-10s"  # everything from 10 s on
    ALTERNATING = "alternating"  # 1 s clean, 1 s damaging, and so on


class Hazard(StrEnum):
    """What a filesystem is exposed to."""

    POWER_LOSS = "power-loss"
    DM_FLAKEY = "dm-flakey"


@dataclass(frozen=True, slots=True)
class PowerLossWorkload:
    """Files are written and synced, one after the other, until the power is cut at a random moment.

    With `sync` the filesystem is mounted with that option and nothing is synced by hand. Files are of random sizes from
    `smallest_bytes` to `size_bytes`, the cut comes `earliest_s` to `latest_s` after the first file was begun.
    """

    sync: bool
    size_bytes: int = 256 * _KIB
    smallest_bytes: int = 4 * _KIB
    earliest_s: float = 0.5
    latest_s: float = 4.0
    kind: Literal["power-loss"] = "power-loss"

    @property
    def operation(self) -> Hazard:
        """What is done, as every workload says it."""
        return Hazard.POWER_LOSS

    @property
    def mean_s(self) -> float:
        """When the cut comes on average."""
        return (self.earliest_s + self.latest_s) / 2

    @property
    def slug(self) -> str:
        """Short name, unique within a suite."""
        return f"power-loss-{'sync' if self.sync else 'async'}"


@dataclass(frozen=True, slots=True)
class FlakeyWorkload:
    """A large file and a sync, several small ones and a sync, on a device that damages what is written (dm-flakey)."""

    model: FlakeyModel
    size_bytes: int = 30 * _MIB
    files: int = 8
    file_bytes: int = _MIB
    kind: Literal["dm-flakey"] = "dm-flakey"

    @property
    def operation(self) -> Hazard:
        """What is done, as every workload says it."""
        return Hazard.DM_FLAKEY

    @property
    def slug(self) -> str:
        """Short name, unique within a suite."""
        return f"dm-flakey-{self.model.value}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was left of a filesystem and of the files on it whose sync had returned.

    `files` counts them by their fate; fates that none had are not in it, and `damaged` names the first of those that
    are not intact. `mounts` is whether it could be mounted, `read_only` whether it could be, or stayed, only so.
    `check_exit` is the exit code of its checker, which changes nothing (None where there is none), and `check_clean`
    whether that calls it clean. A filesystem that cannot be mounted, or is not clean, is repaired: `repaired` is
    whether it could be mounted then, None where there was nothing to repair. Files are looked at before that; if that
    was not possible, after it.
    `messages` are the kernel's warnings and errors from the mount to the unmount. After a cut of power, `cut_s` is how
    long after the writer was started it came, and `seed` gave that moment and what the disk lost.
    """

    files: dict[FileFate, int]
    mounts: bool
    read_only: bool
    check_exit: int | None
    check_clean: bool | None
    damaged: tuple[str, ...] = ()
    repaired: bool | None = None
    messages: tuple[str, ...] = ()
    cut_s: float | None = None
    seed: int | None = None

    @property
    def promised(self) -> int:
        """Files whose sync had returned."""
        return sum(self.files.values())

    @property
    def broken(self) -> int:
        """Files whose sync had returned and that are not intact."""
        return self.promised - self.files.get(FileFate.INTACT, 0)

    @property
    def failed(self) -> bool:
        """Whether something that was promised is lost, or the filesystem cannot be mounted for writing."""
        return bool(self.broken) or not self.mounts or self.read_only
