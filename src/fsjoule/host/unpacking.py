"""Unpacks what others have packed, with limits: a few bytes may expand without end, or link to the host's files."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import tarfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, Self, cast

from fsjoule.errors import ConfigError
from fsjoule.host import process

MOST_TREE_BYTES: Final = 8 << 30  # all modules of a distribution with debug information have 6 GiB
MOST_FILE_BYTES: Final = 1 << 30  # of a kernel or a module
_MOST_HEADER_BYTES: Final = 1 << 20
_PART_BYTES: Final = 1 << 16
_GZIP_MAGIC: Final = b"\x1f\x8b"
_XZ_MAGIC: Final = b"\xfd7zXZ\0"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_TIMEOUT_S: Final = 60.0
# `make modules_install` makes them. They lead to the computer that built the kernel, and nothing reads them.
_TO_SOURCE: Final = ("build", "source")
# Errors of reading what is no archive, or a part of one. Python 3.11's tarfile does not check the numbers in extended
# headers.
DAMAGED: Final = (
    tarfile.TarError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError, ValueError, ArithmeticError, LookupError
)  # fmt: skip


def unpack_tar(archive: Path, into: Path, *, most_bytes: int = MOST_TREE_BYTES) -> None:
    """Unpack files, folders and links of a tar (plain, gzip or xz), without owners and modes.

    Raises ConfigError for a damaged one, for more than `most_bytes` bytes, and for what would lead out of `into`.
    tarfile's own filters came with Python 3.11.4; Debian 12 has 3.11.2.
    """
    into.mkdir(parents=True, exist_ok=True)
    try:
        with tar_within(archive, most_bytes) as members:
            _unpack(members, into, most_bytes)
    except (*DAMAGED, OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        raise ConfigError(f"{archive} cannot be unpacked: {error}", hint="build it again") from error


@contextmanager
def tar_within(archive: Path | IO[bytes], most_bytes: int) -> Generator[tarfile.TarFile]:
    """A tar (plain, gzip, xz or zstd), to be read from its begin to its end, not beyond `most_bytes` unpacked bytes.

    Its members are not checked: names may lead anywhere, sizes be below 0. Reading raises DAMAGED, OSError.
    """
    with archive.open("rb") if isinstance(archive, Path) else archive as packed, _stream(packed) as content:
        reader = cast("IO[bytes]", _BoundedFile(content, most_bytes))
        with tarfile.open(fileobj=reader, mode="r:") as members:
            yield members


def parts_of(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    """The content of a member that is a file, in parts."""
    content = archive.extractfile(member)
    assert content is not None, "it is a file"
    while part := content.read(_PART_BYTES):
        yield part


def unzipped(content: bytes, *, most_bytes: int = MOST_FILE_BYTES) -> bytes:
    """The content of a gzip or xz file. Raises OSError, EOFError, zlib.error, LZMAError, ValueError if it is larger."""
    if not content.startswith((_GZIP_MAGIC, _XZ_MAGIC)):
        raise ValueError("it is neither gzip nor xz")
    with _stream(io.BytesIO(content)) as stream:
        found = stream.read(most_bytes + 1)
    if len(found) > most_bytes:
        raise ValueError(f"it has more than {most_bytes} bytes")
    return found


def unzstd(content: bytes, *, most_bytes: int = MOST_FILE_BYTES) -> bytes:
    """The content of a zstd file. Raises MissingToolError, HostError if it is damaged or larger."""
    # head ends first if there is more, and then zstd fails.
    pipe = f'set -o pipefail; "$0" --decompress --stdout | head --bytes {most_bytes}'
    return process.run(
        ["bash", "-c", pipe, process.find_tool("zstd")], input_bytes=content, timeout_s=_ZSTD_TIMEOUT_S
    ).stdout


class _BoundedFile:
    """A file to read up to a position. tarfile reads a whole extended header at once, whatever size it claims."""

    def __init__(self, file: IO[bytes], most_bytes: int) -> None:
        self._file = file
        self._most_bytes = most_bytes

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _MOST_HEADER_BYTES:
            raise ValueError(f"a header has more than {_MOST_HEADER_BYTES} bytes, or less than none")
        found = self._file.read(size)
        self._check(self._file.tell())
        return found

    def seek(self, position: int) -> int:
        self._check(position)
        return self._file.seek(position)

    def tell(self) -> int:
        return self._file.tell()

    def _check(self, position: int) -> None:
        if position > self._most_bytes:
            raise ValueError(f"it has more than {self._most_bytes} bytes")


class _Zstd:
    """What a zstd file unpacks to, from its begin to its end."""

    def __init__(self, packed: IO[bytes]) -> None:
        import pyarrow as pa  # noqa: PLC0415 - it takes longer than most that is unpacked

        arrow: Any = pa  # it ships no types
        self._content = cast("IO[bytes]", arrow.CompressedInputStream(arrow.PythonFile(packed, mode="r"), "zstd"))
        self._at = 0

    def read(self, size: int) -> bytes:
        try:
            part = self._content.read(size)
        except OSError as error:  # pyarrow's, for what is no zstd
            raise ValueError(f"it is damaged: {error}") from error
        self._at += len(part)
        return part

    def seek(self, position: int) -> int:
        """Go on to a later position."""
        while self._at < position and self.read(min(position - self._at, _MOST_HEADER_BYTES)):
            pass
        return self._at

    def tell(self) -> int:
        return self._at

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._content.close()


def _stream(packed: IO[bytes]) -> IO[bytes]:
    magic = packed.read(len(_XZ_MAGIC))
    packed.seek(0)
    if magic.startswith(_GZIP_MAGIC):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=packed))
    if magic.startswith(ZSTD_MAGIC):
        return cast("IO[bytes]", _Zstd(packed))
    return cast("IO[bytes]", lzma.LZMAFile(packed)) if magic == _XZ_MAGIC else packed


def _unpack(members: tarfile.TarFile, into: Path, left_bytes: int) -> None:
    links: list[tuple[Path, str]] = []
    for member in members:
        if member.size < 0:  # tarfile would go back and never end
            raise ValueError(f"{member.name!r} has a size below 0")
        path = into / _inside(member.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if member.isdir():
            path.mkdir(exist_ok=True)
        elif member.issym():
            links.append((path, member.linkname))
        elif member.islnk():
            os.link(into / _inside(member.linkname), path)
        elif member.isreg():
            left_bytes -= member.size  # of a sparse file with its holes
            if left_bytes < 0:
                raise ValueError("its files have too many bytes")
            with path.open("wb") as file:
                file.writelines(parts_of(members, member))
        else:
            raise ValueError(f"{member.name!r} is neither a file, a folder nor a link")
    _link(links, into)  # last, so that no file is written through one


def _link(links: list[tuple[Path, str]], into: Path) -> None:
    kept = [(path, target) for path, target in links if path.name not in _TO_SOURCE]
    for path, target in kept:
        path.symlink_to(target)
    # Where one leads depends on all of them.
    for path, target in kept:
        end = path.resolve()
        if end.is_symlink():  # since Python 3.13, which raises nothing
            raise ValueError(f"the link {path.relative_to(into)} leads to itself")
        if not end.is_relative_to(into.resolve()):
            raise ValueError(f"the link {path.relative_to(into)} leads out of it, to {target}")


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name.lstrip("/"))
    if ".." in path.parts:
        raise ValueError(f"{name!r} would be outside of the folder")
    return path
