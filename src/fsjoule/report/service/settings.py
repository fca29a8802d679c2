"""What a service was started with. It goes to the worker processes as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsjoule.model.places import Lab
from fsjoule.report.forge import Forge
from fsjoule.report.site import Site
from fsjoule.store.index.database import Index, open_index
from fsjoule.store.index.defaults import LEAST_OF_EACH, MOST_READ
from fsjoule.verdicts.comparison import Compared
from fsjoule.verdicts.explanation.changes import Explanation

# A reader waits less for a writer than the time limit of a request.
_WAIT_S: Final = 4.0

Look = Callable[[Sequence[Path], float], Lab]
Explain = Callable[[Compared], tuple[Explanation, ...]]


@dataclass(frozen=True, slots=True)
class Settings:
    """`root` is the path behind which a proxy offers the service.

    A trend reads `most_measurements`, but of each series `least_of_each`. `confirmations` is the folder of what fresh
    boots answered. `look` looks at a lab's places, given the run folders in `results` and the time in seconds; without
    it there is no page of places. `explain` says why figures of two kernels of one run differ. Both stand in a module,
    because the processes get them by their names, and import what they need.
    """

    index: str
    root: str = ""
    forge: Forge | None = None
    confirmations: Path = Path("results/confirmations")
    results: tuple[Path, ...] = ()
    look: Look | None = None
    explain: Explain | None = None
    most_measurements: int = MOST_READ
    least_of_each: int = LEAST_OF_EACH

    def open(self) -> Index:
        """The index, for reading only. Raises as `open_index` does."""
        return open_index(self.index, read_only_s=_WAIT_S)

    def site(self, here: str = "") -> Site:
        return Site(self.root, here, has_places=self.look is not None)
