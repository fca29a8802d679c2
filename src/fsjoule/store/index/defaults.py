"""The defaults of an index, apart from the database's imports because help names them."""

from __future__ import annotations

from typing import Final

VARIABLE: Final = "FSJOULE_INDEX"
DEFAULT_NAME: Final = "index.sqlite"

# A trend reads this many measurements unless told otherwise, in half a second whatever the index holds; but of each
# series this many at least, because a fair share of thousands of series would be too short for any change.
MOST_READ: Final = 60_000
LEAST_OF_EACH: Final = 100
