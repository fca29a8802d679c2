"""Figures as text, with the decimals that a column or an interval needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from fsjoule.model import SampleCounts
from fsjoule.model.metrics import Metric

if TYPE_CHECKING:  # a trend uses these words without scipy
    from fsjoule.statistics.ratios import Interval
    from fsjoule.statistics.spread import Spread

ABSENT: Final = "–"  # noqa: RUF001 - a dash, never a zero: the figure was not measured
_SIGNIFICANT: Final = 3
# From this factor on "times as fast" reads better than a percentage.
_TIMES: Final = 1.5


def decimals_for(spreads: Iterable[Spread | None], *, most: int = 3) -> int:
    """Decimals for a column: three significant digits of the smallest mean, one of the median deviation."""
    present = [spread for spread in spreads if spread is not None]
    means = [abs(spread.mean) for spread in present if spread.mean]
    deviations = sorted(spread.sd for spread in present if spread.sd)
    wanted = [_SIGNIFICANT - 1 - _exponent(min(means))] if means else [0]
    if deviations:
        wanted.append(-_exponent(deviations[len(deviations) // 2]))
    return min(max(0, *wanted), most)


def _exponent(value: float) -> int:
    return math.floor(math.log10(value))


def mean_text(spread: Spread | None, decimals: int) -> str:
    """`12.3`, or a dash."""
    return ABSENT if spread is None else f"{spread.mean:.{decimals}f}"


def sd_text(spread: Spread | None, decimals: int) -> str:
    """`± 0.2`, or nothing for a single repetition."""
    return "" if spread is None or spread.sd is None else f"± {spread.sd:.{decimals}f}"


def ratio_text(ratio: float | None) -> str:
    """Measured over published, after a multiplication sign, with at least two significant digits below 1."""
    if ratio is None:
        return ABSENT
    decimals = max(2, 1 - _exponent(ratio)) if ratio > 0 else 2
    return f"× {ratio:.{decimals}f}"  # noqa: RUF001 - a multiplication sign


def share_text(share: float | None) -> str:
    return ABSENT if share is None else f"{100 * share:.0f} %"


def hidden_text(step: float) -> str:
    """Why figures that a clock may have rounded by this share do not decide."""
    return f"hidden by steps of {100 * step:.2g} %"


def samples_text(samples: SampleCounts) -> str:
    return f"{samples.received} of {samples.expected} samples received, {samples.missed} missed, {samples.lost} lost"


def seconds_text(seconds: float) -> str:
    """`8.3 s`, `4 min 12 s`."""
    if seconds < 100:  # noqa: PLR2004 - two digits of seconds still read well
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def percent(share: float) -> str:
    """A fraction in percent: one decimal, or two below 1 %."""
    value = 100 * share
    return f"{value:.1f} %" if value >= 1 else f"{value:.2f} %"


def change_text(metric: Metric, ratio: float) -> str:
    """`1.1 % more CPU time`."""
    return f"{percent(abs(ratio - 1))} {metric.change(ratio)}"


def advantage_text(metric: Metric, ratio: float, interval: Interval | None = None, other: str = "") -> str:
    """By how much a side is better, with `other` named: `1.7 times as fast as btrfs (95 %: 1.69 to 1.72)`.

    From half as fast again on it is a factor, below a percentage: `12 % faster than btrfs (95 %: 10 to 14 %)`. Less of
    a figure is always a percentage: `43 % less energy than btrfs (95 %: 42 to 44 %)`. A bound below zero is a loss.
    """
    ratios = [ratio, interval.low, interval.high] if interval else [ratio]
    if metric.row.speed:
        gain, *bounds = [each if metric.more_is_better else 1 / each for each in ratios]
        if gain >= _TIMES:
            text = f"{gain:.1f} times as fast{f' as {other}' if other else ''}"
            return f"{text}{_bounds(bounds, '', 2 if gain < 10 else 1)}"  # noqa: PLR2004 - two digits still read well
        share, *bounds, word = gain - 1, *(each - 1 for each in bounds), "faster" if gain >= 1 else "slower"
    else:
        share, *bounds, word = *(1 - each for each in ratios), metric.change(ratio)
    bounds = [100 * math.copysign(1, share) * each for each in bounds]
    wide = not bounds or abs(bounds[1] - bounds[0]) >= 1
    decimals = 0 if abs(share) >= 0.1 and wide else 1  # noqa: PLR2004 - two digits
    return (
        f"{abs(100 * share):.{decimals}f} % {word}{f' than {other}' if other else ''}{_bounds(bounds, ' %', decimals)}"
    )


def _bounds(bounds: Sequence[float], unit: str, decimals: int) -> str:
    return f" (95 %: {min(bounds):.{decimals}f} to {max(bounds):.{decimals}f}{unit})" if bounds else ""


def signed(ratio: float | None, interval: Interval | None = None) -> str:
    """The change in percent: `-7.1 %`, with the decimals that its interval needs."""
    return ABSENT if ratio is None else f"{100 * (ratio - 1):+.{_decimals(interval)}f} %"


def range_text(interval: Interval | None) -> str:
    """The interval of a change: `-8.2 to -5.9 %`."""
    if interval is None:
        return ABSENT
    low, high = (f"{100 * (bound - 1):+.{_decimals(interval)}f}" for bound in (interval.low, interval.high))
    return f"{low} to {high} %"


def _decimals(interval: Interval | None) -> int:
    """One decimal, or more where one would hide the interval."""
    width = 100 * (interval.high - interval.low) if interval else 0.0
    return 1 if width >= 0.2 or width == 0 else 2 if width >= 0.02 else 3  # noqa: PLR2004
