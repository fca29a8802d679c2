"""Kernel configurations as text: fragments, and which of their wishes a configuration did not grant. Pure functions."""

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
    """Symbol -> value of a configuration or a fragment; `n` for what is not set. Other lines are passed over."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if match := _SET.fullmatch(line.strip()):
            found[match[1]] = match[2].strip()
        elif match := _NOT_SET.fullmatch(line.strip()):
            found[match[1]] = _OFF
    return found


def check_fragment(text: str, *, file: Path | None = None) -> None:
    """Raises ConfigError, with its line, for what is neither a symbol, a comment nor blank; kconfig passes over it."""
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#") and not _SET.fullmatch(stripped):
            raise ConfigError(
                f"{stripped!r} is no line of a kernel configuration",
                file=file,
                line=number,
                hint="write CONFIG_NAME=y, or # CONFIG_NAME is not set",
            )


def not_granted(wanted: Mapping[str, str], config: Mapping[str, str]) -> list[str]:
    """The wishes that a configuration did not take over: unknown symbols, and those that depend on one that is off."""
    return sorted(f"{symbol}={value}" for symbol, value in wanted.items() if config.get(symbol, _OFF) != value)
