"""What a kernel is configured with: the board's recipe, the user's fragments, and what a bisection adds."""

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
    """The base is a target of the kernel's makefile; of the fragments' lines a later one overrides an earlier one.

    `frozen` is a whole configuration that takes the base's place. `compiler_options` go to the kernel's own compiler.
    """

    base: str
    fragments: tuple[str, ...]
    frozen: str = ""
    compiler_options: tuple[str, ...] = ()

    @property
    def wanted(self) -> dict[str, str]:
        """The fragments' wishes, symbol -> value."""
        return {symbol: value for text in self.fragments for symbol, value in parse_config(text).items()}

    @property
    def folder_key(self) -> str:
        """Which build folder it takes: one in which most of what it needs was compiled before, if any was."""
        return cache_key({"base": self.base, "fragments": [*self.fragments, *self.compiler_options]})


def board_configuration(recipe: Recipe, fragments: Sequence[str]) -> Configuration:
    """The board's configuration with further fragments: files, or lines (`CONFIG_NAME=y`).

    Raises ConfigError for a recipe that has none, and for a fragment that cannot be read or is none.
    """
    wanted = recipe.kernel_build
    if wanted is None:
        raise ConfigError(
            f"the recipe {recipe.name!r} has no configuration for a kernel build",
            hint=f"build it by hand and name its folder, or add [kernel_build] to images/{recipe.name}.toml",
        )
    board = (project_dir() / "images" / wanted.fragment).read_text(encoding="utf-8")
    return Configuration(wanted.base, (board, *map(_fragment, fragments)))


def _fragment(given: str) -> str:
    """The text of a fragment: what is in a file, or the line itself."""
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
