"""A card image in one file, with what a bench needs of the cache beside it: for computers that cannot build cards.

The file is a tar, packed with zstd. Its first member, `fsjoule-image.json`, says which card it is and names the cache's
entries with their digests; the entries follow as they are in the cache, each with the record of its content.
"""

from __future__ import annotations

import os
import platform
import re
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from shutil import rmtree
from typing import IO, Any, Final, Literal, cast

from pydantic import TypeAdapter

from fsjoule.errors import ConfigError, FsjouleError, HostError, ResultError, not_written
from fsjoule.host.cache.locks import locked
from fsjoule.host.cache.stages import (
    LOCK_TIMEOUT_S,
    adopt,
    check_whole,
    damage,
    drop,
    entry_digest,
    images_cache,
    recorded,
)
from fsjoule.host.files import PARTIAL_SUFFIX
from fsjoule.host.inside import MIB
from fsjoule.host.json_text import json_text
from fsjoule.host.unpacking import DAMAGED, MOST_TREE_BYTES, ZSTD_MAGIC, parts_of, tar_within
from fsjoule.images.card_image import CardImage, build_card, emulator
from fsjoule.kernels.sources import kernel_choices
from fsjoule.model import DEFAULT_RECIPE

_HEAD: Final = "fsjoule-image.json"
_SCHEMA: Final = "fsjoule-image"
_VERSION: Final = 1
_EXPORT: Final = "fsjoule image export FILE writes one"
# What a card that is in the cache needs there. A root partition is only needed to build one.
_STAGES: Final = ("emulator", "boot_loader", "kernel", "userland", "card")
_PLACE: Final = re.compile(rf"(?:{'|'.join(_STAGES)})/[A-Za-z0-9_][A-Za-z0-9._+~-]*-[0-9a-f]{{16}}")
_HEADERS_BYTES: Final = 256 * MIB
_MODES: Final = 0o1777  # a cache has no program that runs as another user


@dataclass(frozen=True, slots=True)
class CardArchive:
    """The first member: the card by its recipe, kernel and root filesystem, and its entries' digests by place."""

    schema: Literal["fsjoule-image"]
    version: int
    fsjoule: str
    machine: str
    recipe: str
    kernel: str
    root_filesystem: str
    entries: dict[str, str]


_HEADS: Final = TypeAdapter(CardArchive)


def export_card(kernel: str, root_filesystem: str, file: Path, *, recipe: str = DEFAULT_RECIPE) -> CardArchive:
    """Write a card image into a file, building it unless it is cached.

    Raises ConfigError for a kernel that only this computer has or a file that cannot be written, StorageError for a
    full disk, and like `build_card` and `emulator`.
    """
    if kernel not in kernel_choices(recipe):
        raise ConfigError(
            f"the kernel {kernel!r} is on this computer only, so a card with it is of no use elsewhere",
            hint=f"choose one by name: {', '.join(kernel_choices(recipe))}",
        )
    with recorded() as used:
        build_card(kernel, root_filesystem, recipe=recipe)
        emulator(kernel, recipe=recipe)
    places = {f"{path.parent.name}/{path.name}": path for path in used if path.parent.name in _STAGES}
    for path in places.values():
        check_whole(path)
    head = CardArchive(
        "fsjoule-image",
        _VERSION,
        version("fsjoule"),
        platform.machine(),
        recipe,
        kernel,
        root_filesystem,
        {place: entry_digest(path) for place, path in places.items()},
    )
    partial = file.with_name(file.name + PARTIAL_SUFFIX)
    try:
        _pack(head, places, partial)
        partial.replace(file)
    except OSError as error:
        raise not_written(f"{file} cannot be written", error, hint="name another file, or make room") from error
    finally:
        partial.unlink(missing_ok=True)
    return head


def _pack(head: CardArchive, places: dict[str, Path], file: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415 - it takes longer than most commands

    arrow: Any = pa  # it ships no types
    stream = cast("IO[bytes]", arrow.output_stream(str(file), compression="zstd"))
    with stream, tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        content = json_text(_HEADS, head, indent=2)
        with tempfile.TemporaryFile() as text:
            text.write(content)
            text.seek(0)
            member = tarfile.TarInfo(_HEAD)
            member.size = len(content)
            archive.addfile(member, text)
        for place, folder in places.items():
            for path in sorted(folder.rglob("*")):
                member = archive.gettarinfo(path, f"{place}/{path.relative_to(folder).as_posix()}")
                member.uid = member.gid = member.mtime = 0
                member.uname = member.gname = ""
                if not path.is_symlink() and path.is_file():
                    member.type, member.size = tarfile.REGTYPE, path.stat().st_size  # also a second link to a file
                    with path.open("rb") as opened:
                        archive.addfile(member, opened)
                else:
                    archive.addfile(member)


def import_card(file: Path) -> CardImage:
    """Put the card of a file into the cache, with what it needs, and return it as a bench would find it.

    Whole entries of the cache stay as they are. Raises ConfigError for a file that is damaged or no such archive, one
    that a newer fsjoule has written, a card that this fsjoule makes differently, or a cache that has another one in its
    place; StorageError. The cache is then as it was.
    """
    if not file.is_file():
        raise ConfigError(f"{file} is not a file", hint=_EXPORT)
    cache = images_cache()
    with locked(cache / ".import.lock", "what is in an archive", LOCK_TIMEOUT_S):
        for leftover in cache.glob(".import-*"):
            rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".import-", dir=cache) as folder:
            head = _unpack(file, Path(folder))
            _check(file, head, Path(folder), cache)
            return _move(file, head, Path(folder), cache)


def _unpack(file: Path, into: Path) -> CardArchive:
    with file.open("rb") as packed:
        if packed.read(len(ZSTD_MAGIC)) != ZSTD_MAGIC:
            raise _no_archive(file, "is not packed with zstd")
    try:
        with tar_within(file, MOST_TREE_BYTES + _HEADERS_BYTES) as archive:
            members = iter(archive)
            head = _head(file, archive, next(members, None))
            _unpack_entries(archive, members, head, into)
    except FileExistsError as error:
        raise _damaged(file, f"{Path(error.filename).relative_to(into)} is twice in it") from error
    except DAMAGED as error:
        why = str(error).removeprefix("it is damaged: ").splitlines()
        raise _damaged(file, why[0] if why else "it is cut short") from error
    except OSError as error:
        raise not_written(
            f"{file} cannot be unpacked", error, hint="make room for the cache, then try again"
        ) from error
    return head


def _head(file: Path, archive: tarfile.TarFile, member: tarfile.TarInfo | None) -> CardArchive:
    if member is None or member.name != _HEAD or not member.isreg() or not 0 <= member.size <= MIB:
        raise _no_archive(file, f"does not begin with {_HEAD}")
    content = b"".join(parts_of(archive, member))
    found = TypeAdapter(dict[str, Any]).validate_json(content)
    if found.get("schema") == _SCHEMA and found.get("version") != _VERSION:
        raise ConfigError(
            f"{file} is of version {found.get('version')} of its format, and this fsjoule knows {_VERSION}",
            hint=f"take the fsjoule that wrote it ({found.get('fsjoule')}), or export the card with this one",
        )
    head = _HEADS.validate_json(content)
    if wrong := next((place for place in head.entries if not _PLACE.fullmatch(place)), None):
        raise ValueError(f"{wrong[:200]!r} is not the place of an entry")
    return head


def _unpack_entries(
    archive: tarfile.TarFile, members: Iterator[tarfile.TarInfo], head: CardArchive, into: Path
) -> None:
    left_bytes = MOST_TREE_BYTES
    links: list[tuple[Path, str]] = []
    modes: list[tuple[Path, int]] = []
    for member in members:
        names = member.name.split("/")
        if "/".join(names[:2]) not in head.entries or any(name in ("", ".", "..") for name in names):
            raise ValueError(f"{member.name[:200]!r} does not belong there")
        path = into / member.name
        path.parent.mkdir(parents=True, exist_ok=True)
        if member.isdir():
            path.mkdir(exist_ok=True)
            modes.append((path, member.mode & _MODES))
        elif member.issym():
            links.append((path, member.linkname))
        elif member.isreg():
            left_bytes -= member.size
            if member.size < 0 or left_bytes < 0:
                raise ValueError("its files have too many bytes")
            _write(path, parts_of(archive, member), member.size)
            path.chmod(member.mode & _MODES)
        else:
            raise ValueError(f"{member.name[:200]!r} is neither a file, a folder nor a link")
    for path, target in links:  # last, so that nothing is written through one
        path.symlink_to(target)
    for path, mode in reversed(modes):  # a folder's own last, in case that it forbids to write into it
        path.chmod(mode)


def _write(path: Path, parts: Iterator[bytes], size: int) -> None:
    """Write a new file, with holes for zeros: a card is mostly empty."""
    with path.open("xb") as file:
        for part in parts:
            if any(part):
                file.write(part)
            else:
                file.seek(len(part), os.SEEK_CUR)
        file.truncate(size)


def _check(file: Path, head: CardArchive, unpacked: Path, cache: Path) -> None:
    """Raises ConfigError if an entry is damaged, or if the cache has another one in its place."""
    for place, digest in head.entries.items():
        entry = unpacked / place
        if found := damage(entry, read=True):
            raise _damaged(file, f"{place}: {found}")
        if entry_digest(entry) != digest:
            raise _damaged(file, f"{place} has another digest")
        there = cache / place
        if os.path.lexists(there) and damage(there) is None and entry_digest(there) != digest:
            raise ConfigError(
                f"the cache has another {place} than {file}: their packages were fetched at different times, or "
                "another fsjoule made one of them",
                hint="import into another cache (FSJOULE_CACHE_DIR=FOLDER), or empty this one: fsjoule image clean",
            )


def _move(file: Path, head: CardArchive, unpacked: Path, cache: Path) -> CardImage:
    with ExitStack() as back:
        for place in sorted(head.entries, key=lambda each: _STAGES.index(each.partition("/")[0])):
            stage = place.partition("/")[0]
            if stage == "emulator" and head.machine != platform.machine():
                continue  # a program of the computer that wrote it
            if adopt(unpacked / place, stage):
                back.callback(drop, cache / place, place)
        try:
            card = _as_found(head)
        except (ConfigError, HostError, ResultError) as error:
            raise _foreign(file, head, error) from error
        back.pop_all()
    return card


def _as_found(head: CardArchive) -> CardImage:
    """The card as a bench finds it in the cache. Raises HostError if it finds none, or another one."""
    with recorded(build=False):
        card = build_card(head.kernel, head.root_filesystem, recipe=head.recipe)
    if f"card/{card.path.parent.name}" not in head.entries:
        raise HostError(f"its card is {card.path.parent.name}")
    return card


def _no_archive(file: Path, why: str) -> ConfigError:
    return ConfigError(f"{file} is not a card image in an archive: it {why}", hint=_EXPORT)


def _foreign(file: Path, head: CardArchive, error: FsjouleError) -> ConfigError:
    return ConfigError(
        f"{file} is of no use here: fsjoule {version('fsjoule')} makes another card of recipe {head.recipe!r}, kernel "
        f"{head.kernel} and {head.root_filesystem} than fsjoule {head.fsjoule} did ({error.what})",
        hint="export the card with the same fsjoule and the same recipe",
    )


def _damaged(file: Path, why: str) -> ConfigError:
    return ConfigError(f"{file} is damaged: {why}", hint="copy it again, or export it again")
