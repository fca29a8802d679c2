"""What the energy needs to know of an instrument's errors. Each instrument has a file of its own beside this one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

# A USB-serial adapter keeps bytes for up to 16 ms (FTDI's latency timer); the rest are the network and the host.
HOST_LINE_S: Final = 20e-3


@dataclass(frozen=True, slots=True)
class SteadyErrors:
    """Standard uncertainties (k=1) of the mean power of a steady load, the same for all samples.

    `gain` and `shunt` are fractions of the power, the others are in watts. Where an instrument has none, it is 0.
    `noise_w` is the standard deviation of one sample by the instrument's own noise. It is part of no budget, because
    the samples themselves tell their noise.
    """

    shunt_rounding_w: float
    bus_rounding_w: float
    offset_w: float
    gain: float
    shunt: float
    noise_w: float = 0.0


class InstrumentErrors(Protocol):
    """An instrument's errors. Limits are +- and rectangular."""

    @property
    def shift_s(self) -> float:
        """How much later than a mark's time the trace shows the power of the marked moment. It is made good."""
        ...

    @property
    def mark_s(self) -> float:
        """The largest delay of a mark that `shift_s` leaves."""
        ...

    @property
    def sample_s(self) -> float:
        """The largest displacement of a sample from its tick."""
        ...

    @property
    def sharpening(self) -> float:
        """How much of the energies of both neighbouring windows, a tick before and after, sharpens a window's ends.

        It is chosen so that steps of the power at both marks cause no error on average; 0 is none.
        """
        ...

    def steady(self, volts: float, amperes: float) -> SteadyErrors:
        """The errors at a mean voltage and a mean size of the current; both may be NaN if they are not known."""
        ...


@dataclass(frozen=True, slots=True)
class HostStamped:
    """An instrument whose marks are lines that the host stamps as they come from a serial port."""

    instrument: InstrumentErrors

    @property
    def shift_s(self) -> float:
        return self.instrument.shift_s

    @property
    def mark_s(self) -> float:
        return max(self.instrument.mark_s, HOST_LINE_S)

    @property
    def sample_s(self) -> float:
        return self.instrument.sample_s

    @property
    def sharpening(self) -> float:
        return self.instrument.sharpening

    def steady(self, volts: float, amperes: float) -> SteadyErrors:
        """See `InstrumentErrors`."""
        return self.instrument.steady(volts, amperes)
