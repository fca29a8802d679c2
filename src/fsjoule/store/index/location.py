"""Where an index is if nobody says: what commands name in their help, and so without the database's own imports."""

from __future__ import annotations

from typing import Final

VARIABLE: Final = "FSJOULE_INDEX"
DEFAULT_NAME: Final = "index.sqlite"
