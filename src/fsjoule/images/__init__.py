"""Card images: a kernel and a Debian user land from a recipe (`images/*.toml`), built once and cached."""

from fsjoule.host.cache.stages import CacheEntry, cached, clean
from fsjoule.images.card_image import (
    CardImage,
    build_card,
    card_space,
    check_card,
    emulator,
    root_filesystem_choices,
)

__all__ = [
    "CacheEntry",
    "CardImage",
    "build_card",
    "cached",
    "card_space",
    "check_card",
    "clean",
    "emulator",
    "root_filesystem_choices",
]
