"""What a failed system call or import means: a path of the user's, a disk, a limit of the shell's, or an extra.

A limit that a program is known to need more of is refused before any work.
"""

from __future__ import annotations

import errno
import resource
from dataclasses import dataclass
from typing import Final

from fsjoule.errors import DISKS, ConfigError, FsjouleError, HostError, StorageError
from fsjoule.host.extras import missing_package

_KIB: Final = 1024
# Errors of the system for a path that a user has named.
_PATHS: Final = (
    *(errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EROFS),
)
_NO_THREAD: Final = "can't start new thread"  # all that Python says of it, for a RuntimeError


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of the shell's: its number for the kernel, its letter for `ulimit`, its unit, and a `usual` value."""

    number: int
    letter: str
    unit: str
    unit_bytes: int = 1
    usual: str = "unlimited"

    @property
    def value(self) -> int | None:
        """What this process is allowed, in the kernel's unit; None if there is no limit."""
        soft = resource.getrlimit(self.number)[0]
        return None if soft == resource.RLIM_INFINITY else soft

    def need(self, least: int, what: str) -> None:
        """Raise ConfigError if this process is allowed less than `what` needs."""
        if self.value is not None and self.value < least:
            raise ConfigError(f"{self.told}, and {what} needs {-(-least // self.unit_bytes)}", hint=self.hint)

    @property
    def told(self) -> str:
        return f"this shell allows {(self.value or 0) // self.unit_bytes} {self.unit} (ulimit -{self.letter})"

    @property
    def hint(self) -> str:
        """The command that raises it. A user's shell cannot raise a hard limit again."""
        return f"ulimit -{self.letter} {self.usual}, in a new shell if this one refuses"


FILES: Final = Limit(resource.RLIMIT_NOFILE, "n", "open files", usual="1024")
FILE_SIZE: Final = Limit(resource.RLIMIT_FSIZE, "f", "KiB in a file", _KIB)
MEMORY: Final = Limit(resource.RLIMIT_AS, "v", "KiB of memory in a program", _KIB)
_PROCESSES: Final = Limit(resource.RLIMIT_NPROC, "u", "processes and threads")


def of_system(error: BaseException) -> FsjouleError | None:
    """Our error for a path, a disk or a limit that a system call failed at, or a package not installed; else None."""
    if (missing := missing_package(error)) is not None:
        return missing
    if (limit := of_limit(error)) is not None or not isinstance(error, OSError):
        return limit
    at = "" if error.filename is None else f"{error.filename}: "
    said = f"{at}{error.strerror}"
    if error.errno in _PATHS and at:
        return ConfigError(said, hint="give a usable path")
    return StorageError(said, hint="is that disk full or damaged?") if error.errno in DISKS else None


def of_limit(error: BaseException) -> HostError | None:
    """Our error for a limit that is reached: the shell's if it has set one, else this computer's."""
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE):
        return _reached("too many open files", FILES)
    if number == errno.EFBIG:
        return _reached("a file is too large", FILE_SIZE)
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        return _reached("out of memory", MEMORY)
    if (isinstance(error, RuntimeError) and str(error) == _NO_THREAD) or _forked(error):
        limit = MEMORY if MEMORY.value is not None else _PROCESSES
        return _reached("no process or thread can be started", limit)
    return None


def _reached(what: str, limit: Limit) -> HostError:
    if limit.value is None:
        return HostError(what, hint="this computer, its user or its container has no more: end other programs")
    return HostError(f"{what}: {limit.told}", hint=limit.hint)


def _forked(error: BaseException) -> bool:
    """Whether a process could not be started. A socket that would wait has the same error: that is a bug."""
    if not isinstance(error, BlockingIOError):
        return False
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and frame.tb_frame.f_code.co_name in ("_execute_child", "_launch")
