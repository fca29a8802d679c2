"""A meter of any instrument: its own info and trace (`ina219.py`), or the plain ones of this file.

An instrument that needs no registers kept uses `PlainInfo` and `PlainTrace`: then only its decoder and its uncertainty
know it, and its runs stay readable for a version that knows neither.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fsjoule.model.ina219 import Ina219Info
from fsjoule.model.trace import Clipped, Trace

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# A setting of an instrument that the host asks again and again: the time between two readings in s, as it was timed.
READ_S: Final = "read_s"
# The same of a chip that converts on its own: how long it takes until it shows a new reading, in s.
TURN_S: Final = "turn_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainInfo:
    """Facts about an instrument that are constant within a stream.

    `instrument` names its kind, which decides about the uncertainty; `settings` has the facts that this needs. Samples
    are `rate_hz` a second; `measures_voltage` says whether their voltages mean anything.
    """

    instrument: str
    firmware: str
    serial_number: str
    rate_hz: int
    measures_voltage: bool
    simulated: bool
    settings: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def kind(self) -> str:
        return self.instrument

    @property
    def tick_us(self) -> float:
        return 1e6 / self.rate_hz


MeterInfo = Ina219Info | PlainInfo


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PlainTrace(Trace):
    """Energy of each tick in nanojoules, mean voltage in microvolts; `clipped_samples` is 1 outside of a range.

    The one tally is the energy; `checkpoint_nj` are its sums.
    """

    info: PlainInfo
    energy_nj: npt.NDArray[np.int64]
    voltage_uv: npt.NDArray[np.int64]
    clipped_samples: npt.NDArray[np.uint8]
    checkpoint_nj: npt.NDArray[np.int64]

    @property
    def power_w(self) -> npt.NDArray[np.float64]:
        return self.tallied_w(*self.tallies)

    @property
    def voltage_v(self) -> npt.NDArray[np.float64]:
        return self.voltage_uv.astype("float64") * (1e-6 if self.info.measures_voltage else float("nan"))

    @property
    def current_a(self) -> npt.NDArray[np.float64]:
        volts = self.voltage_v
        volts[volts == 0] = float("nan")
        return self.power_w / volts

    @property
    def clipped(self) -> tuple[Clipped, ...]:
        return (
            Clipped(
                self.clipped_samples != 0,
                f"the end of the range of the {self.info.instrument}",
                "measure within its range, or with another instrument",
            ),
        )

    @property
    def tallies(self) -> tuple[npt.NDArray[np.int64], ...]:
        return (self.energy_nj,)

    @property
    def checkpoint_tallies(self) -> tuple[npt.NDArray[np.int64], ...]:
        return (self.checkpoint_nj,)

    def tallied_w(self, *tallies: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        (energy_nj,) = tallies
        return energy_nj.astype("float64") * (1e-9 * self.info.rate_hz)

    def mean_load(self, chosen: npt.NDArray[np.intp]) -> tuple[float, float]:
        return float(self.voltage_v[chosen].mean()), float(abs(self.current_a[chosen]).mean())
