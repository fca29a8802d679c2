"""fsjoule's own meter: its info, status and raw samples. docs/meter-protocol.md explains them.

Its names are those of its first chip. An INA228 has finer units, and the rest is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from fsjoule.model.instrument_file import InstrumentFile
from fsjoule.model.trace import Clipped, Trace

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

INA219: Final = "ina219"
# Bit 13 of an INA219's CONFIG selects the bus voltage's range (TI SBOS448G, 8.6.3).
_BUS_32_V: Final = 1 << 13
# An INA228's bus goes to 85 V, whatever its register could hold (TI SBOSA20, 6.3).
_INA228_BUS_V: Final = 85
# The ends of its converter: both are 20 bits with a sign (7.6).
_INA228_END: Final = (1 << 19) - 1


class CurrentMonitor(StrEnum):
    """The meter's chip."""

    INA219 = "INA219"
    INA228 = "INA228"
    UNKNOWN = "unknown"  # of a newer firmware


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
class Ina219Info:
    """Facts about fsjoule's own meter that are constant within a stream.

    `adc_config` is the INA219's CONFIG or the INA228's ADC_CONFIG; `shunt_lsb_uv` and `bus_lsb_mv` are the units of raw
    samples. `file` is the instrument file that this computer had when the stream was received.
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
    file: InstrumentFile | None = None
    chip: CurrentMonitor = CurrentMonitor.INA219

    @property
    def kind(self) -> str:
        return INA219

    @property
    def tick_us(self) -> float:
        return 1e6 / self.rate_hz

    @property
    def bus_range_v(self) -> int:
        """The bus voltage at which its readings end, whatever the true one is."""
        if self.chip is CurrentMonitor.INA228:
            return _INA228_BUS_V
        return 32 if self.adc_config & _BUS_32_V else 16

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
class InputCounts:
    """What arrived badly at a meter since power-up; each count wraps at 2^32.

    Lost events are bytes and edges for which the meter's queue had no room. The next three are errors of the mark
    line's UART: no stop bit, a byte that nobody took in time, a bit that was not clear. Damaged marks are lines.
    """

    events_lost: int = 0
    mark_framing: int = 0
    mark_overruns: int = 0
    mark_noise: int = 0
    marks_damaged: int = 0


@dataclass(frozen=True, slots=True)
class MeterStatus:
    """Status of a meter, which may change while it runs.

    A stream is a stretch with constant settings; each has another `stream_id`. `unsaved` settings differ from the saved
    ones; with `settings_damaged` the saved ones were unreadable. The last three count since power-up.
    """

    stream_id: int
    sampling: bool
    unsaved: bool
    settings_damaged: bool
    reset_cause: ResetCause
    i2c_faults: int
    frames_dropped: int
    inputs: InputCounts = InputCounts()


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Ina219Trace(Trace):
    """Raw samples of the shunt and the bus.

    The tallies are raw shunt times raw bus, and raw bus; `checkpoint_raw` and `checkpoint_bus` are their sums.
    """

    info: Ina219Info
    shunt_raw: npt.NDArray[np.int32]
    bus_raw: npt.NDArray[np.int32]
    checkpoint_raw: npt.NDArray[np.int64]
    checkpoint_bus: npt.NDArray[np.int64]

    @property
    def power_w(self) -> npt.NDArray[np.float64]:
        bus: npt.NDArray[np.int64] = self.bus_raw.astype("int64")
        return self.info.power_w(self.shunt_raw * bus, bus)

    @property
    def voltage_v(self) -> npt.NDArray[np.float64]:
        lsb_v = self.info.bus_lsb_mv * 1e-3 * (1 + self.info.calibration.bus_gain_ppm * 1e-6)
        return self.bus_raw.astype("float64") * lsb_v

    @property
    def current_a(self) -> npt.NDArray[np.float64]:
        info = self.info
        lsb_a = info.shunt_lsb_uv / info.shunt_uohm * (1 + info.calibration.current_gain_ppm * 1e-6)
        return (self.shunt_raw.astype("float64") - info.shunt_offset_raw) * lsb_a

    @property
    def clipped(self) -> tuple[Clipped, ...]:
        info = self.info
        is_ina228 = info.chip is CurrentMonitor.INA228
        shunt_end = _INA228_END if is_ina228 else info.shunt_range_mv * 1000 / info.shunt_lsb_uv
        bus_end = info.bus_range_v * 1000 / info.bus_lsb_mv
        shunt = abs(self.shunt_raw) >= shunt_end
        is_widest = is_ina228 or bool(info.adc_config & _BUS_32_V)
        return (
            Clipped(
                shunt,
                f"the end of the meter's range of {info.shunt_range_mv} mV",
                "set a larger range, or use a smaller shunt",
            ),
            Clipped(
                self.bus_raw >= bus_end,
                f"the end of the bus voltage's range of {info.bus_range_v} V",
                f"{'' if is_widest else 'set --bus-range 32 (the chip takes 26 V), or '}"
                "measure a lower supply voltage: behind a converter, or with another meter",
            ),
        )

    @property
    def tallies(self) -> tuple[npt.NDArray[np.int64], ...]:
        bus: npt.NDArray[np.int64] = self.bus_raw.astype("int64")
        return self.shunt_raw * bus, bus

    @property
    def checkpoint_tallies(self) -> tuple[npt.NDArray[np.int64], ...]:
        return self.checkpoint_raw, self.checkpoint_bus

    def tallied_w(self, *tallies: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        raw, bus = tallies
        return self.info.power_w(raw, bus)

    def mean_load(self, chosen: npt.NDArray[np.intp]) -> tuple[float, float]:
        info = self.info
        shunt_raw = abs(self.shunt_raw[chosen] - info.shunt_offset_raw)
        volts = float(self.bus_raw[chosen].mean()) * info.bus_lsb_mv * 1e-3
        return volts, float(shunt_raw.mean()) * info.shunt_lsb_uv * 1e-6 / (info.shunt_uohm * 1e-6)
