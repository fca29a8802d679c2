"""The packages of a distribution that each purpose needs: packages.toml, and the distribution of this computer."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from fsjoule.errors import ConfigError

_TABLE: Final = Path(__file__).with_name("packages.toml")
_OS_RELEASE: Final = ("/etc/os-release", "/usr/lib/os-release")
# Debian keeps servers and filesystem tools outside an unprivileged user's PATH.
SYSTEM_PATH: Final = "/usr/local/sbin:/usr/sbin:/sbin"
_APT: Final = "apt-get install"
_CODENAMES: Final = ("UBUNTU_CODENAME", "DEBIAN_CODENAME", "VERSION_CODENAME")


@dataclass(frozen=True, slots=True)
class Distribution:
    """A column of the table; `install` is the command that installs packages, as root."""

    key: str
    title: str
    id: str
    codename: str = ""
    install: str = _APT

    @property
    def has_apt(self) -> bool:
        return self.install == _APT


@dataclass(frozen=True, slots=True)
class System:
    """This computer's distribution: its own name, and the one whose packages it has; None if none is known.

    `tried`: it is that one, or made from its packages.
    """

    title: str
    like: Distribution | None
    tried: bool = True


@dataclass(frozen=True, slots=True)
class Need:
    """A row of the table. `name` is Debian 12's package; `programs`, `files` or `module` tell that it is there."""

    name: str
    purposes: tuple[str, ...]
    why: str
    programs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    module: str = ""
    at_least: str = ""
    services: tuple[str, ...] = ()
    optional: bool = False
    on: Mapping[str, str] = field(default_factory=dict[str, str])
    lacking: Mapping[str, str] = field(default_factory=dict[str, str])

    def packages(self, distribution: Distribution | None) -> tuple[str, ...]:
        """The names of its packages there; none if `why_not` says why."""
        key = "" if distribution is None else distribution.key
        return () if key in self.lacking else tuple(self.on.get(key, self.name).split())

    def why_not(self, distribution: Distribution | None) -> str:
        """Why the distribution has no package of it, and what that means; empty if it has one."""
        return "" if distribution is None else self.lacking.get(distribution.key, "")

    @property
    def title(self) -> str:
        """What is looked for, where no package is known."""
        return ", ".join(self.programs or self.files or (self.module,))

    def is_here(self) -> bool:
        """Whether all that is used of it is on this computer, wherever it comes from."""
        if self.programs:
            return all(find_program(name) for name in self.programs)
        if self.files:
            return any(True for pattern in self.files for _ in Path("/").glob(pattern.removeprefix("/")))
        return importlib.util.find_spec(self.module) is not None


def find_program(name: str) -> str | None:
    """The absolute path of a program, also of one that only root has on the PATH."""
    return shutil.which(name) or shutil.which(name, path=SYSTEM_PATH)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_TABLE.read_text(encoding="utf-8"))


def purposes() -> dict[str, str]:
    """What can be set up, each in plain words."""
    return dict(_table()["purposes"])


def distributions() -> tuple[Distribution, ...]:
    """The columns of the table; the newest of a family comes last."""
    return tuple(Distribution(key=key, **row) for key, row in _table()["distributions"].items())


@cache
def rows() -> tuple[Need, ...]:
    """All rows of the table."""

    def need(row: dict[str, Any]) -> Need:
        fields: dict[str, Any] = dict(row)
        for name in ("for", "programs", "files", "services"):
            fields[name] = tuple(fields.get(name, ()))
        return Need(purposes=fields.pop("for"), **fields)

    return tuple(need(row) for row in _table()["packages"])


def needed(purpose: str) -> tuple[Need, ...]:
    """The rows of a purpose; tests need all that benches do. Raises ConfigError for an unknown purpose."""
    if purpose not in purposes():
        raise ConfigError.unknown("purpose", purpose, purposes())
    wanted = {"bench", "tests"} if purpose == "tests" else {purpose}
    return tuple(row for row in rows() if wanted & set(row.purposes))


def needed_programs(purpose: str) -> tuple[str, ...]:
    """The programs that a purpose cannot do without."""
    return tuple(name for row in needed(purpose) if not row.optional for name in row.programs)


def package_of(program: str) -> tuple[str, str]:
    """The package that has a program, and the command that installs packages here.

    The package has the program's own name if it is unknown.
    """
    like = this_system().like
    packages = [" ".join(row.packages(like)) or row.name for row in rows() if program in row.programs]
    return (packages or [_table()["essential"].get(program, program)])[0], _APT if like is None else like.install


@cache
def this_system() -> System:
    """The distribution of this computer."""
    file = next((Path(name) for name in _OS_RELEASE if os.access(name, os.R_OK)), None)
    return system_of("" if file is None else file.read_text(encoding="utf-8", errors="replace"))


def system_of(os_release: str) -> System:
    """The distribution that an os-release file tells of (man 5 os-release).

    A derivative that names the release it is made from has that one's packages: Linux Mint, Raspberry Pi OS. For any
    other of Debian's or Ubuntu's family the newest one's names are taken, which may not all be right.
    """
    fields = _fields(os_release)
    title = fields.get("PRETTY_NAME") or fields.get("NAME") or "an unknown Linux"
    family = [fields.get("ID", ""), *fields.get("ID_LIKE", "").split()]
    codenames = [fields[name] for name in _CODENAMES if name in fields]
    known = [each for each in reversed(distributions()) if each.id in family]
    for each in known:
        if each.codename in codenames if each.codename else each.id == fields.get("ID"):
            return System(title, each)
    # Ubuntu is like Debian, and Mint like both: the nearest is named first, and the newest release is listed last.
    known.sort(key=lambda each: family.index(each.id))
    return System(title, known[0] if known else None, tried=False)


def _fields(os_release: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in os_release.splitlines():
        name, found, value = line.strip().partition("=")
        if found and not name.startswith("#"):
            try:
                fields[name] = "".join(shlex.split(value))
            except ValueError:  # a quotation mark without its other one
                fields[name] = value
    return fields
