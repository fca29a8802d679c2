"""A meter's info, marks and raw samples. docs/meter-protocol.md explains where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # most commands have no trace, and numpy takes a quarter of a second to import
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class MeterCalibration:
    """The errors of chip and resistor, as the meter stores them.

    True current is (1 + current gain) x (reading - offset), true voltage (1 + bus gain) x reading.
    `gain_uncertainty_ppm` is the standard uncertainty of the reference's power. Dates: seconds since 1970 UTC, or 0.
    """

    shunt_offset_nv: int = 0
    current_gain_ppm: int = 0
    bus_gain_ppm: int = 0
    gain_uncertainty_ppm: int = 0
    zero_date: int = 0
    gain_date: int = 0


@dataclass(frozen=True, slots=True)
class MeterInfo:
    """Facts about a meter that are constant within a stream.

    `adc_config` is the INA219's CONFIG register; `shunt_lsb_uv` and `bus_lsb_mv` are the units of raw samples.
    """

    protocol: int
    firmware: str
    serial_number: str
    rate_hz: int
    shunt_uohm: int
    shunt_range_mv: int
    simulated: bool
    adc_config: int = 0x091F
    calibration: MeterCalibration = MeterCalibration()
    shunt_lsb_uv: float = 10.0
    bus_lsb_mv: float = 4.0

    @property
    def tick_us(self) -> float:
        return 1e6 / self.rate_hz

    @property
    def power_lsb_w(self) -> float:
        """Watts per unit of raw shunt times raw bus, the gains applied (INA219 at 0.1 Ohm: 0.4 uW)."""
        gains = (1 + self.calibration.current_gain_ppm * 1e-6) * (1 + self.calibration.bus_gain_ppm * 1e-6)
        return self.shunt_lsb_uv * 1e-6 * self.bus_lsb_mv * 1e-3 / (self.shunt_uohm * 1e-6) * gains

    @property
    def shunt_offset_raw(self) -> float:
        """The shunt's reading at no load, in units of a raw sample."""
        return self.calibration.shunt_offset_nv * 1e-3 / self.shunt_lsb_uv

    def power_w(self, raw: npt.NDArray[np.int64], bus: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Watts, calibrated, from raw shunt times raw bus (`raw`) and raw bus (`bus`).

        Both may be single samples, or sums over the same samples; then the watts are a sum, too.
        """
        return (raw - self.shunt_offset_raw * bus) * self.power_lsb_w


class ResetCause(StrEnum):
    UNKNOWN = "unknown"
    POWER = "power"
    WATCHDOG = "watchdog"
    SOFTWARE = "software"
    PIN = "pin"
    BROWN_OUT = "brown-out"


@dataclass(frozen=True, slots=True)
class MeterStatus:
    """Status of a meter, which may change while it runs.

    A stream is a stretch with constant settings; each has another `stream_id`. `unsaved` settings differ from the saved
    ones; with `settings_damaged` the saved ones were unreadable. The last two count since power-up.
    """

    stream_id: int
    sampling: bool
    unsaved: bool
    settings_damaged: bool
    reset_cause: ResetCause
    i2c_faults: int
    frames_dropped: int


class MarkSource(StrEnum):
    LINE = "line"  # a line on the mark UART, timestamped at its first byte
    RISING = "rising"  # an edge of the mark pin
    FALLING = "falling"
    HOST = "host"  # a command from the host


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment in the meter's own clock. Edges have no text."""

    time_us: int
    text: str
    source: MarkSource = MarkSource.LINE


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """Counts of samples over the whole trace: expected by the meter's clock, and received.

    The meter never sampled `missed` ticks; it sampled `lost` ticks, but their frames did not arrive.
    """

    expected: int
    received: int
    missed: int
    lost: int


@dataclass(frozen=True, eq=False, slots=True)
class Trace:
    """Raw samples in order of their ticks, with the meter's marks and faults. Not part of any JSON.

    Sample i was taken at tick `ticks[i]`, which began at `times_us[i]` in the meter's own clock. Checkpoints are each
    frame's sums over all samples before `checkpoint_ticks`: `checkpoint_raw` of raw shunt times raw bus,
    `checkpoint_bus` of raw bus, and `checkpoint_missed` of ticks never sampled. They start with the meter's stream, not
    with the trace. All arrays are one-dimensional; the first four share one length, the checkpoints another.
    """

    info: MeterInfo
    ticks: npt.NDArray[np.int64]
    times_us: npt.NDArray[np.int64]
    shunt_raw: npt.NDArray[np.int16]
    bus_raw: npt.NDArray[np.uint16]
    checkpoint_ticks: npt.NDArray[np.int64]
    checkpoint_raw: npt.NDArray[np.int64]
    checkpoint_bus: npt.NDArray[np.int64]
    checkpoint_missed: npt.NDArray[np.int64]
    marks: tuple[Mark, ...]
    missed: int
    lost: int
    faults: tuple[str, ...] = ()

    @property
    def power_w(self) -> npt.NDArray[np.float64]:
        """Calibrated power of each sample in watts, shape (n,)."""
        bus: npt.NDArray[np.int64] = self.bus_raw.astype("int64")
        return self.info.power_w(self.shunt_raw * bus, bus)

    @property
    def voltage_v(self) -> npt.NDArray[np.float64]:
        """Calibrated bus voltage of each sample, shape (n,)."""
        lsb_v = self.info.bus_lsb_mv * 1e-3 * (1 + self.info.calibration.bus_gain_ppm * 1e-6)
        return self.bus_raw.astype("float64") * lsb_v

    @property
    def current_a(self) -> npt.NDArray[np.float64]:
        """Calibrated current of each sample, shape (n,)."""
        info = self.info
        lsb_a = info.shunt_lsb_uv / info.shunt_uohm * (1 + info.calibration.current_gain_ppm * 1e-6)
        return (self.shunt_raw.astype("float64") - info.shunt_offset_raw) * lsb_a

    @property
    def counts(self) -> SampleCounts:
        received = len(self.ticks)
        return SampleCounts(received + self.missed + self.lost, received, self.missed, self.lost)
