"""Card images: Debian kernels and user land from recipes (`images/*.toml`), built once and cached."""

from fsjoule.images.build import CardImage, build_card, emulator, kernel_choices, root_filesystem_choices
from fsjoule.images.cache import CacheEntry, cached, clean

__all__ = [
    "CacheEntry",
    "CardImage",
    "build_card",
    "cached",
    "clean",
    "emulator",
    "kernel_choices",
    "root_filesystem_choices",
]
