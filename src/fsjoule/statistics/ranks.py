"""Whether two samples differ: the Mann-Whitney rank test, what it needs, and how small a change it would see."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from scipy import stats

from fsjoule.statistics.ratios import Floats

# Distinct splits up to which tied samples are counted out; beyond it as many are drawn.
_SPLITS: Final = 50_000
# Above this product the exact distribution costs more than the difference to the normal one is worth.
_EXACT_UP_TO: Final = 2500
_MOST_REPETITIONS: Final = 10_000
# Median distance of two standard normal figures: sqrt(2) * 0.6745.
_MEDIAN_DISTANCE: Final = 0.9539


def rank_test(baseline: Floats, candidate: Floats, *, seed: int = 0) -> float:
    """The two-sided p-value of Mann and Whitney's test (Annals of Mathematical Statistics 18, 1947, 50-60).

    Samples are one-dimensional, of finite figures. Exact without ties. With ties (figures of a deterministic board, or
    percentiles that fio rounds) the splits of the figures themselves are counted, all of them or a seeded draw, because
    the table without ties would be wrong and the normal approximation is too bold for so few.

    Raises ValueError for an empty sample.
    """
    if not len(baseline) or not len(candidate):
        raise ValueError("the rank test needs at least one figure of each sample")
    first, second = np.sort(baseline), np.sort(candidate)
    if (len(second), *second) < (len(first), *first):
        first, second = second, first  # a seeded draw must not depend on which is called the baseline
    together = np.concatenate([first, second])
    distinct = len(np.unique(together))
    if distinct == 1:
        return 1.0
    if len(first) * len(second) > _EXACT_UP_TO:
        method: str | stats.PermutationMethod = "asymptotic"
    elif distinct == len(together):
        method = "exact"
    else:
        method = stats.PermutationMethod(n_resamples=_SPLITS, rng=np.random.default_rng(seed))
    return min(1.0, float(stats.mannwhitneyu(first, second, alternative="two-sided", method=method).pvalue))


def least_p(n_baseline: int, n_candidate: int) -> float:
    """The smallest p-value that the rank test can give: all of one sample below all of the other."""
    if n_baseline < 1 or n_candidate < 1:
        return 1.0
    return min(1.0, 2 / math.comb(n_baseline + n_candidate, n_baseline))


def detectable(relative_sd: float, n_baseline: int, n_candidate: int, *, alpha: float, power: float) -> float:
    """The minimum detectable effect: the loss, as a fraction, that the rank test sees with that power.

    `relative_sd` is the standard deviation of the figures' logarithms, `alpha` two-sided. The effect of the t test,
    (t[1-alpha/2] + t[power]) * sd * sqrt(1/n + 1/m), widened by the rank test's efficiency of 3/pi on normal noise
    (Noether, JASA 82, 1987, 645-647; Lehmann, Nonparametrics, 1975, section 2.4). Infinite where the test cannot reach
    alpha at all.
    """
    if least_p(n_baseline, n_candidate) > alpha:
        return math.inf
    degrees = n_baseline + n_candidate - 2
    quantiles = float(stats.t.ppf(1 - alpha / 2, degrees)) + float(stats.t.ppf(power, degrees))
    return -math.expm1(-quantiles * relative_sd * math.sqrt(math.pi / 3 * (1 / n_baseline + 1 / n_candidate)))


def repetitions_for_alpha(alpha: float) -> int:
    """How many repetitions of each side the rank test needs before it can reach alpha."""
    return next(n for n in range(1, _MOST_REPETITIONS) if least_p(n, n) <= alpha)


def repetitions_for_effect(relative_sd: float, effect: float, *, alpha: float, power: float) -> int | None:
    """How many repetitions of each side make `effect` detectable; None if more than 10,000."""
    low, high = repetitions_for_alpha(alpha), _MOST_REPETITIONS
    if detectable(relative_sd, high, high, alpha=alpha, power=power) > effect:
        return None
    while low < high:
        middle = (low + high) // 2
        if detectable(relative_sd, middle, middle, alpha=alpha, power=power) <= effect:
            high = middle
        else:
            low = middle + 1
    return low


def relative_noise(baseline: Floats, candidate: Floats) -> float | None:
    """The relative standard deviation within both samples together; None where neither has two figures.

    Shamos's estimator, the median distance of two figures of one sample, on logarithms (Bickel, Lehmann: Descriptive
    statistics for nonparametric models IV, 1979): one stall in four does not move it much, and it loses little to the
    standard deviation on normal noise. Where most figures are equal it falls back to that.
    """
    logs = [np.log(sample) for sample in (baseline, candidate)]
    distances = np.concatenate([np.abs(np.subtract.outer(s, s))[np.triu_indices(len(s), 1)] for s in logs])
    if not len(distances):
        return None
    robust = float(np.median(distances)) / _MEDIAN_DISTANCE
    if robust > 0:
        return robust
    squares = sum(float(np.square(s - s.mean()).sum()) for s in logs)
    return math.sqrt(squares / (len(logs[0]) + len(logs[1]) - 2))
