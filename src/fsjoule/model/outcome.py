"""The fate of a filesystem, and of files that it promised to keep."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FileFate(StrEnum):
    """The fate of a file whose sync had returned, for a program that reads it.

    DETECTED and REFUSED are damage that every reader notices. Later fates show only to a reader with the checksum.
    """

    INTACT = "intact"
    DETECTED = "detected"  # damaged, and reading it raises an error
    REFUSED = "refused"  # its filesystem cannot be mounted, even after a repair
    SILENT = "silent"  # damaged, but reading it raises no error
    ZEROED = "zeroed"  # like silent, but mostly zeros or shortened
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class DamageOutcome:
    """The remains of a filesystem and of the files on it whose sync had returned.

    `files` counts files by fate, without zeros; `damaged` names the first ones that are not intact. `mounts`: it could
    be mounted; `read_only`: only read-only, at once or later. `check_exit` is its checker's exit code (None without a
    checker); the checker changes nothing. `check_clean`: the checker found no error. A filesystem that cannot be
    mounted or is not clean is repaired; `repaired` is whether it could be mounted then (None without repair). Files are
    read before the repair if possible, otherwise after it.

    `messages` are the kernel's warnings and errors from mount to unmount. After a power cut, `cut_s` is its time after
    the start of the writer; `seed` chose that time and the disk's losses.
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
        return sum(self.files.values())

    @property
    def broken(self) -> int:
        return self.promised - self.files.get(FileFate.INTACT, 0)

    @property
    def failed(self) -> bool:
        """Whether a promised file is lost, or the filesystem cannot be mounted for writing."""
        return bool(self.broken) or not self.mounts or self.read_only
