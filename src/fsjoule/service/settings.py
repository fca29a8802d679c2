"""What a service was started with. It goes to the worker processes as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.report.forge import Forge
from fsjoule.report.site import Site
from fsjoule.store.index.database import Index, open_index

# Reading and searching this many takes a second or two, once for each state of the index.
MOST_MEASUREMENTS: Final = 120_000
# A reader waits less for a writer than the time limit of a request.
_WAIT_S: Final = 4.0


@dataclass(frozen=True, slots=True)
class Settings:
    """`root` is the path behind which a proxy offers the service. A trend reads `most_measurements`.

    `confirmations` is the folder of what fresh boots answered, `results` the run folders for the page of places.
    """

    index: str
    root: str = ""
    forge: Forge | None = None
    confirmations: Path = Path("results/confirmations")
    results: tuple[Path, ...] = ()
    has_places: bool = False
    most_measurements: int = MOST_MEASUREMENTS

    def open(self) -> Index:
        """The index, for reading only. Raises as `open_index` does."""
        return open_index(self.index, read_only_s=_WAIT_S)

    def site(self, here: str = "") -> Site:
        return Site(self.root, here, has_places=self.has_places)
