"""The common part of all frames on the meter's line, in both directions: COBS, head and checksum. Pure.

Source: Cheshire and Baker, "Consistent Overhead Byte Stuffing", IEEE/ACM Transactions on Networking 7(2), 1999; the
other parts are in docs/meter-protocol.md.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

PROTOCOL: Final = 3
HEAD: Final = struct.Struct("<BBI")  # type, protocol, seq
DELIMITER: Final = b"\0"
_CRC_BYTES: Final = 4
# A frame has at most 253 bytes, and COBS adds one: no run needs the code 0xFF, which keeps decoding simple.
MAX_STUFFED_BYTES: Final = 254
_MAX_PAYLOAD_BYTES: Final = MAX_STUFFED_BYTES - 1 - HEAD.size - _CRC_BYTES


def packed(kind: int, seq: int, payload: bytes) -> bytes:
    """A frame's bytes on the line, with delimiter. Raises ValueError for a payload that is too long."""
    if len(payload) > _MAX_PAYLOAD_BYTES:
        raise ValueError(f"a frame takes at most {_MAX_PAYLOAD_BYTES} bytes of payload, not {len(payload)}")
    body = HEAD.pack(kind, PROTOCOL, seq) + payload
    content = body + zlib.crc32(body).to_bytes(_CRC_BYTES, "little")
    return b"".join(bytes((len(run) + 1,)) + run for run in content.split(DELIMITER)) + DELIMITER


def unpacked(piece: bytes) -> bytes | None:
    """Head and payload of the frame in a piece between two delimiters, or None if it is damaged."""
    content = _unstuffed(piece)
    if content is None or len(content) < HEAD.size + _CRC_BYTES:
        return None
    body = content[:-_CRC_BYTES]
    return body if zlib.crc32(body).to_bytes(_CRC_BYTES, "little") == content[-_CRC_BYTES:] else None


def _unstuffed(piece: bytes) -> bytes | None:
    """The content of a COBS-encoded frame without its delimiter, or None if it is invalid.

    In frames this short each code is the distance to the next zero, so decoding only restores the zeros.
    """
    size = len(piece)
    if size > MAX_STUFFED_BYTES:
        return None
    content = bytearray(piece)
    at = piece[0]
    while at < size:
        code = piece[at]
        content[at] = 0
        at += code
    return bytes(content[1:]) if at == size else None
