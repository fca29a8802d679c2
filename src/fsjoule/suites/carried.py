"""A user's suite where its file is not: what a plan keeps of it, and what another computer gets."""

from __future__ import annotations

import base64
import gzip
import hashlib
import tomllib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.suites.suite import Suite
from fsjoule.suites.suite_file import MOST_FILE_BYTES, SUFFIX

_GZIP: Final = 31  # zlib's number for it


def own_files(chosen: Suite) -> dict[str, bytes]:
    """A user's suite for another computer: its file by the suite's name, and the files of its commands beside it."""
    file = Path(chosen.file)
    text = file.read_bytes()
    names: list[str] = []
    if file.name.endswith(SUFFIX):
        table = tomllib.loads(text.decode())["suite"]
        names = [name for workload in table["workload"] for name in workload.get("files", ())]
    return {chosen.name + file.suffix: text} | {name: (file.parent / name).read_bytes() for name in names}


def packed(contents: Mapping[str, bytes]) -> dict[str, str]:
    """Files as a plan keeps them."""
    return {key: base64.b64encode(gzip.compress(each, mtime=0)).decode() for key, each in contents.items()}


def unpacked(files: Mapping[str, str]) -> dict[str, bytes]:
    """The files of a plan by their SHA-256. Raises ConfigError if one is not what its name says."""
    contents: dict[str, bytes] = {}
    for key, text in files.items():
        try:
            contents[key] = zlib.decompressobj(_GZIP).decompress(base64.b64decode(text, validate=True), MOST_FILE_BYTES)
        except (ValueError, zlib.error) as error:
            raise ConfigError(f"the plan's file {key[:12]} is damaged: {error}") from error
        if hashlib.sha256(contents[key]).hexdigest() != key:
            raise ConfigError(f"the plan's file {key[:12]} is damaged: it has another checksum")
    return contents
