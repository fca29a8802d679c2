"""Images for the board's card: made by fsjoule, or named in the environment file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from labgrid.exceptions import InvalidConfigError

from fsjoule.errors import ConfigError
from fsjoule.host.cache.stages import file_sha256
from fsjoule.model import ImageFacts


class Card(Protocol):
    """An image for the card (fsjoule.images makes it)."""

    @property
    def path(self) -> Path: ...

    @property
    def facts(self) -> ImageFacts: ...


@dataclass(frozen=True)
class NamedCard:
    """An image of the environment file; only its digest is known."""

    path: Path
    facts: ImageFacts


def check_boots(card: Card, board: str) -> None:
    """Raise ConfigError if `card`, made by fsjoule, has no boot loader; `board` starts the one on its card."""
    facts = card.facts
    if facts.recipe and not facts.has_boot_loader:
        raise ConfigError(
            f"the card image of the recipe {facts.recipe!r} has no boot loader, and {board} starts the one on its card",
            hint=f"add [boot_loader] to the recipe {facts.recipe} (docs/images.md), or set boot_loader: false",
        )


def named_card(name: str, environment: Any) -> NamedCard:  # noqa: ANN401 - a labgrid Environment, which has no types
    """The named image from the section `images` of a labgrid environment. Raises InvalidConfigError."""
    wrong: Any = InvalidConfigError  # attrs without types
    try:
        path = Path(environment.config.get_image_path(name))
    except KeyError as error:
        raise wrong(f"the environment file has no image {name!r}; add it: images: {{{name}: PATH}}") from error
    try:
        return _card(path, name)
    except OSError as error:
        raise wrong(f"the image {name!r}, {path}, cannot be read: {error.strerror}") from error


def named_file(path: Path) -> NamedCard:
    """An image file. Raises ConfigError if it cannot be read."""
    try:
        return _card(path, path.name)
    except OSError as error:
        raise ConfigError(f"the image cannot be read: {error.strerror}", file=path) from error


def _card(path: Path, name: str) -> NamedCard:
    return NamedCard(path, ImageFacts("", name, "", file_sha256(path), {}, {}))
