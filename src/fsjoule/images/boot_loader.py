"""Stage `boot_loader`: the files of a board's boot loader, checked before anything is written.

The entry holds the files from Debian's packages, by piece, `config` (U-Boot's build configuration, if its package has
it) and `packages.json`. Files of the user's are not copied.

A file's header tells which boot ROM or loader starts it. Sources: U-Boot's include/sunxi_image.h, include/imximage.h,
tools/omapimage.h, tools/rkcommon.c, tools/stm32image.c, include/image.h, and libfdt.

The loader has an address for kernel, initramfs and device tree, to which `sysboot` loads each. If a file is longer than
the space up to the next one, a part of it is overwritten: U-Boot then says "Bad Data CRC", or nothing at all.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
import re
import shutil
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import ConfigError
from fsjoule.host import process
from fsjoule.host.apt import PrivateApt, debian_archive
from fsjoule.host.cache.stages import build_once, cache_key
from fsjoule.host.unpacking import DAMAGED, unzipped
from fsjoule.kernels.card_layout import Address, BootLoader, Header, LoaderPiece, overlap
from fsjoule.kernels.image import arm64_run_place
from fsjoule.kernels.legacy_image import LEGACY_MAGIC
from fsjoule.kernels.recipe import Recipe
from fsjoule.model import MIB
from fsjoule.model.run import BOOT_LOADER

_log: Final = logging.getLogger(__name__)

_DEFAULT: Final = re.compile(rb"\0(kernel_addr_r|fdt_addr_r|ramdisk_addr_r)=(?:0x)?([0-9a-fA-F]+)(?=\0)")
_NAMES: Final[dict[str, Address]] = {
    "kernel_addr_r": "kernel_addr_r",
    "fdt_addr_r": "fdt_addr_r",
    "ramdisk_addr_r": "ramdisk_addr_r",
}
_LOADED: Final[dict[Address, str]] = {
    "kernel_addr_r": "the kernel",
    "fdt_addr_r": "the device tree",
    "ramdisk_addr_r": "the initramfs",
}
_LEGACY_MAGIC: Final = LEGACY_MAGIC.to_bytes(4)


def addresses_in(files: Iterable[bytes]) -> dict[Address, int]:
    """The addresses in the environment that a U-Boot is built with, from its files."""
    return {_NAMES[match[1].decode()]: int(match[2], 16) for file in files for match in _DEFAULT.finditer(file)}


def collision(addresses: Mapping[Address, int], *, kernel: bytes, initrd: int, device_tree: int) -> str | None:
    """The first two of them that do not fit beside each other in memory, with their sizes; None if all fit.

    A legacy image of a kernel is copied once more, to the address in its header, before the others are moved away. The
    kernel of a 64-bit ARM is moved to the next 2 MiB, and needs more room than its file.
    """
    sizes: dict[Address, int] = {
        "kernel_addr_r": len(kernel),
        "fdt_addr_r": device_tree,
        "ramdisk_addr_r": initrd,
    }
    placed = [(addresses[name], sizes[name], _LOADED[name], name) for name in addresses if sizes[name]]
    if kernel.startswith(_LEGACY_MAGIC):
        length, load = struct.unpack_from(">2I", kernel, 12)
        # Onto its own file it may be copied.
        others = [each for each in placed if each[3] != "kernel_addr_r"]
        moved = (load, length, "the unpacked kernel", "load address in its header")
        return _first_overlap(placed) or _first_overlap([*others, moved])
    if "kernel_addr_r" in addresses and (run := arm64_run_place(kernel, addresses["kernel_addr_r"])):
        others = [each for each in placed if each[3] != "kernel_addr_r"]
        return _first_overlap(placed) or _first_overlap([*others, (*run, "the kernel", "moved to the next 2 MiB")])
    return _first_overlap(placed)


def _first_overlap(placed: Iterable[tuple[int, int, str, str]]) -> str | None:
    ordered = sorted(placed)
    for (start, size, name, address), (after, _, other, other_address) in pairwise(ordered):
        if start + size > after:
            return (
                f"{name} has {size / MIB:.1f} MiB, but in the board's memory there are {(after - start) / MIB:.1f} MiB "
                f"between it ({address} = 0x{start:x}) and {other} ({other_address} = 0x{after:x})"
            )
    return None


# Offset and possible contents there.
_MAGIC: Final[dict[Header, tuple[int, tuple[bytes, ...]]]] = {
    "allwinner": (4, (b"eGON.BT0",)),
    "imx": (0, (b"\xd1\x00\x20\x40", b"\xd1\x00\x20\x41", b"\xd1\x00\x20\x43")),  # tag, length 32, version
    "omap": (20, (b"CHSETTINGS\0",)),
    "rockchip": (0, (b"\x3b\x8c\xdc\xfc", b"RKNS")),  # the first one is the encrypted 0x0ff0aa55
    "stm32": (0, (b"STM2",)),
    "uimage": (0, (b"\x27\x05\x19\x56",)),
    "fit": (0, (b"\xd0\x0d\xfe\xed",)),
}
_WORDS: Final[dict[Header, str]] = {
    "allwinner": "Allwinner's eGON",
    "imx": "an i.MX image vector table",
    "omap": "TI's configuration header",
    "rockchip": "Rockchip's ID block",
    "stm32": "an STM32 header",
    "uimage": "U-Boot's legacy image",
    "fit": "a flattened image tree",
}

_SUM_SEED: Final = 0x5F0A6C39
_SUM_AT, _LENGTH_AT = 12, 16
_SPL_AT, _SPL_WITH_TREE = 20, b"SPL\x02"
_TREE_NAME_AT: Final = 32
_HEAD_BYTES: Final = 512


def header_of(content: bytes) -> Header | None:
    """The kind of the header at the beginning of a file, or None."""
    return next((kind for kind, (at, magics) in _MAGIC.items() if content[at:].startswith(magics)), None)


def header_words(kind: Header | None) -> str:
    return "no header that is known" if kind is None else _WORDS[kind]


def damage(content: bytes) -> str | None:
    """The reason for which a boot ROM would refuse a file with a checksum in its header."""
    if header_of(content) != "allwinner" or len(content) < _HEAD_BYTES:
        return None
    stored, length = struct.unpack_from("<I", content, _SUM_AT)[0], struct.unpack_from("<I", content, _LENGTH_AT)[0]
    if length % 4 or length > len(content):
        return f"its header says {length} bytes, but the file has {len(content)}"
    words = struct.unpack_from(f"<{length // 4}I", content)
    if (sum(words) - stored + _SUM_SEED) & 0xFFFFFFFF != stored:
        return "the checksum in its header is wrong"
    return None


def device_tree_of(content: bytes) -> str | None:
    """The device tree that an Allwinner loader was made for, without `.dtb`; None if it does not tell."""
    if header_of(content) != "allwinner" or content[_SPL_AT : _SPL_AT + 4] != _SPL_WITH_TREE:
        return None
    at = int.from_bytes(content[_TREE_NAME_AT : _TREE_NAME_AT + 4], "little")
    name = content[at:_HEAD_BYTES].partition(b"\0")[0] if at else b""
    return name.decode(errors="replace") or None


# Raise it when this file changes an entry's content.
STAGE_VERSION: Final = 2

_NOTES: Final = "packages.json"
_CONFIG: Final = "config"
_MOST_CONFIG_BYTES: Final = 1 << 22  # they have some 100 KiB
_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class LoaderFile:
    """A piece of a boot loader with its content."""

    name: str
    piece: LoaderPiece
    content: bytes

    @property
    def checksum_name(self) -> str:
        """Its name among the checksums of a card."""
        return f"{BOOT_LOADER}{self.name} ({Path(self.piece.file).name})"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class Loader:
    """The boot loader of a card: files, Debian versions and checksums of their packages, its load addresses.

    `config` is the configuration with which U-Boot was built; empty if unknown.
    """

    files: tuple[LoaderFile, ...] = ()
    packages: dict[str, str] = field(default_factory=dict[str, str])
    package_sha256: dict[str, str] = field(default_factory=dict[str, str])
    addresses: dict[Address, int] = field(default_factory=dict[Address, int])
    config: str = ""

    @property
    def checksums(self) -> dict[str, str]:
        return {**self.package_sha256, **{file.checksum_name: file.sha256 for file in self.files}}


def boot_loader(recipe: Recipe) -> Loader:
    """The boot loader of the recipe's cards; without one in the recipe it has no files.

    Raises ConfigError if a file is missing, is not for this board or has no room on the card, HostError (transient) if
    a package cannot be fetched.
    """
    wanted = recipe.boot_loader
    fetched = {name: piece for name, piece in wanted.pieces.items() if piece.package}
    packages: dict[str, str] = {}
    package_sha256: dict[str, str] = {}
    files: list[LoaderFile] = []
    suite = wanted.suite or recipe.userland.suite
    members = {name: (str(piece.package), piece.file) for name, piece in fetched.items()}
    folder = package_files(recipe.architecture, suite, wanted.components, members) if members else None
    config = ""
    if folder is not None:
        config = (folder / _CONFIG).read_text()
        notes = json.loads((folder / _NOTES).read_text())
        packages, package_sha256 = notes["packages"], notes["sha256"]
    for name, piece in wanted.pieces.items():
        path = recipe.path_of(piece.file) if folder is None or name not in fetched else folder / name
        files.append(LoaderFile(name, piece, _content(recipe, name, path)))
    for file in files:
        _check_header(recipe, file)
    if problem := overlap(recipe.card, wanted, {file.name: len(file.content) for file in files}):
        raise _wrong(recipe, problem, "move it (sector), or let the partitions begin later (card.align_mib)")
    for file in files:
        if file.piece.size_kib is not None and len(file.content) > file.piece.size_kib * 1024:
            size = f"{len(file.content)} bytes, its partition {file.piece.partition} {file.piece.size_kib * 1024}"
            raise _wrong(recipe, f"the boot loader's {file.name} has {size}", "make the partition larger (size_kib)")
    addresses: dict[Address, int] = {**addresses_in(file.content for file in files), **wanted.addresses}
    return Loader(tuple(files), packages, package_sha256, addresses, config)


def loader_key(recipe: Recipe, loader: Loader) -> dict[str, Any]:
    """The boot loader's part of a card's key; empty without one, so that such cards keep their keys."""
    if recipe.boot_loader == BootLoader():
        return {}
    pieces = {file.name: [file.sha256, file.piece.model_dump(exclude_defaults=True)] for file in loader.files}
    return {"boot_loader": [pieces, loader.addresses, recipe.boot_loader.keep_sectors, recipe.boot_loader.script]}


def package_files(
    architecture: str, suite: str, components: Sequence[str], members: Mapping[str, tuple[str, str]]
) -> Path:
    """A folder with files of Debian's packages: name -> package and file in it. `packages.json` has their versions.

    Boards with the same files share it. Raises ConfigError if a package has no such file or a damaged one, HostError
    (transient) if it cannot be fetched.
    """
    inputs = {
        "version": STAGE_VERSION,
        "architecture": architecture,
        "source": [suite, components],
        "files": {name: list(member) for name, member in members.items()},
    }

    def build(folder: Path) -> None:
        work = folder / "work"
        apt = PrivateApt(work / "apt", archive=debian_archive(suite, components), architecture=architecture)
        _log.info("boot loader: fetching the package lists of %s", suite)
        apt.update()
        packages = apt.show(sorted({package for package, _ in members.values()}))
        described = ", ".join(f"{package.name} {package.version}" for package in packages)
        _log.info("boot loader: downloading %s", described)
        files = apt.download(packages, work)
        trees = {package.name: work / package.name for package in packages}
        for package, file in zip(packages, files, strict=True):
            process.run(["dpkg-deb", "--extract", file, trees[package.name]], timeout_s=_TIMEOUT_S)
        for name, (package, file) in members.items():
            (folder / name).write_bytes(_member(trees[package], name, package, file))
        configs = (_config(trees[package], package, file) for package, file in members.values())
        (folder / _CONFIG).write_text(next(filter(None, configs), ""))
        notes = {
            "packages": {package.name: package.version for package in packages},
            "sha256": {file.name: package.sha256 for file, package in zip(files, packages, strict=True)},
        }
        (folder / _NOTES).write_text(json.dumps(notes, indent=2) + "\n")
        shutil.rmtree(work)

    name = "_".join(sorted({package for package, _ in members.values()}))
    return build_once("boot_loader", name, cache_key(inputs), build)


def _member(tree: Path, name: str, package: str, file: str) -> bytes:
    path = tree / file.lstrip("/")
    if path.is_file():
        return path.read_bytes()
    there = [each.relative_to(tree).as_posix() for each in tree.rglob("*") if each.is_file()]
    near = difflib.get_close_matches(file, there, n=3, cutoff=0.5)
    raise ConfigError(
        f"the package {package} has no {file}, which is the boot loader's {name}",
        hint=f"did you mean {' or '.join(near)}?" if near else f"dpkg-deb --contents lists the files of {package}",
    )


def _config(tree: Path, package: str, file: str) -> str:
    """The build configuration beside a file of one of Debian's U-Boots: usr/lib/u-boot/TARGET/FILE."""
    target = Path(file).parent.name
    config = tree / "usr" / "share" / "doc" / package / "configs" / f"config.{target}.gz"
    if not config.is_file():
        return ""
    try:
        return unzipped(config.read_bytes(), most_bytes=_MOST_CONFIG_BYTES).decode()
    except DAMAGED as error:
        raise ConfigError(f"the package {package} has a damaged {config.name}: {error}") from error


def _content(recipe: Recipe, name: str, path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        what = f"the boot loader's {name} cannot be read: {path}: {error.strerror}"
        raise _wrong(recipe, what, "correct its file, or name its package") from error
    if not content:
        raise _wrong(recipe, f"the boot loader's {name} is empty: {path}", "build or copy it again")
    return content


def _check_header(recipe: Recipe, file: LoaderFile) -> None:
    named, found = f"the boot loader's {file.name} ({file.piece.file})", header_of(file.content)
    wanted = file.piece.header
    if wanted is None:
        return
    if found != wanted:
        what = f"{named} has {header_words(found)}; this board starts there only files with {header_words(wanted)}"
        raise _wrong(recipe, what, "take the loader of this board, or correct header")
    if problem := damage(file.content):
        raise _wrong(recipe, f"{named} is damaged: {problem}", "build or copy it again")
    tree, own = device_tree_of(file.content), recipe.boot.dtb
    if tree is not None and own is not None and _family(tree) != _family(own):
        what = f"{named} is for {tree}, but the recipe's device tree is {own}"
        raise _wrong(recipe, what, "take the loader of a board with the same processor")


def _family(tree: str) -> list[str]:
    """The processor in the name of a device tree: `sun8i-h3-orangepi-pc` -> sun8i, h3."""
    return Path(tree).name.removesuffix(".dtb").split("-")[:2]


def _wrong(recipe: Recipe, what: str, hint: str) -> ConfigError:
    return ConfigError(f"{recipe.file}: {what}", hint=f"{hint}; docs/images.md explains [boot_loader]")
