"""The SHA-256 of each file of a measurement, as sha256sum(1) writes and checks them: `sha256sum -c SHA256SUMS`.

They tell that a file was edited, exchanged or lost after it was stored. They are no signature: whoever can write to the
folder can write them again, or remove them; a measurement without any is read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from fsjoule.errors import ResultError
from fsjoule.host.inside import wrong_name

CHECKSUMS_FILE: Final = "SHA256SUMS"
_LINE: Final = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def encode_checksums(files: Mapping[str, bytes]) -> bytes:
    return "".join(f"{_sha256(content)}  {name}\n" for name, content in sorted(files.items())).encode()


def decode_checksums(content: bytes) -> dict[str, str]:
    """Read the output of `encode_checksums`: digests by name. Raises ResultError if it is damaged."""
    found: dict[str, str] = {}
    for number, text in enumerate(content.decode(errors="replace").splitlines(), start=1):
        line = _LINE.fullmatch(text)
        if line is None or wrong_name(line[2]):
            raise ResultError(f"{CHECKSUMS_FILE} is damaged: line {number} is no checksum of a file")
        found[line[2]] = line[1]
    return found


def altered(content: bytes | None, digest: str | None) -> str | None:
    """What has become of a file that was stored with this digest: it is missing, or edited. None if it is the same."""
    if digest is None:
        return None
    if content is None:
        return "is missing"
    edited = f"was edited after it was stored: its SHA-256 is not that of {CHECKSUMS_FILE}"
    return None if _sha256(content) == digest else edited


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
