"""A meter's trace, whatever the instrument: power, voltage and current of each tick, marks, losses, clipped samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # most commands have no trace, and numpy takes a quarter of a second to import
    import numpy as np
    import numpy.typing as npt

    from fsjoule.model.meter import MeterInfo


# Faults that may have cost marks: text in `Trace.faults`.
EVENTS_LOST: Final = "bytes or edges were lost because the meter's queue was full"
MARK_LINE_ERRORS: Final = "the mark line's UART had errors"
DAMAGED_MARKS: Final = "damaged on the mark line"
# In a fault that may have cost joules and the times of marks: samples are missing, and their places are not known.
BY_THE_CLOCK: Final = "by this computer's clock"


class MarkSource(StrEnum):
    LINE = "line"  # a line on the mark UART, timestamped at its first byte
    RISING = "rising"  # an edge of the mark pin
    FALLING = "falling"
    HOST = "host"  # a command from the host


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment in the meter's own clock. Edges have no text. A line that is `checked` had a check, which was right."""

    time_us: int
    text: str
    source: MarkSource = MarkSource.LINE
    checked: bool = False


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
class Clipped:
    """Samples whose quantity left the instrument's range: `samples` flags them, shape (n,).

    `limit` continues "reached", `advice` says how to avoid it.
    """

    samples: npt.NDArray[np.bool_]
    limit: str
    advice: str


@dataclass(frozen=True, eq=False, slots=True)
class HostClock:
    """Where the host's monotonic clock lies in the meter's, from the arrival of samples. Arrays of shape (n,).

    At `heard_s` of the host's clock samples arrived that were `lag_us` old, if both clocks began at once. The least lag
    is that of the line; what exceeds it is the host's delay at that time.
    """

    heard_s: npt.NDArray[np.float64]
    lag_us: npt.NDArray[np.float64]

    def meter_us(self, host_s: float) -> float:
        """A moment of the host's clock, in s, in the meter's, in us."""
        return host_s * 1e6 - float(self.lag_us.min())

    def late_s(self, host_s: float, around_s: float = 0.5) -> float:
        """The host's largest delay in s, as seen within `around_s` of a moment, or at all without samples there."""
        near = self.lag_us[abs(self.heard_s - host_s) <= around_s]
        lags = near if len(near) else self.lag_us
        return float(lags.max() - self.lag_us.min()) * 1e-6


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Trace(ABC):
    """Samples in order of their ticks, with the meter's marks and faults. Not part of any JSON.

    Sample i stands for tick `ticks[i]`, which began at `times_us[i]` in the meter's own clock. Each sample has one or
    more *tallies*: integers that sum without error and from which watts follow linearly (`tallied_w`). Checkpoints are
    the meter's own sums of them over all samples before `checkpoint_ticks`, with `checkpoint_missed`, the ticks never
    sampled. They start with the meter's stream, not with the trace. Samples have arrays of one length, checkpoints of
    another.
    """

    info: MeterInfo
    ticks: npt.NDArray[np.int64]
    times_us: npt.NDArray[np.int64]
    checkpoint_ticks: npt.NDArray[np.int64]
    checkpoint_missed: npt.NDArray[np.int64]
    marks: tuple[Mark, ...]
    missed: int
    lost: int
    faults: tuple[str, ...] = ()
    host_clock: HostClock | None = None  # of a trace that was just recorded; it is not stored

    @property
    @abstractmethod
    def power_w(self) -> npt.NDArray[np.float64]:
        """Calibrated power of each sample in watts, shape (n,)."""

    @property
    @abstractmethod
    def voltage_v(self) -> npt.NDArray[np.float64]:
        """Calibrated voltage of each sample, shape (n,); NaN if the instrument does not measure it."""

    @property
    @abstractmethod
    def current_a(self) -> npt.NDArray[np.float64]:
        """Calibrated current of each sample, shape (n,); NaN if it is not known."""

    @property
    @abstractmethod
    def clipped(self) -> tuple[Clipped, ...]:
        """The samples that left a range, by range."""

    @property
    @abstractmethod
    def tallies(self) -> tuple[npt.NDArray[np.int64], ...]:
        """The tallies of each sample, each of shape (n,)."""

    @property
    @abstractmethod
    def checkpoint_tallies(self) -> tuple[npt.NDArray[np.int64], ...]:
        """The meter's sums of each tally, in the same order; each has the shape of `checkpoint_ticks`."""

    @abstractmethod
    def tallied_w(self, *tallies: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Watts from tallies of samples; from sums of tallies over the same samples, the sum of their watts."""

    @abstractmethod
    def mean_load(self, chosen: npt.NDArray[np.intp]) -> tuple[float, float]:
        """Mean voltage (V) and mean size of the current (A) of the chosen samples, for the uncertainty."""

    @property
    def mark_faults(self) -> tuple[str, ...]:
        """The faults that may have cost marks."""
        kinds = (EVENTS_LOST, MARK_LINE_ERRORS, DAMAGED_MARKS)
        return tuple(fault for fault in self.faults if any(kind in fault for kind in kinds))

    @property
    def clock_faults(self) -> tuple[str, ...]:
        """The faults that may have cost joules without a trace in the samples."""
        return tuple(fault for fault in self.faults if BY_THE_CLOCK in fault)

    @property
    def counts(self) -> SampleCounts:
        received = len(self.ticks)
        return SampleCounts(received + self.missed + self.lost, received, self.missed, self.lost)
