"""A kernel's configuration: the board's recipe, the user's fragments, and a bisection's additions.

As text: fragments, and their settings that a configuration did not accept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.host.cache.stages import cache_key
from fsjoule.host.paths import project_dir
from fsjoule.host.toml_lines import config_text
from fsjoule.kernels.recipe import Recipe

_SET: Final = re.compile(r"(CONFIG_\w+)=(.+)")
_NOT_SET: Final = re.compile(r"#\s*(CONFIG_\w+) is not set\s*")
_OFF: Final = "n"


def parse_config(text: str) -> dict[str, str]:
    """Symbol -> value of a configuration or a fragment; `n` for "is not set". Other lines are ignored."""
    symbols: dict[str, str] = {}
    for line in text.splitlines():
        if match := _SET.fullmatch(line.strip()):
            symbols[match[1]] = match[2].strip()
        elif match := _NOT_SET.fullmatch(line.strip()):
            symbols[match[1]] = _OFF
    return symbols


def check_fragment(text: str, *, file: Path | None = None) -> None:
    """Raise ConfigError for a line that is neither symbol, comment nor blank; kconfig would ignore it."""
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#") and not _SET.fullmatch(stripped):
            raise ConfigError(
                f"{stripped!r} is not a line of a kernel configuration",
                file=file,
                line=number,
                hint="write CONFIG_NAME=y, or # CONFIG_NAME is not set",
            )


def not_granted(wanted: Mapping[str, str], config: Mapping[str, str]) -> list[str]:
    """The settings that a configuration did not accept: unknown symbols, and symbols that depend on a disabled one."""
    return sorted(f"{symbol}={value}" for symbol, value in wanted.items() if config.get(symbol, _OFF) != value)


@dataclass(frozen=True, slots=True)
class Configuration:
    """`base` is a target of the kernel's makefile. Later lines of the fragments override earlier ones.

    `frozen` is a whole configuration instead of the base. `compiler_options` go to the kernel's own compiler.
    """

    base: str
    fragments: tuple[str, ...]
    frozen: str = ""
    compiler_options: tuple[str, ...] = ()

    @property
    def wanted(self) -> dict[str, str]:
        """The fragments' settings, symbol -> value."""
        return {symbol: value for text in self.fragments for symbol, value in parse_config(text).items()}

    @property
    def folder_key(self) -> str:
        """Key of its build folder: similar configurations share one, so that little is compiled again."""
        return cache_key({"base": self.base, "fragments": [*self.fragments, *self.compiler_options]})


def board_configuration(recipe: Recipe, fragments: Sequence[str]) -> Configuration:
    """The board's configuration with its filesystems and further fragments: files, or lines (`CONFIG_NAME=y`).

    Raises ConfigError for a recipe without one, and for an invalid fragment.
    """
    wanted = recipe.kernel_build
    if wanted is None:
        raise ConfigError(
            f"the recipe {recipe.name!r} has no configuration for a kernel build",
            hint=f"build it by hand and name its folder, or add [kernel_build] to {recipe.file}",
        )
    board = (project_dir() / "images" / wanted.fragment).read_text(encoding="utf-8")
    symbols = dict.fromkeys(symbol for row in recipe.filesystems for symbol in row.kconfig)
    filesystems = "".join(f"CONFIG_{symbol}=y\n" for symbol in symbols)
    return Configuration(wanted.base, (board, filesystems, *map(_fragment, fragments)))


def _fragment(given: str) -> str:
    """The text of a fragment: a file's content, or the line itself."""
    if parse_config(given):
        return given
    file = Path(given).expanduser()
    text = config_text(
        file, f"the fragment {given!r}", hint="give a file with lines CONFIG_NAME=y, or one such line itself"
    )
    check_fragment(text, file=file)
    return text
