"""Readings of a counter of the kernel's powercap class (RAPL of Intel and AMD) become a trace. Pure."""

from __future__ import annotations

from typing import Final

from fsjoule.meter.protocol.polled import PolledTrace
from fsjoule.model import PlainInfo

POWERCAP: Final = "powercap"
UPDATE_US: Final = "update_us"
RANGE_UJ: Final = "range_uj"


class CounterTrace(PolledTrace):
    """Readings of one counter of microjoules, which counts from 0 again behind its range."""

    def __init__(self, info: PlainInfo) -> None:
        super().__init__(info)
        self._last_uj: int | None = None
        self.wraps = 0

    def add(self, time_us: int, energy_uj: int) -> None:
        """Take a reading. Times ascend. One wrap-around between two readings is counted; more cannot be seen."""
        more_uj = 0 if self._last_uj is None else energy_uj - self._last_uj
        if more_uj < 0:
            self.wraps += 1
            more_uj += int(self._info.settings[RANGE_UJ])
        self._last_uj = energy_uj
        self.read(time_us, self.total_nj + more_uj * 1e3)
