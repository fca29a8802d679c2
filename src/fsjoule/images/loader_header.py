"""The header of a boot loader's file: which boot ROM or loader starts it. Pure.

Sources: U-Boot's include/sunxi_image.h, include/imximage.h, tools/omapimage.h, tools/rkcommon.c, tools/stm32image.c,
include/image.h, and libfdt.
"""

from __future__ import annotations

import struct
from typing import Final

from fsjoule.kernels.card_layout import Header

# Offset and possible contents there.
_MAGIC: Final[dict[Header, tuple[int, tuple[bytes, ...]]]] = {
    "allwinner": (4, (b"eGON.BT0",)),
    "imx": (0, (b"\xd1\x00\x20\x40", b"\xd1\x00\x20\x41", b"\xd1\x00\x20\x43")),  # tag, length 32, version
    "omap": (20, (b"CHSETTINGS\0",)),
    "rockchip": (0, (b"\x3b\x8c\xdc\xfc", b"RKNS")),  # the first one is the encrypted 0x0ff0aa55
    "stm32": (0, (b"STM2",)),
    "uimage": (0, (b"\x27\x05\x19\x56",)),
    "fit": (0, (b"\xd0\x0d\xfe\xed",)),
}
_WORDS: Final[dict[Header, str]] = {
    "allwinner": "Allwinner's eGON",
    "imx": "an i.MX image vector table",
    "omap": "TI's configuration header",
    "rockchip": "Rockchip's ID block",
    "stm32": "an STM32 header",
    "uimage": "U-Boot's legacy image",
    "fit": "a flattened image tree",
}

_SUM_SEED: Final = 0x5F0A6C39
_SUM_AT, _LENGTH_AT = 12, 16
_SPL_AT, _SPL_WITH_TREE = 20, b"SPL\x02"
_TREE_NAME_AT: Final = 32
_HEAD_BYTES: Final = 512


def header_of(content: bytes) -> Header | None:
    """The kind of the header at the beginning of a file, or None."""
    return next((kind for kind, (at, magics) in _MAGIC.items() if content[at:].startswith(magics)), None)


def header_words(kind: Header | None) -> str:
    return "no header that is known" if kind is None else _WORDS[kind]


def damage(content: bytes) -> str | None:
    """The reason for which a boot ROM would refuse a file with a checksum in its header."""
    if header_of(content) != "allwinner" or len(content) < _HEAD_BYTES:
        return None
    stored, length = struct.unpack_from("<I", content, _SUM_AT)[0], struct.unpack_from("<I", content, _LENGTH_AT)[0]
    if length % 4 or length > len(content):
        return f"its header says {length} bytes, but the file has {len(content)}"
    words = struct.unpack_from(f"<{length // 4}I", content)
    if (sum(words) - stored + _SUM_SEED) & 0xFFFFFFFF != stored:
        return "the checksum in its header is wrong"
    return None


def device_tree_of(content: bytes) -> str | None:
    """The device tree that an Allwinner loader was made for, without `.dtb`; None if it does not tell."""
    if header_of(content) != "allwinner" or content[_SPL_AT : _SPL_AT + 4] != _SPL_WITH_TREE:
        return None
    at = int.from_bytes(content[_TREE_NAME_AT : _TREE_NAME_AT + 4], "little")
    name = content[at:_HEAD_BYTES].partition(b"\0")[0] if at else b""
    return name.decode(errors="replace") or None
