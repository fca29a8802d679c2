"""Card images: a kernel and a Debian user land from a recipe (`images/*.toml`), built once and cached.

For: the card that a board boots, in cached stages: user land, root partition, card. docs/images.md is the guide.
Called by: `virtual`, `runs`, `ci`, `cli`.
May call: `kernels`, `filesystems`, `host`, `model`, `errors`.

Entry points: `build_card` (kernel and root filesystem to `CardImage`), `check_card` (builds it twice and compares),
`cached` and `clean` (the cache's entries), `root_filesystem_choices`, `card_space`, `has_second_root`.
"""

from fsjoule.host.cache.stages import CacheEntry, cached, clean
from fsjoule.images.card_image import (
    CardImage,
    build_card,
    card_bytes,
    card_space,
    check_card,
    emulator,
    has_second_root,
    root_filesystem_choices,
)

__all__ = [
    "CacheEntry",
    "CardImage",
    "build_card",
    "cached",
    "card_bytes",
    "card_space",
    "check_card",
    "clean",
    "emulator",
    "has_second_root",
    "root_filesystem_choices",
]
