"""Drift of the meter's clock against the host's, from the arrival of its samples. Pure.

A sample arrives late by the line's delay, which is steady, and by the delay of busy machines, which is never negative.
So only the least lag of each span tells about the clocks. The slope of a straight line through these lags (ordinary
least squares) is the drift. Spans in which a busy machine delayed every sample lie far above the line and are left out.
The uncertainty is the slope's standard error, plus the effect of a least lag that drifts by its own scatter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.meter.protocol.frames import Frame, SamplesFrame

_FIRST_SPAN_US: Final = 500_000.0
_MOST_SPANS: Final = 2048
_LEAST_SPANS: Final = 8
_OUTLIER: Final = 4.0  # times the residuals' median deviation: 2.7 standard deviations of a normal distribution
_ROUNDS: Final = 8


@dataclass(frozen=True, slots=True)
class Drift:
    """The meter's clock gains `ppm` on the host's (loses, if negative), with `uncertainty_ppm` (k=1)."""

    ppm: float
    uncertainty_ppm: float
    span_s: float
    points: int


@dataclass(slots=True)
class ClockFit:
    """Keeps the least lag of each span: at most 2048 spans, which grow with the recording."""

    _span_us: float = _FIRST_SPAN_US
    _begin_us: float | None = None
    _least: dict[int, tuple[float, float]] = field(default_factory=dict[int, tuple[float, float]])

    def add(self, meter_us: float, host_s: float) -> None:
        """Add a moment of the meter's clock with its arrival at the host. A clock that goes back has been reset."""
        if self._begin_us is None or meter_us < self._begin_us:
            self._begin_us = meter_us
            self._span_us = _FIRST_SPAN_US
            self._least.clear()
        self._keep(meter_us, host_s * 1e6 - meter_us)
        if len(self._least) > _MOST_SPANS:
            points = list(self._least.values())
            self._span_us *= 2
            self._least.clear()
            for point in points:
                self._keep(*point)

    def add_samples(self, frames: Iterable[Frame], heard_s: float, tick_us: float) -> None:
        """Add the samples among frames that arrived at `heard_s`. A tick takes `tick_us`."""
        samples = [frame for frame in frames if isinstance(frame, SamplesFrame)]
        if samples:
            # The whole chunk has arrived by then; its last frame waited least.
            last = samples[-1]
            self.add(last.first_time_us + last.count * tick_us, heard_s)

    def drift(self) -> Drift | None:
        """The drift; None in the first 4 s."""
        if len(self._least) < _LEAST_SPANS:
            return None
        points = np.array(list(self._least.values()))
        # Moved near zero to keep digits: lags are as large as the host's uptime.
        x, y = (points - points[0]).T
        chosen = np.ones(len(x), dtype=np.bool_)
        slope, residuals = _line(x, y, chosen)
        for _ in range(_ROUNDS):
            middle = float(np.median(residuals[chosen]))
            # The median, because the outliers are yet to be found.
            deviation = float(np.median(np.abs(residuals[chosen] - middle)))
            kept = residuals <= middle + _OUTLIER * deviation
            if kept.sum() < _LEAST_SPANS or (kept == chosen).all():
                break
            chosen = kept
            slope, residuals = _line(x, y, chosen)
        used = x[chosen]
        # With few points the slope has Student's distribution, whose variance is n / (n - 2) for n degrees of freedom.
        squares = float(np.sum(residuals[chosen] ** 2))
        error = math.sqrt(squares / (len(used) - 4) / (float(np.var(used)) * len(used)))
        span_us = float(used.max() - used.min())
        uncertainty = math.hypot(error, float(np.std(residuals[chosen])) / span_us)
        return Drift(-slope * 1e6, uncertainty * 1e6, span_us / 1e6, len(used))

    def _keep(self, meter_us: float, lag_us: float) -> None:
        assert self._begin_us is not None
        number = int((meter_us - self._begin_us) // self._span_us)
        if number not in self._least or lag_us < self._least[number][1]:
            self._least[number] = (meter_us, lag_us)


_Values = npt.NDArray[np.float64]


def _line(x: _Values, y: _Values, chosen: npt.NDArray[np.bool_]) -> tuple[float, _Values]:
    """The slope of the line through the chosen points, and the height of all points above it."""
    middle_x, middle_y = x[chosen].mean(), y[chosen].mean()
    away = x[chosen] - middle_x
    slope = float(np.sum(away * (y[chosen] - middle_y)) / np.sum(away**2))
    return slope, y - middle_y - slope * (x - middle_x)
