"""The power of a virtual board: from QEMU's activity in an interval to amperes. Pure.

``P = idle + cpu * busy + read + written``. `busy` is the share of time in which the emulated CPU ran, or would have run
if the host had let it. The card's part is energy per moved byte, so that no sampling interval loses or doubles any of
it. The defaults span about the range of the filesystem energy study for an i.MX6ULL board with eMMC: 1.15 W to 1.40 W.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fsjoule.model import MIB

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class PowerCoefficients:
    """The model's numbers. `volts` is the supply; `cpu_w` is the power that a CPU at full load adds to `idle_w`."""

    volts: _Positive = 5.0
    idle_w: _NotNegative = 1.10
    cpu_w: _NotNegative = 0.22
    card_read_mj_per_mib: _NotNegative = 3.0
    card_write_mj_per_mib: _NotNegative = 6.0


@dataclass(frozen=True, slots=True)
class Activity:
    """QEMU's activity since its start, as growing counters; the busy times of all `cpus` add up."""

    cpu_busy_ns: int
    card_read_bytes: int
    card_written_bytes: int
    cpus: int = 1


NO_ACTIVITY = Activity(0, 0, 0)


class PowerModel:
    """Power over consecutive intervals of one running board."""

    def __init__(self, coefficients: PowerCoefficients, start: Activity = NO_ACTIVITY) -> None:
        """`start` has the counters at the start of the first interval."""
        self._coefficients = coefficients
        self._last = start
        self._owed_busy_ns = 0

    def watts(self, activity: Activity, interval_ns: int) -> float:
        """Mean power over the interval that ends now, in which the counters grew to `activity`.

        The scheduler books a thread's time in ticks of 1 to 10 ms, and its waiting time at the end of the wait. Busy
        time beyond the interval is therefore kept for the next one: the energy comes up to a tick late.
        """
        last, self._last = self._last, activity
        self._owed_busy_ns += activity.cpu_busy_ns - last.cpu_busy_ns
        busy_ns = min(self._owed_busy_ns, interval_ns * activity.cpus)
        self._owed_busy_ns -= busy_ns
        k = self._coefficients
        card_mj = (
            k.card_read_mj_per_mib * (activity.card_read_bytes - last.card_read_bytes)
            + k.card_write_mj_per_mib * (activity.card_written_bytes - last.card_written_bytes)
        ) / MIB
        return k.idle_w + (k.cpu_w * busy_ns + card_mj * 1e6) / interval_ns
