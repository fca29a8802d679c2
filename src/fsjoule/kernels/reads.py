"""The source files that a build reads. A commit that changes none of them gives the same kernel and is not built.

Compilers and fixdep list each object's sources in `.NAME.cmd`, kconfig in `auto.conf.cmd`. Neither lists makefiles and
sources of a makefile's own rules (tables, scripts): such files count as read near any built file. So the answer errs
only on one side: a file that is not read may count as read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

from pydantic import TypeAdapter

from fsjoule.host.json_text import json_text

READS: Final = "reads.json"  # beside a built kernel

_TOKEN: Final = re.compile(r"[^\s\\$():\"'=,;<>|&]+")
_KERNEL_HEADERS: Final = "CONFIG_IKHEADERS"  # puts all headers into the kernel

_COMPILED: Final = frozenset({".c", ".h", ".S", ".s", ".dts", ".dtsi", ".dtso", ".rs"})
_NOTHING: Final = frozenset({".rst", ".gitignore", ".mailmap", ".clang-format", ".editorconfig", ".cocciconfig"})
_NO_CODE: Final = frozenset({"Documentation", "LICENSES", "MAINTAINERS", "CREDITS", "COPYING", "README"})
_OWN_PROGRAMS: Final = ("tools/testing/", "tools/perf/")
# Programs and rules in these make other files.
_ALWAYS: Final = frozenset({"scripts", "usr", "certs"})
_NEAR: Final = 2  # folders below which a makefile reaches into another: net/wireless reads net/wireless/certs/*.hex


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that differs between two commits; `appeared` if only one of them has it."""

    path: str
    appeared: bool


def is_documentation(path: str) -> bool:
    """Whether no build of any kernel reads a file: texts, and programs that only people run.

    A .txt elsewhere may be a table from which a makefile makes code.
    """
    pure = PurePosixPath(path)
    read = pure.name.startswith(("Kconfig", "Makefile"))  # kconfig reads Documentation/Kconfig
    return not read and (pure.parts[0] in _NO_CODE or pure.suffix == ".rst" or path.startswith(_OWN_PROGRAMS))


@dataclass(frozen=True)
class Reads:
    """`files` are paths in the source, `folders` have built files. `everything` is for a build that does not tell."""

    files: frozenset[str]
    folders: frozenset[str]
    all_headers: bool = False
    everything: bool = False

    def first(self, changes: Iterable[FileChange]) -> str | None:
        """The first change that may affect the build; None if the kernel stays the same."""
        return next((change.path for change in changes if self._notices(change)), None)

    def __or__(self, other: Reads) -> Reads:
        """The reads of both builds together."""
        headers, everything = self.all_headers or other.all_headers, self.everything or other.everything
        return Reads(self.files | other.files, self.folders | other.folders, headers, everything)

    def to_json(self) -> bytes:
        """The stored form, for `from_json`."""
        stored = {"files": sorted(self.files), "folders": sorted(self.folders), "all_headers": self.all_headers}
        return json_text(_STORED, _STORED.validate_python(stored))

    @classmethod
    def from_json(cls, content: bytes) -> Reads:
        """Raises ValidationError for foreign content."""
        return _STORED.validate_json(content)

    def _notices(self, change: FileChange) -> bool:
        path = PurePosixPath(change.path)
        if self.everything or change.path in self.files or (change.appeared and self._takes_a_place(path)):
            return True
        return not self._is_foreign(path) and self._is_near(path)

    def _is_foreign(self, path: PurePosixPath) -> bool:
        """Whether no rule of this build uses such a file, except by name."""
        top = path.parts[0]
        if top == "arch" and len(path.parts) > _NEAR and path.parts[1] not in self._architectures:
            return True
        return top in _NO_CODE or not _NOTHING.isdisjoint((path.suffix, path.name)) or path.name.startswith("Kconfig")

    def _is_near(self, path: PurePosixPath) -> bool:
        """Whether a makefile, or a rule in one, may read a file that no object names."""
        top, folder = path.parts[0], path.parent.as_posix()
        if top in _ALWAYS or (top == "tools" and self._tools_made):
            return True
        if path.suffix in _COMPILED:
            return self.all_headers and path.suffix == ".h" and "include" in path.parts
        is_makefile = path.name.startswith(("Makefile", "Kbuild"))
        above = [] if is_makefile else [each.as_posix() for each in path.parents if len(each.parts) >= _NEAR]
        return folder == "." or top == "arch" or not self._touched.isdisjoint((folder, *above))

    def _takes_a_place(self, path: PurePosixPath) -> bool:
        """Whether a new or removed file may replace one that is read: by name, or by another rule."""
        return (path.suffix == ".h" and path.name in self._names) or path.with_suffix("").as_posix() in self._stems

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(path.rpartition("/")[2] for path in self.files)

    @cached_property
    def _stems(self) -> frozenset[str]:
        return frozenset(PurePosixPath(path).with_suffix("").as_posix() for path in self.files)

    @cached_property
    def _touched(self) -> frozenset[str]:
        """Folders with built or read files."""
        return self.folders | {path.rpartition("/")[0] or "." for path in self.files}

    @cached_property
    def _architectures(self) -> frozenset[str]:
        return frozenset(folder.split("/")[1] for folder in self.folders if folder.startswith("arch/"))

    @cached_property
    def _tools_made(self) -> bool:
        return any(folder.startswith("tools") for folder in self.folders)


_STORED: Final = TypeAdapter(Reads)


def reads_of(build: Path, source: Path, tracked: Iterable[str]) -> Reads:
    """The reads of a build folder, with those of its earlier builds. `tracked` are the source's files."""
    known = frozenset(tracked)
    tokens: set[str] = set()
    folders: set[str] = set()
    for file in build.rglob("*"):
        if file.is_file():
            folders.add(file.parent.relative_to(build).as_posix())
            if file.suffix == ".cmd":
                tokens.update(_TOKEN.findall(file.read_text(errors="replace")))
    config = (build / ".config").read_text(errors="replace")
    files = {path for token in tokens if (path := _in_source(token, build, source, known)) is not None}
    return Reads(frozenset(files), frozenset(folders), all_headers=f"\n{_KERNEL_HEADERS}=" in config)


def _in_source(token: str, build: Path, source: Path, known: frozenset[str]) -> str | None:
    """The source path in a word of a command or list, with links resolved; None for other words."""
    if not token.startswith("/") and token in known:
        token = f"{source}/{token}"
    if "/" not in token or token.startswith("-"):
        return None
    try:
        path = (build / token).resolve()
    except (OSError, RuntimeError):
        return None
    if not path.is_relative_to(source) or path == source:
        return None
    return path.relative_to(source).as_posix()
