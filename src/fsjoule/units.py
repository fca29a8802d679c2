"""Units of energy for assertions on what a block has used: `assert used.energy < 1.2 * J`. Figures are in joules."""

from __future__ import annotations

from typing import Final

J: Final = 1.0
mJ: Final = 1e-3  # noqa: N816 - as it is written
uJ: Final = 1e-6  # noqa: N816
kJ: Final = 1e3  # noqa: N816
Wh: Final = 3600.0
