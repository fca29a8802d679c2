"""Card images: a kernel and a Debian user land from a recipe (`images/*.toml`), built once and cached.

For: the card that a board boots, in cached stages: user land, root partition, card. docs/images.md is the guide.
Called by: `virtual`, `runs`, `ci`, `cli`.
May call: `kernels`, `filesystems`, `host`, `model`, `errors`.

Entry points: `build_card` (kernel and root filesystem to `CardImage`), `check_card` (builds it twice and compares),
`export_card` and `import_card` (a card in one file), `cached` and `clean` (the cache's entries),
`root_filesystem_choices`, `card_space`, `has_second_root`.
"""

from fsjoule.host.cache.stages import cached, clean
from fsjoule.images.card_archive import export_card, import_card
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
    "CardImage",
    "build_card",
    "cached",
    "card_bytes",
    "card_space",
    "check_card",
    "clean",
    "emulator",
    "export_card",
    "has_second_root",
    "import_card",
    "root_filesystem_choices",
]
