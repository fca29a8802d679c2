"""Read-only root partitions: an image that is as large as its files, with dm-verity's hash tree behind it if asked for.

The hash tree has no superblock of its own: its root hash and its place are words of the kernel's command line, which
`images/initramfs/init` hands to dmsetup (kernel documentation: admin-guide/device-mapper/verity). Debian's kernels have
device-mapper as a module, so `dm-mod.create=` does nothing there. An overlay in memory makes the root writable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

from fsjoule.errors import ConfigError, HostError, MissingToolError
from fsjoule.host import process
from fsjoule.kernels.modules import ModuleIndex
from fsjoule.model import MIB
from fsjoule.model.filesystem import Filesystem

OVERLAY: Final = "overlay"
# The hash's own module, by its alias: it may be built in, and is called otherwise from kernel to kernel.
_HASH: Final = "crypto-sha256"
BLOCK_BYTES: Final = 4096
_SECTOR_BYTES: Final = 512
# One for all images: equal files give an equal root hash.
_SALT: Final = "66736a6f756c65" + "00" * 25
_TIMEOUT_S: Final = 900.0
_LIBRARY: Final = re.compile(rb"(?:lib[\w+-]+|ld-linux[\w-]*)\.so[.\w]*")
_LIBRARY_FOLDERS: Final = ("usr/lib/*-linux-*", "usr/lib", "usr/lib64")


def make_image(
    kind: Filesystem, tree: Path, image: Path, *, room_mib: int, identity: UUID, steady: Mapping[str, str]
) -> None:
    """Make the file `image` with everything below `tree`, padded to whole blocks.

    Raises ConfigError if it does not fit `room_mib`, or if the program does not know an option; MissingToolError.
    """
    # Whole blocks, and one for each folder, whose own size depends on where the tree is.
    files_kib = sum(4 * (1 + (path.lstat().st_size // BLOCK_BYTES) * (not path.is_dir())) for path in tree.rglob("*"))
    image.unlink(missing_ok=True)
    for argv in kind.image_argvs(str(tree), str(image), files_kib=files_kib, identity=identity):
        try:
            process.run(process.as_root(argv), timeout_s=_TIMEOUT_S, env=steady)
        except MissingToolError as error:
            raise MissingToolError(argv[0], kind.packages[0]) from error
        except HostError as error:
            last = error.what.strip().splitlines()[-1][-200:]
            hint = f"does this computer's {argv[0]} know its options? Nothing was written to a board"
            raise ConfigError(f"{argv[0]} makes no {kind.name}: {last}", hint=hint) from error
    size = -(-image.stat().st_size // BLOCK_BYTES) * BLOCK_BYTES
    with image.open("r+b") as file:
        file.truncate(size)
    check_room(kind.name, size, room_mib)


def check_room(name: str, size_bytes: int, room_mib: int) -> None:
    """Raise ConfigError for an image that is larger than its partition."""
    if size_bytes > room_mib * MIB:
        raise ConfigError(
            f"the image of {name} has {size_bytes / MIB:.1f} MiB, and the root partition {room_mib} MiB",
            hint="compress it, or enlarge card.root_mib in the recipe; nothing was written to a board",
        )


def add_hash_tree(kind: Filesystem, image: Path, *, room_mib: int) -> None:
    """Append dm-verity's hash tree, and keep the words of its table behind both devices, apart by commas.

    Raises ConfigError if it does not fit `room_mib`, MissingToolError, HostError.
    """
    size = image.stat().st_size
    blocks = size // BLOCK_BYTES
    made = process.run(
        [
            *("veritysetup", "format", "--no-superblock", "--hash", "sha256", "--salt", _SALT),
            *("--data-block-size", str(BLOCK_BYTES), "--hash-block-size", str(BLOCK_BYTES)),
            *("--data-blocks", str(blocks), "--hash-offset", str(size), image, image),
        ],
        timeout_s=_TIMEOUT_S,
    )
    found = re.search(r"^Root hash:\s*([0-9a-f]{64})$", made.stdout.decode(errors="replace"), re.MULTILINE)
    if found is None:
        raise HostError(f"veritysetup returned no root hash for {image}: no board would boot from it")
    check_room(kind.name, image.stat().st_size, room_mib)
    verity_file(image).write_text(f"{BLOCK_BYTES},{BLOCK_BYTES},{blocks},{blocks},sha256,{found[1]},{_SALT}")


def verity_file(image: Path) -> Path:
    """The file with these words, beside a root partition's image."""
    return image.with_suffix(".verity")


def verity_word(device: str, table: str) -> str:
    """The kernel's word for a checked root: its sectors and the table behind its devices, with commas for blanks.

    The devices are the one that `root=` names. Raises ConfigError without a root hash.
    """
    words = table.split(",")
    if len(words) != 7 or not re.fullmatch(r"[0-9a-f]{64}", words[5]):  # noqa: PLR2004 - of verity's table
        raise ConfigError(
            f"the root {device} is to be checked by dm-verity, and has no root hash",
            hint="build its image again: fsjoule image clean, then fsjoule image build",
        )
    sectors = int(words[2]) * BLOCK_BYTES // _SECTOR_BYTES
    return f"fsjoule.verity={sectors},{table}"


def root_modules(kind: Filesystem) -> tuple[str, ...]:
    """The modules with which the initramfs mounts a root, which its kernel must have."""
    if not kind.read_only:
        return kind.modules
    return (*kind.modules, OVERLAY)


def hash_modules(kind: Filesystem, index: ModuleIndex) -> tuple[str, ...]:
    """The modules of the hash, unless they are built in."""
    return (_HASH,) if kind.verity and index.resolve(_HASH) else ()


def initramfs_programs(kind: Filesystem, tree: Path) -> dict[str, bytes]:
    """What the initramfs needs beside busybox: dmsetup and its libraries, from the user land. Raises ConfigError."""
    if not kind.verity:
        return {}
    program = next((each for each in (tree / "usr/sbin/dmsetup", tree / "usr/bin/dmsetup") if each.is_file()), None)
    if program is None:
        raise ConfigError(
            f"{kind.name}: the user land has no dmsetup, which opens the root in the initramfs",
            hint="add Debian's package dmsetup to the recipe's userland, or leave verity out",
        )
    return {"bin/dmsetup": program.read_bytes(), **dict(_libraries(program.read_bytes(), tree, set()))}


def _libraries(content: bytes, tree: Path, seen: set[str]) -> Iterator[tuple[str, bytes]]:
    """The libraries that a program names, and those that they name: a name too many costs some KiB, nothing else."""
    for name in sorted({each.decode() for each in _LIBRARY.findall(content)} - seen):
        seen.add(name)
        folders = (folder for pattern in _LIBRARY_FOLDERS for folder in sorted(tree.glob(pattern)))
        file = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if file is not None:
            library = file.read_bytes()
            yield f"lib/{name}", library
            yield from _libraries(library, tree, seen)
