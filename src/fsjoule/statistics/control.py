"""A control chart that needs no history: does a figure that should stay the same still do so?

x is the logarithm of each check's figure, so noise and shifts are relative. A check is compared with the n checks
before it that were in control, by their mean m and standard deviation s, which gives a t statistic of n - 1 degrees of
freedom. Turned into a normal one,

    Q = Phi^-1( T_(n-1)( (x - m) / (s sqrt(1 + 1/n)) ) )

is exactly normal and independent from check to check if x is normal, whatever its mean and noise are (Hawkins,
"Self-starting cusum charts for location and scale", The Statistician 36, 1987; Quesenberry, Journal of Quality
Technology 23, 1991). Two rules watch Q:

    limit    |Q| above its limit: sees a large shift at once
    average  |Z| above its limit, Z = 0.9 Z + 0.1 Q (EWMA): sees a small shift that lasts, and a slow drift

Each rule has half of the stated rate of false alarms. The limit's follows from the normal distribution, that of the
average from its mean run length, which a Markov chain gives (Brook, Evans, Biometrika 59, 1972; Lucas, Saccucci,
Technometrics 32, 1990).

**A single outlier** is an alarm for that check alone: it ends if the next check is inside the limit. The average gets
an outlier drawn in to the limit, and mean and standard deviation do not get it. A second one within ten checks lasts:
as `limit` if it looks like a step, else as `jumps`. What lasts is not taken into the mean: the chart does not get used
to it.

Pure. tests/statistics/control_rates.py simulates the rates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

Floats = npt.NDArray[np.float64]

# One false alarm in 1000 checks of a place: of nightly checks, in 2.7 years.
FALSE_ALARMS: Final = 1e-3
# A place with fewer checks is not called in control: a shift of one standard deviation would hide.
LEAST_CHECKS: Final = 8
_WEIGHT: Final = 0.1
# A relative standard deviation below which no difference matters; boards in guest time have none at all.
_LEAST_SPREAD: Final = 2e-4
# A t statistic needs two checks before.
_BEFORE: Final = 2
_JUMPS_WITHIN: Final = 10
# After an alarm so many further checks tell when the shift began.
_REFINED_BY: Final = 20
# Of a logarithm: after two checks the limits are beyond all figures.
_WIDEST: Final = 20.0
_PAIR: Final = 2
_HALF: Final = 0.5
_CELLS: Final = 151
_SMALLEST_TAIL: Final = 1e-300


class Rule(StrEnum):
    LIMIT = "limit"
    JUMPS = "jumps"
    AVERAGE = "average"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of |Q| and of |Z|, in their own units."""

    single: float
    average: float


@lru_cache
def limits_for(figures: int = 1, false_alarms: float = FALSE_ALARMS) -> Limits:
    """Limits for each of several figures of a place, which together have `false_alarms` a check.

    Figures share the rate (Bonferroni), so it holds also for those that move together.
    """
    of_rule = false_alarms / figures / 2
    return Limits(-float(special.ndtri(of_rule / 2)), _average_limit(of_rule))


def average_run_length(limit: float) -> float:
    """The mean number of checks until |Z| passes the limit, with Q standard normal and Z starting at 0."""
    edges = np.linspace(-limit, limit, _CELLS + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    reached = special.ndtr((edges[None, :] - (1 - _WEIGHT) * middles[:, None]) / _WEIGHT)
    steps = np.linalg.solve(np.eye(_CELLS) - np.diff(reached, axis=1), np.ones(_CELLS))
    return float(steps[_CELLS // 2])


def _average_limit(rate: float) -> float:
    spread = math.sqrt(_WEIGHT / (2 - _WEIGHT))

    def excess(limit: float) -> float:
        return math.log(average_run_length(limit) * rate)

    return float(optimize.brentq(excess, 0.5 * spread, 8 * spread, xtol=1e-4))


@dataclass(frozen=True, slots=True)
class Alarm:
    """A rule signalled at the check `signalled`. All checks are indices.

    The shift began at the check `begin` by the largest likelihood, and is `shift`, a fraction of the level before. For
    single checks and jumps it is the farthest one's. The check `end` is in control again; None if it lasts.
    """

    rule: Rule
    signalled: int
    begin: int
    shift: float
    end: int | None = None

    @property
    def lasts(self) -> bool:
        return self.end is None


@dataclass(frozen=True, slots=True, eq=False)
class Chart:
    """A figure's checks on a chart. Arrays have shape (n,), one entry a check.

    `q` and `average` are NaN for checks without two before. `centre`, `low` and `high` are the level before each check
    and its limits, in the figure's unit, NaN likewise. `level` is the geometric mean of the `used` checks in control,
    `spread` their relative standard deviation (0 with one).
    """

    figures: Floats
    q: Floats
    average: Floats
    centre: Floats
    low: Floats
    high: Floats
    level: float
    spread: float
    used: int
    limits: Limits
    alarms: tuple[Alarm, ...]

    @property
    def alarm(self) -> Alarm | None:
        """The alarm that goes on at the last check."""
        return self.alarms[-1] if self.alarms and self.alarms[-1].lasts else None

    @property
    def outliers(self) -> int:
        return sum(not alarm.lasts for alarm in self.alarms)

    @property
    def enough(self) -> bool:
        return len(self.figures) >= LEAST_CHECKS


class _Baseline:
    """Mean and sum of squares of the checks in control (Welford, Technometrics 4, 1962)."""

    def __init__(self) -> None:
        self.n = 0
        self.mean = 0.0
        self._squares = 0.0

    def take(self, x: float) -> None:
        self.n += 1
        step = x - self.mean
        self.mean += step / self.n
        self._squares += step * (x - self.mean)

    @property
    def spread(self) -> float:
        return max(math.sqrt(self._squares / (self.n - 1)), _LEAST_SPREAD) if self.n >= _BEFORE else 0.0

    @property
    def spread_of_next(self) -> float:
        return self.spread * math.sqrt(1 + 1 / self.n)

    def q(self, x: float) -> float:
        t = (x - self.mean) / self.spread_of_next
        tail = max(float(special.stdtr(self.n - 1, -abs(t))), _SMALLEST_TAIL)
        return math.copysign(float(special.ndtri(tail)), t)

    def reach(self, limit: float) -> float:
        """How far from the mean a check may be."""
        t = -float(special.stdtrit(self.n - 1, special.ndtr(-limit)))
        return min(t * self.spread_of_next, _WIDEST)


def chart(figures: Iterable[float], limits: Limits) -> Chart:
    """The chart of a figure's checks in the order of time, all above 0."""
    values = np.asarray(list(figures), dtype=np.float64)
    logs: list[float] = np.log(values).tolist()
    q, average, centre, reach = (np.full(len(logs), np.nan) for _ in range(4))
    baseline, z = _Baseline(), 0.0
    alarms: list[Alarm] = []
    lasting = False
    for i, x in enumerate(logs):
        if baseline.n < _BEFORE:
            baseline.take(x)
            continue
        q[i], centre[i], reach[i] = baseline.q(x), baseline.mean, baseline.reach(limits.single)
        # An outlier moves the average by no more than a check at the limit.
        z = (1 - _WEIGHT) * z + _WEIGHT * min(max(q[i], -limits.single), limits.single)
        average[i] = z
        if lasting:
            continue
        inside = abs(q[i]) <= limits.single
        if alarms and alarms[-1].lasts and inside:
            alarms[-1] = replace(alarms[-1], end=i)
        if not inside:
            lasting = _outside(alarms, i, math.expm1(x - baseline.mean), q)
        elif abs(z) > limits.average:
            alarms.append(Alarm(Rule.AVERAGE, i, i, 0.0))
            lasting = True
        else:
            baseline.take(x)
    if lasting and alarms[-1].rule is not Rule.JUMPS:
        alarms[-1] = _located(alarms[-1], logs)
    return Chart(
        figures=values,
        q=q,
        average=average,
        centre=np.exp(centre),
        low=np.exp(centre - reach),
        high=np.exp(centre + reach),
        level=math.exp(baseline.mean),
        spread=baseline.spread,
        used=baseline.n,
        limits=limits,
        alarms=tuple(alarms),
    )


def _outside(alarms: list[Alarm], i: int, shift: float, q: Floats) -> bool:
    """Note a check beyond the limit; returns whether the alarm lasts, however the next checks are."""
    last = alarms[-1] if alarms else None
    if last is None or i - last.signalled > _JUMPS_WITHIN:
        alarms.append(Alarm(Rule.LIMIT, i, i, shift))
        return False
    # In a step the checks between two that are off are off, too.
    stretch = q[last.signalled : i + 1]
    ends = min(stretch[0], stretch[-1], key=abs)
    is_step = stretch[0] * stretch[-1] > 0 and (len(stretch) == _PAIR or stretch[1:-1].mean() / ends > _HALF)
    if is_step:
        alarms[-1] = replace(last, end=None)
    else:
        alarms[-1] = Alarm(Rule.JUMPS, i, last.begin, max(shift, last.shift, key=abs))
    return True


def _located(alarm: Alarm, logs: Sequence[float]) -> Alarm:
    """The alarm with its begin: the split of all checks into two levels, with one noise, that is most likely."""
    x = np.asarray(logs[: alarm.signalled + 1 + _REFINED_BY])
    splits = np.arange(_BEFORE, min(alarm.signalled, len(x) - 1) + 1)
    sums = np.cumsum(x)
    before = sums[splits - 1] / splits
    after = (sums[-1] - sums[splits - 1]) / (len(x) - splits)
    # With one unknown noise the likelihood grows with the sum of squares between the levels.
    between = splits * (len(x) - splits) * np.square(after - before)
    best = int(np.argmax(between))
    return replace(alarm, begin=int(splits[best]), shift=math.expm1(float(after[best] - before[best])))


@dataclass(frozen=True, slots=True)
class Level:
    """A figure's level at a place: the mean of n checks, with its standard uncertainty (k=1), in one unit.

    `systematic` is the meter's, which all checks share; `random` is the spread of checks over the root of their number.
    """

    value: float
    systematic: float
    random: float
    checks: int

    @property
    def uncertainty(self) -> float:
        return math.hypot(self.systematic, self.random)


def level_of(drawn: Chart, uncertainties: Sequence[float]) -> Level:
    """The level of the checks in control; `uncertainties` are the standard ones (k=1) of single checks.

    The median of these counts as shared by all checks, though a part of it is not: the level's is never too small.
    """
    random = drawn.level * drawn.spread / math.sqrt(drawn.used)
    return Level(drawn.level, float(np.median(uncertainties)), random, drawn.used)


def normalised_error(one: Level, other: Level) -> float:
    """E_n = (a - b) / sqrt(U_a^2 + U_b^2), U = 2 u (ISO 13528, ISO/IEC 17043): from -1 to 1 if both agree."""
    return (one.value - other.value) / (2 * math.hypot(one.uncertainty, other.uncertainty))
