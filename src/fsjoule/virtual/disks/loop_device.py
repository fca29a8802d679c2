"""A private loop device: /dev/loopN with N >= 64, so that `losetup -f` and other boards do not use it.

It is attached with LO_FLAGS_AUTOCLEAR and held open, so that the kernel detaches it when this process ends in any way.
While it is empty, it is claimed (O_EXCL): the kernel has one set of loop devices for all containers of a machine, and
boards in different ones do not see each other's locks. Layouts and numbers: linux/loop.h.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from pathlib import Path
from typing import Final

from fsjoule.errors import LabError
from fsjoule.host.locks import LOCKS, try_lock

_LOOP_CONFIGURE: Final = 0x4C0A
_LOOP_SET_STATUS64: Final = 0x4C04
_LOOP_CTL_ADD: Final = 0x4C80
_LOOP_CTL_REMOVE: Final = 0x4C81
_BLKFLSBUF: Final = 0x1261
_LO_FLAGS_AUTOCLEAR: Final = 4
# struct loop_config: fd, block size, struct loop_info64 (flags at its byte 52, file name at 56, 232 in all), reserved.
_LOOP_CONFIG: Final = struct.Struct("<II 52x I 64s 112x 64x")

# struct loop_info64: offset into the file at byte 24, flags at 52.
_LOOP_INFO: Final = struct.Struct("<24x Q 20x I 176x")

_CONTROL: Final = Path("/dev/loop-control")
_NUMBERS: Final = range(64, 1024)
_DETACH_TIMEOUT_S: Final = 5.0


class LoopDevice:
    """A private /dev/loopN. It has a medium while a file is attached."""

    def __init__(self) -> None:
        """Take the first free number. Raises LabError without permission (root, or group disk)."""
        remove_abandoned()
        self.number, self._lock, self._claim = _take_number()
        self._fd: int | None = None
        self._backing = Path()

    @property
    def path(self) -> Path:
        return Path(f"/dev/loop{self.number}")

    def attach(self, file: Path) -> None:
        """Put `file` into the device. Raises LabError."""
        try:
            if self._claim is None:
                # Another container's board may have removed the empty device as abandoned, or have taken it.
                _control(_LOOP_CTL_ADD, self.number)
                self._claim = _open_device(self.path, os.O_EXCL)
            backing = os.open(file, os.O_RDWR | os.O_CLOEXEC)
            try:
                name = os.fsencode(file)[-63:]
                fcntl.ioctl(self._claim, _LOOP_CONFIGURE, _LOOP_CONFIG.pack(backing, 0, _LO_FLAGS_AUTOCLEAR, name))
                self._fd, self._backing = _open_device(self.path), file
            finally:
                os.close(backing)
            self._end_claim()  # the writer wants one for itself
        except OSError as error:
            self._close_device()
            self._end_claim()
            raise LabError(f"{file} cannot be attached to {self.path}: {error}") from error

    def detach(self) -> None:
        """Flush, and remove the file. Raises LabError (transient) if another program still has the device open."""
        if self._fd is None:
            return
        # BLKFLSBUF writes the device's pages to the file and drops them; the next attachment reads them again.
        os.fsync(self._fd)
        # Only root may. For others the kernel drops them when the last user closes the device.
        with contextlib.suppress(PermissionError):
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
            time.sleep(0.001)
        while (claim := _claimed(self.number)) is None and time.monotonic() < deadline:
            time.sleep(0.001)
        self._claim = claim

    def unplug(self) -> None:
        """Take the file away under its users, as a pulled cable does: the device has no sectors any more.

        Raises LabError.
        """
        if self._fd is None:
            return
        try:
            size_bytes = self._backing.stat().st_size
            fcntl.ioctl(self._fd, _LOOP_SET_STATUS64, _LOOP_INFO.pack(size_bytes, _LO_FLAGS_AUTOCLEAR))
        except OSError as error:
            raise LabError(f"{self.path} cannot be unplugged: {error}", transient=True) from error
        # The kernel detaches it when its last user has closed it.
        self._close_device()

    def close(self) -> None:
        """Detach and remove the device. If it is still open elsewhere, the kernel detaches it later."""
        self._close_device()
        self._end_claim()
        _remove(self.number)
        os.close(self._lock)

    def _close_device(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _end_claim(self) -> None:
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None


def attached_file(number: int) -> str | None:
    """The file in /dev/loop<number>, or None."""
    try:
        return Path(f"/sys/block/loop{number}/loop/backing_file").read_text().rstrip("\n")
    except OSError:
        return None


def remove_abandoned() -> None:
    """Remove loop devices that killed boards left behind: in our range, without a file, lock or claim."""
    for number in _NUMBERS:
        if Path(f"/sys/block/loop{number}").exists() and attached_file(number) is None:
            lock = _try_lock(number)
            if lock is not None:
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    if (claim := _claimed(number)) is not None:
                        os.close(claim)
                        _remove(number)
                os.close(lock)


def _take_number() -> tuple[int, int, int]:
    """A number, its lock and its claim."""
    for number in _NUMBERS:
        lock = _try_lock(number)
        if lock is None:
            continue
        try:
            if attached_file(number) is None:
                _control(_LOOP_CTL_ADD, number)
                claim = _claimed(number)
                if claim is not None:
                    return number, lock, claim
        except OSError as error:
            os.close(lock)
            raise _no_right(error) from error
        os.close(lock)
    raise LabError(f"no loop device is free between {_NUMBERS.start} and {_NUMBERS.stop - 1}")


def _try_lock(number: int) -> int | None:
    """The descriptor of a number's lock, or None if it is another process's or another user's."""
    try:
        return try_lock(f"fsjoule-loop{number}", LOCKS)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.ELOOP):
            return None
        raise


def _claimed(number: int) -> int | None:
    """A descriptor of the device that only one process of this machine can have, or None if another one has it.

    Another one that had it, in another container, may be removing it at this moment: then it is not there any more.
    """
    try:
        return _open_device(Path(f"/dev/loop{number}"), os.O_EXCL)
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.ENXIO):
            return None
        raise


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


def _open_device(path: Path, flags: int = 0) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | flags)


def _no_right(error: OSError) -> LabError:
    return LabError(
        f"no loop device can be made for the card: {error}",
        hint="run as root (or with access to /dev/loop-control and its loop devices); the module 'loop' must be loaded",
    )
