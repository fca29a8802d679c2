"""The default location of an index, apart from the database's imports because help names it."""

from __future__ import annotations

from typing import Final

VARIABLE: Final = "FSJOULE_INDEX"
DEFAULT_NAME: Final = "index.sqlite"
