"""What a build reads of its source: so a commit that touches nothing of it gives the same kernel, and is not built.

Compilers and fixdep leave what each object was made from in `.NAME.cmd`, kconfig in `auto.conf.cmd`. Makefiles, and
files that a makefile's own rules turn into something (tables, scripts), are in neither: they count as read wherever the
build has been near them. So the answer errs on one side: a file may count as read that is not, never the reverse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

from pydantic import TypeAdapter

READS: Final = "reads.json"  # beside a built kernel

_TOKEN: Final = re.compile(r"[^\s\\$():\"'=,;<>|&]+")
_KERNEL_HEADERS: Final = "CONFIG_IKHEADERS"  # puts all headers into the kernel

_COMPILED: Final = frozenset({".c", ".h", ".S", ".s", ".dts", ".dtsi", ".dtso", ".rs"})
_NOTHING: Final = frozenset({".rst", ".gitignore", ".mailmap", ".clang-format", ".editorconfig", ".cocciconfig"})
_NO_CODE: Final = frozenset({"Documentation", "LICENSES", "MAINTAINERS", "CREDITS", "COPYING", "README"})
# Their programs and rules make other files.
_ALWAYS: Final = frozenset({"scripts", "usr", "certs"})
_NEAR: Final = 2  # folders below which a makefile reaches into another: net/wireless reads net/wireless/certs/*.hex


@dataclass(frozen=True, slots=True)
class Change:
    """A file that differs between two commits; `appeared` if only one of them has it."""

    path: str
    appeared: bool


@dataclass(frozen=True)
class Reads:
    """`files` are paths in the source, `folders` those in which something was made."""

    files: frozenset[str]
    folders: frozenset[str]
    all_headers: bool = False

    def first(self, changes: Iterable[Change]) -> str | None:
        """The first path of which the build may notice that it changed; None if it gives the same kernel."""
        return next((change.path for change in changes if self._notices(change)), None)

    def __or__(self, other: Reads) -> Reads:
        """What either of two builds read."""
        every = self.all_headers or other.all_headers
        return Reads(self.files | other.files, self.folders | other.folders, every)

    def to_json(self) -> bytes:
        """As it is kept; `from_json` reads it."""
        stored = {"files": sorted(self.files), "folders": sorted(self.folders), "all_headers": self.all_headers}
        return _STORED.dump_json(_STORED.validate_python(stored))

    @classmethod
    def from_json(cls, content: bytes) -> Reads:
        """Raises ValidationError for what `to_json` did not write."""
        return _STORED.validate_json(content)

    def _notices(self, change: Change) -> bool:
        path = PurePosixPath(change.path)
        if change.path in self.files or (change.appeared and self._takes_a_place(path)):
            return True
        return not self._is_foreign(path) and self._is_near(path)

    def _is_foreign(self, path: PurePosixPath) -> bool:
        """Whether no rule of this build takes such a file, other than by its name."""
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
        """Whether a file that comes or goes may stand for one that is read: of its name, or by another rule."""
        return (path.suffix == ".h" and path.name in self._names) or path.with_suffix("").as_posix() in self._stems

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(path.rpartition("/")[2] for path in self.files)

    @cached_property
    def _stems(self) -> frozenset[str]:
        return frozenset(PurePosixPath(path).with_suffix("").as_posix() for path in self.files)

    @cached_property
    def _touched(self) -> frozenset[str]:
        """Folders in which something is made or read."""
        return self.folders | {path.rpartition("/")[0] or "." for path in self.files}

    @cached_property
    def _architectures(self) -> frozenset[str]:
        return frozenset(folder.split("/")[1] for folder in self.folders if folder.startswith("arch/"))

    @cached_property
    def _tools_made(self) -> bool:
        return any(folder.startswith("tools") for folder in self.folders)


_STORED: Final = TypeAdapter(Reads)


def reads_of(build: Path, source: Path, tracked: Iterable[str]) -> Reads:
    """What a build folder says was read, and what it was told of earlier builds. `tracked` are the source's files."""
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
    """The path in the source that a word of a command or a list names, links followed; None for any other word."""
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
