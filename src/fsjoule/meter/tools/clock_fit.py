"""How fast the meter's clock goes against the host's, from when its samples arrive. Pure.

A sample arrives some time after it was taken: by the line's own delay, which is steady, and by what busy machines add,
which is never negative. So of each span only the least lag says something of the clocks; a straight line through these
(ordinary least squares) has the drift as its slope. Spans that a busy machine kept off the lower envelope altogether
lie far above the line and are left out. The uncertainty is the slope's standard error, and what a change of the least
lag itself would do, as large as its scatter, from one end to the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

_FIRST_SPAN_US: Final = 500_000.0
_MOST_SPANS: Final = 2048
_LEAST_SPANS: Final = 8
_OUTLIER: Final = 4.0  # times the residuals' median deviation: 2.7 standard deviations of a normal distribution
_ROUNDS: Final = 8


@dataclass(frozen=True, slots=True)
class Drift:
    """The meter's clock gains `ppm` on the host's (loses, if negative), known to `uncertainty_ppm` (k=1)."""

    ppm: float
    uncertainty_ppm: float
    span_s: float
    points: int


@dataclass(slots=True)
class ClockFit:
    """Takes moments, keeps the least lag of each span: at most 2048 spans, which grow with the recording."""

    _span_us: float = _FIRST_SPAN_US
    _begin_us: float | None = None
    _least: dict[int, tuple[float, float]] = field(default_factory=dict[int, tuple[float, float]])

    def add(self, meter_us: float, host_s: float) -> None:
        """A moment of the meter's clock, and when the host heard of it. A clock that goes back has begun anew."""
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

    def drift(self) -> Drift | None:
        """The drift; None after less than 4 s."""
        if len(self._least) < _LEAST_SPANS:
            return None
        points = np.array(list(self._least.values()))
        # Near zero, so that no digits are lost: lags are of the size of the host's uptime.
        x, y = (points - points[0]).T
        chosen = np.ones(len(x), dtype=np.bool_)
        slope, residuals = _line(x, y, chosen)
        for _ in range(_ROUNDS):
            middle = float(np.median(residuals[chosen]))
            # Of the median, for it is the outliers that are to be known.
            deviation = float(np.median(np.abs(residuals[chosen] - middle)))
            kept = residuals <= middle + _OUTLIER * deviation
            if kept.sum() < _LEAST_SPANS or (kept == chosen).all():
                break
            chosen = kept
            slope, residuals = _line(x, y, chosen)
        used = x[chosen]
        # Of few points the slope has Student's distribution, with the variance n / (n - 2) of n degrees of freedom.
        error = np.sqrt(np.sum(residuals[chosen] ** 2) / (len(used) - 4) / np.sum((used - used.mean()) ** 2))
        span_us = float(np.ptp(used))
        uncertainty = math.hypot(float(error), float(np.std(residuals[chosen])) / span_us)
        return Drift(-slope * 1e6, uncertainty * 1e6, span_us / 1e6, len(used))

    def _keep(self, meter_us: float, lag_us: float) -> None:
        assert self._begin_us is not None
        number = int((meter_us - self._begin_us) // self._span_us)
        if number not in self._least or lag_us < self._least[number][1]:
            self._least[number] = (meter_us, lag_us)


_Values = npt.NDArray[np.float64]


def _line(x: _Values, y: _Values, chosen: npt.NDArray[np.bool_]) -> tuple[float, _Values]:
    """The slope of the line through the chosen points, and how far all points lie above it."""
    middle_x, middle_y = x[chosen].mean(), y[chosen].mean()
    away = x[chosen] - middle_x
    slope = float(np.sum(away * (y[chosen] - middle_y)) / np.sum(away**2))
    return slope, y - middle_y - slope * (x - middle_x)
