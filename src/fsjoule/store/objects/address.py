"""Addresses in an object store: `s3://BUCKET/PREFIX` is a folder of runs, `s3://BUCKET/PREFIX/RUN` one run."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.host.plaintext import plain_line
from fsjoule.store.folder import RUN_FILE, RUN_NAME

SCHEME: Final = "s3:"
# A Path has one slash after the scheme.
_ADDRESS: Final = re.compile(r"s3:/{1,2}(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?P<path>(?:/[A-Za-z0-9_.-]+)*)/*")
# Names that need no escaping in a URL. RunFolder gives its folders no others.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}")


@dataclass(frozen=True, slots=True)
class Address:
    """A folder of runs in an object store, or a run of it; `prefix` is empty or ends in a slash."""

    bucket: str
    prefix: str
    run: str | None = None

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}{self.run or ''}".rstrip("/")

    def of(self, run: str) -> Address:
        """The address of a run of this folder."""
        return replace(self, run=run)


def is_address(text: str | Path) -> bool:
    """Whether this names something in an object store, also as a Path, which has lost a slash."""
    return str(text).startswith(f"{SCHEME}/")


def is_run_name(name: str) -> bool:
    """Whether a run folder of this name can be kept in an object store."""
    return RUN_NAME.fullmatch(name) is not None and _PLAIN.fullmatch(name) is not None


def parse_address(text: str | Path) -> Address:
    """The address that a user has written. A run.json means its run. Raises ConfigError if it is none."""
    match = _ADDRESS.fullmatch(str(text))
    parts = [] if match is None else match["path"].split("/")[1:]
    if match is None or any(part in {".", ".."} for part in parts):
        raise ConfigError(
            f"{plain_line(str(text))!r} is not the address of runs in an object store",
            hint="s3://BUCKET/PREFIX, or s3://BUCKET/PREFIX/RUN; a prefix has letters, digits and _ . - /",
        )
    if len(parts) > 1 and parts[-1] == RUN_FILE and is_run_name(parts[-2]):
        parts.pop()
    run = parts.pop() if parts and is_run_name(parts[-1]) else None
    return Address(match["bucket"], "".join(f"{part}/" for part in parts), run)
