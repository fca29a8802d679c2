"""Kernel configurations as text: fragments, and their settings that a configuration did not accept. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError

_SET: Final = re.compile(r"(CONFIG_\w+)=(.+)")
_NOT_SET: Final = re.compile(r"#\s*(CONFIG_\w+) is not set\s*")
_OFF: Final = "n"


def parse_config(text: str) -> dict[str, str]:
    """Symbol -> value of a configuration or a fragment; `n` for "is not set". Other lines are ignored."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if match := _SET.fullmatch(line.strip()):
            found[match[1]] = match[2].strip()
        elif match := _NOT_SET.fullmatch(line.strip()):
            found[match[1]] = _OFF
    return found


def check_fragment(text: str, *, file: Path | None = None) -> None:
    """Raise ConfigError for a line that is neither symbol, comment nor blank; kconfig would ignore it."""
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#") and not _SET.fullmatch(stripped):
            raise ConfigError(
                f"{stripped!r} is not a line of a kernel configuration",
                file=file,
                line=number,
                hint="write CONFIG_NAME=y, or # CONFIG_NAME is not set",
            )


def not_granted(wanted: Mapping[str, str], config: Mapping[str, str]) -> list[str]:
    """The settings that a configuration did not accept: unknown symbols, and symbols that depend on a disabled one."""
    return sorted(f"{symbol}={value}" for symbol, value in wanted.items() if config.get(symbol, _OFF) != value)
