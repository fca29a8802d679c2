"""A run folder in one file, RUN.tar.zst: what an object store and GitLab's package registry keep.

Its first member, RUN.sha256, has the SHA-256 of each file as sha256sum(1) writes them: after `tar --zstd -xf`,
`sha256sum -c RUN.sha256` checks the run. Documents come next, so that an index reads only the begin of an archive.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Final, cast

import pyarrow as pa

from fsjoule.errors import ResultError
from fsjoule.host.files import PARTIAL_SUFFIX
from fsjoule.host.inside import DOCUMENT_BYTES, MIB, TRACE_BYTES, read_inside, wrong_name
from fsjoule.host.unpacking import DAMAGED, parts_of, tar_within
from fsjoule.store.folder import CHECKSUMS_FILE, MEASUREMENT_FILE, MEASUREMENTS_FOLDER, RUN_FILE, decode_checksums
from fsjoule.store.reader import run_files

ARCHIVE_SUFFIX: Final = ".tar.zst"
PAGE: Final = "report.html"  # made from the other files, by any version of fsjoule
MOST_BYTES: Final = 1 << 36
MOST_FILES: Final = 1 << 16
_TABLE_SUFFIX: Final = ".sha256"
_MOST_NAMES: Final = 3  # measurements/<name>/<file>
# Of each file: a header of one block or more, and what fills its last block.
_HEADERS_BYTES: Final = 2048
_MODE: Final = 0o644
_LINE: Final = re.compile(r"([0-9a-f]{64})  ([^/\n]+)/([^\n]+)")
_TOO_MANY: Final = "it has too many files for a run folder"
_TOO_LARGE: Final = "it is too large for a run folder"


def digest_table(folder: Path, problems: list[str], *, believe: bool = True) -> dict[str, str]:
    """The SHA-256 of each file of a run folder by its path; what no run folder has is added to `problems`.

    Those of a measurement are what its SHA256SUMS says, unless all files are to be read (not `believe`). Raises
    ResultError if the folder cannot be read or has too many files.
    """
    table: dict[str, str] = {}
    sums: dict[str, dict[str, str]] = {}
    for names in run_files(folder, problems):
        if any(name.endswith(PARTIAL_SUFFIX) for name in names):  # of a killed writer
            continue
        if len(table) == MOST_FILES:
            raise ResultError(_TOO_MANY, hint="move what is no part of the run away")
        inside, (*_, name) = "/".join(names[:-1]), names
        try:
            if believe and inside.startswith(MEASUREMENTS_FOLDER):
                if inside not in sums:
                    content = read_inside(folder, *names[:-1], CHECKSUMS_FILE, at_most=MIB)
                    sums[inside] = {} if content is None else decode_checksums(content)
                if name in sums[inside]:
                    table["/".join(names)] = sums[inside][name]
                    continue
            content = read_inside(folder, *names, at_most=TRACE_BYTES)
        except ResultError as error:
            problems.append(error.what)
            continue
        if content is not None:  # not removed meanwhile
            table["/".join(names)] = hashlib.sha256(content).hexdigest()
    return table


def run_digest(table: Mapping[str, str]) -> str:
    """The SHA-256 that names a run's content: that of its table without the page."""
    return hashlib.sha256(_encode("run", {path: table[path] for path in table if path != PAGE})).hexdigest()


def is_document(path: str) -> bool:
    """Whether an index is made from this file of a run."""
    return path == RUN_FILE or path.endswith((f"/{MEASUREMENT_FILE}", f"/{CHECKSUMS_FILE}"))


def pack_run(folder: Path, table: Mapping[str, str], packed: Path, *, most_bytes: int = MOST_BYTES) -> int:
    """Write the files of a table into an archive; returns their bytes.

    Raises ResultError if a file is missing, is not what the table says, or if they have too many bytes; OSError if
    the archive cannot be written.
    """
    size_bytes = 0
    # pyarrow ships no types.
    stream = cast("IO[bytes]", pa.output_stream(packed, compression="zstd"))  # pyright: ignore[reportUnknownMemberType]
    with stream, tarfile.open(fileobj=stream, mode="w|") as archive:

        def add(name: str, content: bytes) -> None:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), _MODE
            archive.addfile(member, io.BytesIO(content))

        add(f"{folder.name}{_TABLE_SUFFIX}", _encode(folder.name, table))
        for path in sorted(table, key=lambda path: (path != RUN_FILE, not is_document(path), path)):
            content = read_inside(folder, *path.split("/"), at_most=TRACE_BYTES)
            if content is None or hashlib.sha256(content).hexdigest() != table[path]:
                edited = "was removed" if content is None else "was edited after it was stored"
                raise ResultError(
                    f"{path} {edited}", hint="find out who did; a run whose bench goes on can be tried again"
                )
            size_bytes += len(content)
            if size_bytes > most_bytes:
                raise ResultError(_TOO_LARGE)
            add(f"{folder.name}/{path}", content)
    return size_bytes


def unpack_run(
    packed: Path | IO[bytes],
    name: str,
    into: Path,
    *,
    wanted: Callable[[str], bool] = lambda _: True,
    most_bytes: int = MOST_BYTES,
    most_files: int = MOST_FILES,
) -> dict[str, str]:
    """Write the run `name` of an archive below the folder `into`, or what is `wanted` of it; returns its table.

    An archive is read only as far as its documents if nothing else is wanted. Each file is compared with the table.
    Raises ResultError if the archive is damaged or has what no run has; OSError if `into` cannot be written.
    """
    table: dict[str, str] = {}
    try:
        with tar_within(packed, most_bytes + most_files * _HEADERS_BYTES) as archive:
            members = iter(archive)
            table = _table(archive, next(members, None), name, most_files)
            lacking = {path for path in table if wanted(path)}
            left_bytes = most_bytes
            while lacking and (member := next(members, None)) is not None:
                path = member.name.removeprefix(f"{name}/")
                if path == member.name or path not in table or not member.isreg():
                    raise ResultError(f"{member.name!r} in its archive is not a file of the run")
                if not 0 <= member.size <= TRACE_BYTES:  # of a sparse file with its holes
                    raise ResultError(f"{path} in its archive has an impossible size")
                left_bytes -= member.size
                if left_bytes < 0:
                    raise ResultError(_TOO_LARGE)
                if not wanted(path):
                    continue
                if path not in lacking:
                    raise ResultError(f"{path} is twice in its archive")
                lacking.remove(path)
                if _write(into / name / path, parts_of(archive, member)) != table[path]:
                    raise ResultError(f"its archive is damaged: {path} has another digest")
    except DAMAGED as error:
        raise ResultError(f"its archive is damaged: {error}") from error
    if lacking:
        raise ResultError(f"its archive is damaged: {min(lacking)} is missing")
    return table


def read_table(packed: IO[bytes], name: str) -> dict[str, str]:
    """The table of an archive. Raises ResultError if it is damaged."""
    try:
        with tar_within(packed, DOCUMENT_BYTES + _HEADERS_BYTES) as archive:
            return _table(archive, archive.next(), name, MOST_FILES)
    except DAMAGED as error:
        raise ResultError(f"its archive is damaged: {error}") from error


def _table(archive: tarfile.TarFile, member: tarfile.TarInfo | None, name: str, most_files: int) -> dict[str, str]:
    if member is None or member.name != f"{name}{_TABLE_SUFFIX}" or not member.isreg():
        raise ResultError(f"its archive does not begin with {name}{_TABLE_SUFFIX}")
    if not 0 <= member.size <= DOCUMENT_BYTES:
        raise ResultError("the table of its archive has an impossible size")
    table: dict[str, str] = {}
    for number, text in enumerate(b"".join(parts_of(archive, member)).decode().splitlines(), start=1):
        line = _LINE.fullmatch(text)
        if line is None or line[2] != name or line[3] in table:
            raise ResultError(f"the table of its archive is damaged: line {number}")
        table[line[3]] = line[1]
    if len(table) > most_files:
        raise ResultError(_TOO_MANY)
    folders = {"/".join(names[:i]) for path in table if (names := path.split("/")) for i in range(1, len(names))}
    for path in table:
        names = path.split("/")
        if len(names) > _MOST_NAMES or any(wrong_name(each) for each in names) or path in folders:
            raise ResultError(f"{path[:200]!r} in its archive is not the name of a run's file")
    if RUN_FILE not in table:
        raise ResultError(f"there is no {RUN_FILE} in its archive")
    return table


def _encode(name: str, table: Mapping[str, str]) -> bytes:
    return "".join(f"{table[path]}  {name}/{path}\n" for path in sorted(table)).encode()


def _write(path: Path, parts: Iterator[bytes]) -> str:
    """Write a new file; returns its SHA-256."""
    digest = hashlib.sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        for part in parts:
            digest.update(part)
            file.write(part)
    return digest.hexdigest()
