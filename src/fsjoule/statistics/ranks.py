"""Whether two samples differ: the Mann-Whitney rank test, the repetitions it needs, and the effects it detects."""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.statistics.ratios import Floats

# Above this product of sample sizes the exact distribution is too slow, and the normal one is accurate.
_EXACT_UP_TO: Final = 2500
_MOST_REPETITIONS: Final = 10_000
_MOST_PAIRED: Final = 2000
# Median distance of two standard normal figures: sqrt(2) * 0.6745.
_MEDIAN_DISTANCE: Final = 0.9539


def rank_test(baseline: Floats, candidate: Floats) -> float:
    """The two-sided p-value of Mann and Whitney's test (Annals of Mathematical Statistics 18, 1947, 50-60).

    Samples are one-dimensional and finite. The test is exact, with and without ties: figures of a deterministic board
    tie, and so do fio's rounded percentiles. For ties scipy has the normal approximation, which is too bold for few
    figures, or draws splits, which takes seconds. Beyond 50 repetitions per side it is scipy's approximation.

    Raises ValueError for an empty sample.
    """
    from scipy import stats

    if not len(baseline) or not len(candidate):
        raise ValueError("the rank test needs at least one figure of each sample")
    if len(baseline) * len(candidate) > _EXACT_UP_TO:
        return float(stats.mannwhitneyu(baseline, candidate, alternative="two-sided", method="asymptotic").pvalue)
    # Twice the mean rank is a whole number, with ties too.
    ranks = np.rint(2 * stats.rankdata(np.concatenate([baseline, candidate]))).astype(np.int64)
    ways = _rank_sums(ranks, len(baseline))
    observed = int(ranks[: len(baseline)].sum())
    return min(1.0, 2 * float(min(ways[: observed + 1].sum(), ways[observed:].sum()) / ways.sum()))


def _rank_sums(ranks: npt.NDArray[np.int64], chosen: int) -> Floats:
    """In how many ways `chosen` ranks add up to each sum, shape (largest sum + 1,).

    The shift algorithm of Streitberg and Roehmel (Statistical Software Newsletter 12, 1986, 10-17): each rank is either
    left out, or chosen and added to the sum.
    """
    ways = np.zeros((chosen + 1, int(np.sort(ranks)[::-1][:chosen].sum()) + 1))
    ways[0, 0] = 1
    for rank in ranks.tolist():
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    return ways[chosen]


def least_p(n_baseline: int, n_candidate: int) -> float:
    """The smallest p-value that the rank test can give, when all of one sample are below all of the other."""
    if n_baseline < 1 or n_candidate < 1:
        return 1.0
    return min(1.0, 2 / math.comb(n_baseline + n_candidate, n_baseline))


def detectable(relative_sd: float, n_baseline: int, n_candidate: int, *, alpha: float, power: float) -> float:
    """The minimum detectable effect: the loss, as a fraction, that the rank test detects with this power.

    `relative_sd` is the standard deviation of the figures' logarithms, `alpha` two-sided. It is the t test's effect,
    (t[1-alpha/2] + t[power]) * sd * sqrt(1/n + 1/m), widened for the rank test's efficiency of 3/pi on normal noise
    (Noether, JASA 82, 1987, 645-647; Lehmann, Nonparametrics, 1975, section 2.4), with the nearest alpha that the rank
    test's discrete p-values reach. Infinite if the test cannot reach alpha.
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
    """The largest p-value of the rank test that does not exceed alpha; 0 if there is none."""
    if least_p(n_baseline, n_candidate) > alpha:
        return 0.0
    if n_baseline * n_candidate > _EXACT_UP_TO:
        return alpha
    ways = _rank_sums(np.arange(1, n_baseline + n_candidate + 1), n_baseline)
    p_values = 2 * np.cumsum(ways) / ways.sum()
    return float(p_values[p_values <= alpha].max())


def repetitions_for_alpha(alpha: float) -> int:
    """The repetitions per side with which the rank test can reach alpha."""
    return next(n for n in range(1, _MOST_REPETITIONS) if least_p(n, n) <= alpha)


def repetitions_for_effect(relative_sd: float, effect: float, *, alpha: float, power: float) -> int | None:
    """The repetitions per side that make `effect` detectable; None if more than 10,000."""
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
    """The relative standard deviation within both samples together; None if neither has two figures.

    Shamos's estimator, the median distance of two figures of one sample, on logarithms (Bickel, Lehmann: Descriptive
    statistics for nonparametric models IV, 1979): one stall in four hardly moves it, and on normal noise it is almost
    as good as the standard deviation, which replaces it if most figures are equal. A sample of thousands is thinned
    out evenly, because the number of pairs grows with the square.
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
