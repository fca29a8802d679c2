"""Whether two samples differ: the Mann-Whitney rank test, what it needs, and how small a change it would see."""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.statistics.ratios import Floats

# Above this product of sample sizes the exact distribution costs more than the normal one is wrong.
_EXACT_UP_TO: Final = 2500
_MOST_REPETITIONS: Final = 10_000
_MOST_PAIRED: Final = 2000
# Median distance of two standard normal figures: sqrt(2) * 0.6745.
_MEDIAN_DISTANCE: Final = 0.9539


def rank_test(baseline: Floats, candidate: Floats) -> float:
    """The two-sided p-value of Mann and Whitney's test (Annals of Mathematical Statistics 18, 1947, 50-60).

    Samples are one-dimensional, of finite figures. Exact, with and without ties: figures of a deterministic board tie,
    as do percentiles that fio rounds, and for those scipy has the normal approximation, which is too bold for so few,
    or draws splits, which takes seconds. Beyond 50 repetitions of each side it is scipy's approximation.

    Raises ValueError for an empty sample.
    """
    from scipy import stats

    if not len(baseline) or not len(candidate):
        raise ValueError("the rank test needs at least one figure of each sample")
    if len(baseline) * len(candidate) > _EXACT_UP_TO:
        return float(stats.mannwhitneyu(baseline, candidate, alternative="two-sided", method="asymptotic").pvalue)
    # Twice the mean rank is a whole number, whatever ties.
    ranks = np.rint(2 * stats.rankdata(np.concatenate([baseline, candidate]))).astype(np.int64)
    ways = _rank_sums(ranks, len(baseline))
    observed = int(ranks[: len(baseline)].sum())
    return min(1.0, 2 * float(min(ways[: observed + 1].sum(), ways[observed:].sum()) / ways.sum()))


def _rank_sums(ranks: npt.NDArray[np.int64], chosen: int) -> Floats:
    """In how many ways that many of the ranks add up to each sum, shape (largest sum + 1,).

    The shift algorithm of Streitberg and Roehmel (Statistical Software Newsletter 12, 1986, 10-17): each rank either
    stays out, or is one more of the chosen and moves the sum up by itself.
    """
    ways = np.zeros((chosen + 1, int(np.sort(ranks)[::-1][:chosen].sum()) + 1))
    ways[0, 0] = 1
    for rank in ranks.tolist():
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    return ways[chosen]


def least_p(n_baseline: int, n_candidate: int) -> float:
    """The smallest p-value that the rank test can give: all of one sample below all of the other."""
    if n_baseline < 1 or n_candidate < 1:
        return 1.0
    return min(1.0, 2 / math.comb(n_baseline + n_candidate, n_baseline))


def detectable(relative_sd: float, n_baseline: int, n_candidate: int, *, alpha: float, power: float) -> float:
    """The minimum detectable effect: the loss, as a fraction, that the rank test sees with that power.

    `relative_sd` is the standard deviation of the figures' logarithms, `alpha` two-sided. The effect of the t test,
    (t[1-alpha/2] + t[power]) * sd * sqrt(1/n + 1/m), widened by the rank test's efficiency of 3/pi on normal noise
    (Noether, JASA 82, 1987, 645-647; Lehmann, Nonparametrics, 1975, section 2.4), with alpha as near as the rank test's
    discrete p-values come to it. Infinite where the test cannot reach alpha at all.
    """
    from scipy import stats

    attained = _attained(n_baseline, n_candidate, alpha)
    if attained == 0:
        return math.inf
    degrees = n_baseline + n_candidate - 2
    quantiles = float(stats.t.ppf(1 - attained / 2, degrees)) + float(stats.t.ppf(power, degrees))
    return -math.expm1(-quantiles * relative_sd * math.sqrt(math.pi / 3 * (1 / n_baseline + 1 / n_candidate)))


@cache
def _attained(n_baseline: int, n_candidate: int, alpha: float) -> float:
    """The largest p-value of the rank test that does not exceed alpha; 0 if none."""
    if least_p(n_baseline, n_candidate) > alpha:
        return 0.0
    if n_baseline * n_candidate > _EXACT_UP_TO:
        return alpha
    ways = _rank_sums(np.arange(1, n_baseline + n_candidate + 1), n_baseline)
    p_values = 2 * np.cumsum(ways) / ways.sum()
    return float(p_values[p_values <= alpha].max())


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
    standard deviation on normal noise. Where most figures are equal it falls back to that. Of a sample of thousands
    figures at equal distances are taken, as pairs grow with its square.
    """
    logs = [np.log(sample[:: math.ceil(len(sample) / _MOST_PAIRED)]) for sample in (baseline, candidate) if len(sample)]
    if not logs:
        return None
    distances = np.concatenate([np.abs(np.subtract.outer(s, s))[np.triu_indices(len(s), 1)] for s in logs])
    if not len(distances):
        return None
    robust = float(np.median(distances)) / _MEDIAN_DISTANCE
    if robust > 0:
        return robust
    squares = sum(float(np.square(s - s.mean()).sum()) for s in logs)
    return math.sqrt(squares / (sum(map(len, logs)) - len(logs)))
