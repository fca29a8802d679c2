"""Stage `boot_loader`: the files of a board's boot loader, checked before anything is written.

The entry holds the files from Debian's packages, by piece, `config` (U-Boot's build configuration, if its package has
it) and `packages.json`. Files of the user's are not copied.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import ConfigError
from fsjoule.host import process
from fsjoule.host.apt import PrivateApt
from fsjoule.host.cache.stages import Progress, build_once, cache_key
from fsjoule.host.debian_archive import debian_archive
from fsjoule.host.unpacking import DAMAGED, unzipped
from fsjoule.images.load_addresses import addresses_in
from fsjoule.images.loader_header import damage, device_tree_of, header_of, header_words
from fsjoule.kernels.card_layout import Address, BootLoader, LoaderPiece, overlap
from fsjoule.kernels.recipe import Recipe, recipes_folder
from fsjoule.model.run import BOOT_LOADER

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


def boot_loader(recipe: Recipe, *, progress: Progress) -> Loader:
    """The boot loader of the recipe's cards; without one in the recipe it has no files.

    Raises ConfigError if a file is missing, is not for this board or has no room on the card, LabError (transient) if a
    package cannot be fetched.
    """
    wanted = recipe.boot_loader
    fetched = {name: piece for name, piece in wanted.pieces.items() if piece.package}
    packages: dict[str, str] = {}
    package_sha256: dict[str, str] = {}
    files: list[LoaderFile] = []
    suite = wanted.suite or recipe.userland.suite
    members = {name: (str(piece.package), piece.file) for name, piece in fetched.items()}
    folder = (
        package_files(recipe.architecture, suite, wanted.components, members, progress=progress) if members else None
    )
    config = ""
    if folder is not None:
        config = (folder / _CONFIG).read_text()
        notes = json.loads((folder / _NOTES).read_text())
        packages, package_sha256 = notes["packages"], notes["sha256"]
    for name, piece in wanted.pieces.items():
        path = recipes_folder() / piece.file if folder is None or name not in fetched else folder / name
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
    architecture: str,
    suite: str,
    components: Sequence[str],
    members: Mapping[str, tuple[str, str]],
    *,
    progress: Progress,
) -> Path:
    """A folder with files of Debian's packages: name -> package and file in it. `packages.json` has their versions.

    Boards with the same files share it. Raises ConfigError if a package has no such file or a damaged one, LabError
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
        progress(f"boot loader: fetching the package lists of {suite}")
        apt.update(progress)
        packages = apt.show(sorted({package for package, _ in members.values()}))
        described = ", ".join(f"{package.name} {package.version}" for package in packages)
        progress(f"boot loader: downloading {described}")
        files = apt.download(packages, work, progress)
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
    return build_once("boot_loader", name, cache_key(inputs), build, progress=progress)


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
