"""The initramfs: busybox, the modules of the card and of one root filesystem, and `images/initramfs/init`.

The archive is written here, in the format "new ASCII" (kernel documentation: driver-api/early-userspace/buffer-format).
So every file is root's, device nodes need no privilege, and equal content gives an equal archive.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from fsjoule.kernels.kernel import KernelFiles
from fsjoule.kernels.modules import closure

_APPLETS: Final = ("cat", "insmod", "mount", "sh", "stty", "switch_root", "usleep")
_FOLDERS: Final = ("bin", "dev", "modules", "proc", "root", "sys")


def build_initramfs(
    *,
    init: Path,
    busybox: Path,
    kernel: KernelFiles,
    modules: Sequence[str],
    applets: Sequence[str] = (),
    programs: Mapping[str, bytes] | None = None,
) -> bytes:
    """The archive, uncompressed, which an emulated CPU unpacks fastest.

    `modules` are loaded in this order, after their dependencies. `applets` are additional ones of busybox,
    `programs` further files by their paths, in `bin` or `lib`.
    """
    index = kernel.index()
    folder = kernel.modules_root / "lib" / "modules" / kernel.release
    archive = CpioArchive()
    for name in _FOLDERS:
        archive.add(name, stat.S_IFDIR | 0o755)
    # The kernel opens it before any mount; without it the first messages are lost.
    archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    archive.add("bin/busybox", stat.S_IFREG | 0o755, busybox.read_bytes())
    for name in (*_APPLETS, *applets):
        archive.add(f"bin/{name}", stat.S_IFLNK | 0o777, b"busybox")
    archive.add("init", stat.S_IFREG | 0o755, init.read_bytes())
    if programs:
        archive.add("lib", stat.S_IFDIR | 0o755)
        archive.add("lib64", stat.S_IFLNK | 0o777, b"lib")
    for path, content in (programs or {}).items():
        archive.add(path, stat.S_IFREG | 0o755, content)
    for number, module in enumerate(closure(modules, index)):
        content = (folder / index.paths[module]).read_bytes()
        archive.add(f"modules/{number:03d}-{module}.ko", stat.S_IFREG | 0o644, content)
    return archive.finish()


class CpioArchive:
    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._inode = 0

    def add(self, name: str, mode: int, content: bytes = b"", *, device: tuple[int, int] = (0, 0)) -> None:
        """Add one file, folder, link (its target as content) or device node, owned by root, without a time."""
        self._inode += 1
        encoded = name.encode() + b"\0"
        links = 2 if stat.S_ISDIR(mode) else 1
        fields = [self._inode, mode, 0, 0, links, 0, len(content), 0, 0, *device, len(encoded), 0]
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        self._parts += [_padded(header + encoded), _padded(content)]

    def finish(self) -> bytes:
        """The whole archive with its trailer, padded to a multiple of 512 bytes."""
        self.add("TRAILER!!!", 0)
        joined = b"".join(self._parts)
        return joined + bytes(-len(joined) % 512)


def _padded(part: bytes) -> bytes:
    return part + bytes(-len(part) % 4)
