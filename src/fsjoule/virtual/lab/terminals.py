"""The pseudo terminals of a lab's programs, reserved while the lab lives.

The kernel reuses the number of a closed terminal for the next new one. A link to the terminal of a dead meter could
then lead to another lab's meter, and ser2net would serve that stream as this lab's.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_PIDFD_GETFD: Final = 438
# From Linux's header for terminals: get the number of a master's terminal; open its other side without a path.
_TIOCGPTN: Final = 0x80045430
_TIOCGPTPEER: Final = 0x5441
_MASTERS: Final = ("/dev/ptmx", "/dev/pts/ptmx")

_libc = ctypes.CDLL(None, use_errno=True)


class HeldTerminals:
    """Keeps the numbers of other programs' terminals reserved, even after the programs end.

    While a program lives, this holds a second descriptor of the terminal's master, which neither program nor reader
    notices. After its death, `hang_up` closes that descriptor, so that readers see the end, and holds the other side.
    """

    def __init__(self) -> None:
        self._masters: dict[int, list[int]] = {}
        self._numbers: list[int] = []

    def hold(self, pid: int) -> None:
        """Hold a program's present terminals. Raises OSError if the kernel refuses."""
        process = os.pidfd_open(pid)
        try:
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(FileNotFoundError):
                    if str(entry.readlink()) in _MASTERS:
                        self._masters.setdefault(pid, []).append(_copy(process, int(entry.name)))
        finally:
            os.close(process)

    def hang_up(self, pid: int) -> list[Path]:
        """Let the readers of a dead program see its end. Returns its terminals."""
        gone: list[Path] = []
        for master in self._masters.pop(pid, []):
            gone.append(Path(f"/dev/pts/{_number(master)}"))
            self._numbers.append(fcntl.ioctl(master, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
            os.close(master)
        return gone

    def close(self) -> None:
        for descriptor in (*self._numbers, *(each for held in self._masters.values() for each in held)):
            os.close(descriptor)
        self._masters.clear()
        self._numbers.clear()


def remove_links(folder: Path, terminals: list[Path]) -> None:
    for link in folder.rglob("*"):
        with suppress(OSError):
            if link.is_symlink() and (link.readlink() in terminals or not link.exists()):
                link.unlink()


def _copy(process: int, descriptor: int) -> int:
    """A descriptor of our own for a file that another process has open."""
    copy = _libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
    if copy < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return copy


def _number(master: int) -> int:
    return int.from_bytes(fcntl.ioctl(master, _TIOCGPTN, bytes(4)), "little")
