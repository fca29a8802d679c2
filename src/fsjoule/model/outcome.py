"""What became of a filesystem, and of files that it promised to keep."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
