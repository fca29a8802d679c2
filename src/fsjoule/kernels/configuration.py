"""A kernel's configuration: the board's recipe, the user's fragments, and a bisection's additions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fsjoule.errors import ConfigError
from fsjoule.host.cache.stages import cache_key
from fsjoule.host.paths import project_dir
from fsjoule.kernels.kconfig import check_fragment, parse_config
from fsjoule.kernels.recipe import Recipe


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
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "give a file with lines CONFIG_NAME=y, or one such line itself"
        raise ConfigError(f"the fragment {given!r} cannot be read: {error}", hint=hint) from error
    check_fragment(text, file=file)
    return text
