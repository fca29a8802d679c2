"""Where fsjoule keeps things: the checkout, the cache (may be thrown away), the state of running labs."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from fsjoule.errors import ConfigError


def cache_dir() -> Path:
    """What can be built again: card images, the meter's simulator. `FSJOULE_CACHE_DIR` overrides it. Made if absent."""
    return _made("FSJOULE_CACHE_DIR", platformdirs.user_cache_path("fsjoule"))


def state_dir() -> Path:
    """What is running: one folder a lab. `FSJOULE_STATE_DIR` overrides it. Made if absent."""
    return _made("FSJOULE_STATE_DIR", platformdirs.user_state_path("fsjoule"))


def project_dir() -> Path:
    """The checkout that this package is run from; recipes, environment files and the meter's sources are data in it.

    Raises ConfigError if the package was installed without its checkout.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / "images").is_dir():
        raise ConfigError(
            f"{root} is not a checkout of fsjoule: it has no folder 'images'",
            hint="run fsjoule from a clone of its repository, installed with: uv sync",
        )
    return root


def _made(variable: str, default: Path) -> Path:
    path = Path(os.environ.get(variable) or default).expanduser().absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path
