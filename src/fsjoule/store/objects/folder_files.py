"""The files of a run folder on this computer, with their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fsjoule.errors import ResultError
from fsjoule.host.files import PARTIAL_SUFFIX
from fsjoule.host.inside import TRACE_BYTES, read_inside
from fsjoule.store.folder import RUN_FILE
from fsjoule.store.objects.runs import MOST_FILES, PAGE, StoredRun
from fsjoule.store.reader import run_files


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file by its path in the run folder."""

    path: str
    sha256: str
    bytes: int


def folder_files(folder: Path, problems: list[str]) -> dict[str, FolderFile]:
    """All files of a run folder by path; what no run folder has is added to `problems`.

    Raises ResultError if it cannot be read or has too many files.
    """
    found: dict[str, FolderFile] = {}
    for path in _paths(folder, problems):
        try:
            content = content_of(folder, path)
        except ResultError as error:
            problems.append(error.what)
            continue
        if content is not None:  # not removed meanwhile
            found[path] = FolderFile(path, hashlib.sha256(content).hexdigest(), len(content))
        if len(found) > MOST_FILES:
            raise ResultError(
                f"it has more than {MOST_FILES} files, too many for a run folder",
                hint="move what is no part of the run away",
            )
    return found


def content_of(folder: Path, path: str) -> bytes | None:
    """A file's content; None if it is missing. Raises ResultError if it is not read."""
    return read_inside(folder, *path.split("/"), at_most=TRACE_BYTES)


def joined(folder: Path, files: Iterable[FolderFile]) -> bytes:
    """The contents of files, one after another. Raises ResultError if one has changed since it was read."""
    parts: list[bytes] = []
    for file in files:
        content = content_of(folder, file.path)
        if content is None or hashlib.sha256(content).hexdigest() != file.sha256:
            raise ResultError(f"{file.path} was changed meanwhile", hint="push the run again")
        parts.append(content)
    return b"".join(parts)


def looks_like(folder: Path, stored: StoredRun) -> bool:
    """Whether a folder has the run.json of the store, and files of the sizes there: measurements never change."""
    sizes = {path: size for path, size in _sizes(folder).items() if path != PAGE}
    if sizes != {path: file.bytes for path, file in stored.files.items() if path != PAGE}:
        return False
    content = content_of(folder, RUN_FILE)
    return content is not None and hashlib.sha256(content).hexdigest() == stored.files[RUN_FILE].sha256


def size_bytes(folder: Path) -> int:
    """The size of a run's files; 0 if they cannot be listed, which is told when they are read."""
    try:
        return sum(_sizes(folder).values())
    except (OSError, ResultError):
        return 0


def digests(files: Mapping[str, FolderFile]) -> dict[str, str]:
    return {path: file.sha256 for path, file in files.items()}


def _sizes(folder: Path) -> dict[str, int]:
    return {path: (folder / path).lstat().st_size for path in _paths(folder, [])}


def _paths(folder: Path, problems: list[str]) -> Iterator[str]:
    """The files of a run. The partial ones of a killed writer are no part of it."""
    for names in run_files(folder, problems):
        if not any(name.endswith(PARTIAL_SUFFIX) for name in names):
            yield "/".join(names)
