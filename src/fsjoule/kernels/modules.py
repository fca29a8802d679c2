"""The dependencies of kernel modules, from the texts of depmod's indexes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from fsjoule.errors import ConfigError

_SUFFIX = re.compile(r"\.ko(\.(xz|zst|gz))?$")


@dataclass(frozen=True, slots=True)
class ModuleIndex:
    """depmod's indexes of one kernel. Module names have underscores, paths are relative to the index.

    `soft` has modules to load before or after another (`softdep`), by name or alias; not all of them exist.
    """

    paths: Mapping[str, str]
    depends: Mapping[str, tuple[str, ...]]
    soft: Mapping[str, tuple[str, ...]]
    aliases: tuple[tuple[str, str], ...]
    builtin: frozenset[str]

    def resolve(self, wanted: str) -> tuple[str, ...]:
        """The modules of a name or an alias; empty if it is built in or does not exist."""
        name = module_name(wanted)
        if name in self.paths:
            return (name,)
        return tuple(dict.fromkeys(module for pattern, module in self.aliases if fnmatchcase(wanted, pattern)))

    def has(self, wanted: str) -> bool:
        return bool(self.resolve(wanted)) or module_name(wanted) in self.builtin


def module_name(path_or_name: str) -> str:
    """`kernel/drivers/mmc/core/mmc-block.ko.xz` -> `mmc_block`."""
    return _SUFFIX.sub("", PurePosixPath(path_or_name).name).replace("-", "_")


def parse_index(*, dep: str, softdep: str, alias: str, builtin: str) -> ModuleIndex:
    """An index from the texts of modules.dep, modules.softdep, modules.alias and modules.builtin."""
    paths: dict[str, str] = {}
    depends: dict[str, tuple[str, ...]] = {}
    for line in dep.splitlines():
        path, _, needed = line.partition(":")
        paths[module_name(path)] = path
        depends[module_name(path)] = tuple(module_name(item) for item in needed.split())
    soft: dict[str, tuple[str, ...]] = {}
    for line in softdep.splitlines():
        words = line.split()
        if words[:1] == ["softdep"]:
            module = module_name(words[1])
            soft[module] = soft.get(module, ()) + tuple(w for w in words[2:] if not w.endswith(":"))
    aliases = re.findall(r"^alias (\S+) (\S+)$", alias, re.MULTILINE)
    return ModuleIndex(
        paths=paths,
        depends=depends,
        soft=soft,
        aliases=tuple((pattern, module_name(module)) for pattern, module in aliases),
        builtin=frozenset(module_name(line) for line in builtin.split()),
    )


def closure(wanted: Iterable[str], index: ModuleIndex) -> tuple[str, ...]:
    """All modules to load after their hard and soft dependencies, without built-in ones. Raises ConfigError."""
    order: dict[str, None] = {}
    visiting: set[str] = set()

    def visit(module: str) -> None:
        if module in order or module in visiting:
            return
        visiting.add(module)
        for name in index.soft.get(module, ()):
            for found in index.resolve(name):
                visit(found)
        for name in reversed(index.depends[module]):  # depmod lists the deepest dependency last
            visit(name)
        order[module] = None

    for name in wanted:
        found = index.resolve(name)
        if not found and module_name(name) not in index.builtin:
            raise ConfigError(
                f"the kernel has no module {name!r}", hint="correct [modules] or [filesystems] in the recipe"
            )
        for module in found:
            visit(module)
    return tuple(order)
