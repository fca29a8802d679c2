"""Readings of a supply or source meter that speaks SCPI become a trace. Pure."""

from __future__ import annotations

from typing import Final

from fsjoule.meter.protocol.polled import PolledTrace
from fsjoule.model import PlainInfo

SCPI: Final = "scpi"
# The limits of error that the instrument's data sheet states, each +-.
VOLTS_SHARE: Final = "volts_share"
VOLTS_OFFSET: Final = "volts_offset"
AMPERES_SHARE: Final = "amperes_share"
AMPERES_OFFSET: Final = "amperes_offset"
# The mean time between two readings, in s.
READ_S: Final = "read_s"


class SampleTrace(PolledTrace):
    """Readings of voltage and current. Between two of them the power is taken as a straight line."""

    def __init__(self, info: PlainInfo) -> None:
        super().__init__(info)
        self._last_w: float | None = None

    def add(self, time_us: int, volts: float, amperes: float) -> None:
        """Take a reading. Times ascend."""
        watts = volts * amperes
        more_nj = 0.0 if self._last_w is None else (self._last_w + watts) / 2 * (time_us - self.end_us) * 1e3
        self._last_w = watts
        self.read(time_us, self.total_nj + more_nj, volts)
