"""A private loop device: /dev/loopN with N >= 64, so that `losetup -f` and other boards do not use it.

It is attached with LO_FLAGS_AUTOCLEAR and held open, so that the kernel detaches it when this process ends in any way.
Layouts and numbers: linux/loop.h.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from pathlib import Path
from typing import Final

from fsjoule.errors import LabError

_LOOP_CONFIGURE: Final = 0x4C0A
_LOOP_CTL_ADD: Final = 0x4C80
_LOOP_CTL_REMOVE: Final = 0x4C81
_BLKFLSBUF: Final = 0x1261
_LO_FLAGS_AUTOCLEAR: Final = 4
# struct loop_config: fd, block size, struct loop_info64 (flags at its byte 52, file name at 56, 232 in all), reserved.
_LOOP_CONFIG: Final = struct.Struct("<II 52x I 64s 112x 64x")

_CONTROL: Final = Path("/dev/loop-control")
_LOCKS: Final = Path("/run/lock")
_NUMBERS: Final = range(64, 1024)
_DETACH_TIMEOUT_S: Final = 5.0


class LoopDevice:
    """A private /dev/loopN. It has a medium while a file is attached."""

    def __init__(self) -> None:
        """Take the first free number. Raises LabError without permission (root, or group disk)."""
        remove_abandoned()
        self.number, self._lock = _take_number()
        self._fd: int | None = None
        try:
            _control(_LOOP_CTL_ADD, self.number)
        except OSError as error:
            os.close(self._lock)
            raise _no_right(error) from error

    @property
    def path(self) -> Path:
        return Path(f"/dev/loop{self.number}")

    def attach(self, file: Path) -> None:
        """Put `file` into the device. Raises LabError."""
        try:
            # A process that does not see our lock (in a container) may have removed the empty device as abandoned.
            _control(_LOOP_CTL_ADD, self.number)
            backing = os.open(file, os.O_RDWR | os.O_CLOEXEC)
            try:
                self._fd = _open_device(self.path)
                name = os.fsencode(file)[-63:]
                fcntl.ioctl(self._fd, _LOOP_CONFIGURE, _LOOP_CONFIG.pack(backing, 0, _LO_FLAGS_AUTOCLEAR, name))
            finally:
                os.close(backing)
        except OSError as error:
            self._close_device()
            raise LabError(f"{file} cannot be attached to {self.path}: {error}") from error

    def detach(self) -> None:
        """Flush, and remove the file. Raises LabError (transient) if another program still has the device open."""
        if self._fd is None:
            return
        # BLKFLSBUF writes the device's pages to the file and drops them; the next attachment reads them again.
        os.fsync(self._fd)
        fcntl.ioctl(self._fd, _BLKFLSBUF)
        self._close_device()
        deadline = time.monotonic() + _DETACH_TIMEOUT_S
        while attached_file(self.number) is not None:
            if time.monotonic() > deadline:
                self._fd = _open_device(self.path)
                raise LabError(
                    f"{self.path} is still open in another program",
                    transient=True,
                    hint=f"wait for it to end; find it with: fuser -v {self.path}",
                )
            time.sleep(0.01)

    def close(self) -> None:
        """Detach and remove the device. If it is still open elsewhere, the kernel detaches it later."""
        self._close_device()
        _remove(self.number)
        os.close(self._lock)

    def _close_device(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def attached_file(number: int) -> str | None:
    """The file in /dev/loop<number>, or None."""
    try:
        return Path(f"/sys/block/loop{number}/loop/backing_file").read_text().rstrip("\n")
    except OSError:
        return None


def remove_abandoned() -> None:
    """Remove loop devices that killed boards left behind: in our range, without a file, without a lock."""
    for number in _NUMBERS:
        if Path(f"/sys/block/loop{number}").exists() and attached_file(number) is None:
            lock = _try_lock(number)
            if lock is not None:
                _remove(number)
                os.close(lock)


def _take_number() -> tuple[int, int]:
    for number in _NUMBERS:
        lock = _try_lock(number)
        if lock is None:
            continue
        if attached_file(number) is None:
            return number, lock
        os.close(lock)
    raise LabError(f"no loop device is free between {_NUMBERS.start} and {_NUMBERS.stop - 1}")


def _try_lock(number: int) -> int | None:
    """The descriptor of a number's lock, or None if another process has it."""
    try:
        descriptor = os.open(_LOCKS / f"fsjoule-loop{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except PermissionError:
        # Another user's file, in a sticky directory.
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _control(request: int, number: int) -> None:
    control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(control, request, number)
    except FileExistsError:
        return
    finally:
        os.close(control)


def _remove(number: int) -> None:
    try:
        _control(_LOOP_CTL_REMOVE, number)
    except OSError as error:
        # Busy: another program has it open and detaches it at its end. Gone: the goal is reached.
        if error.errno not in (errno.EBUSY, errno.ENODEV, errno.EACCES, errno.EPERM):
            raise


def _open_device(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def _no_right(error: OSError) -> LabError:
    return LabError(
        f"no loop device can be made for the card: {error}",
        hint="run as root (or with access to /dev/loop-control and its loop devices); the module 'loop' must be loaded",
    )
