"""Extras of fsjoule: Python packages that only some of its parts need, and how they are installed here."""

from __future__ import annotations

import shlex
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Final

_CLONE: Final = Path(__file__).resolve().parents[3]


def how_to_install(extra: str) -> str:
    """The command that installs what an extra of fsjoule needs (`serve`, `s3`, ...), for the hint of an error.

    In a clone with its own environment it is uv's: such an environment has no pip. Elsewhere pip gets the packages
    themselves: fsjoule is not on PyPI, so `pip install fsjoule[serve]` finds nothing, or somebody else's package.
    """
    if Path(sys.prefix) == _CLONE / ".venv":
        by_make = _CLONE / "build" / "uv" / "bin" / "uv"
        uv = str(by_make) if by_make.exists() else "uv"
        words = [uv, "sync", "--project", str(_CLONE), "--frozen", "--inexact", "--no-dev", "--extra", extra]
    else:
        words = [sys.executable, "-m", "pip", "install", *(_packages(extra) or [f"{_CLONE}[{extra}]"])]
    return shlex.join(words)


def _packages(extra: str) -> list[str]:
    """The extra's requirements without their markers; none if fsjoule is not installed, only on Python's path."""
    try:
        parts = [each.partition(";") for each in requires("fsjoule") or ()]
    except PackageNotFoundError:
        return []
    return [package.strip() for package, _, marker in parts if f"extra == '{extra}'" in marker.replace('"', "'")]
