"""Compares repetitions of two kernels, runs or branches: one verdict per series and metric of a request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fsjoule.model.metrics import Figure, Metric
from fsjoule.statistics.figures import complaint
from fsjoule.statistics.nights import LEAST_RUNS, SidesEvidence, sides_evidence
from fsjoule.statistics.outcome import Criteria, Outcome
from fsjoule.statistics.ratios import Floats, Interval, Ratio, ratio_of_medians
from fsjoule.statistics.superiority import KERNELS, SuperiorityStatement, e_bh, statements

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Comparison(Generic[S]):
    """One metric of one series on both sides, one figure per boot, in the metric's unit. `subject` is the caller's.

    With `paired` the figures of both sides at one position are neighbours in time, on one board, and are compared with
    each other only. `runs` is given where the sides ran in different runs: the medians of all runs in the order of
    time, each with whether it is the candidate's. Then runs are compared, by a rule that knows memory, and not boots.
    `step` is the share by which a clock may have rounded a figure.
    """

    subject: S
    metric: Metric
    baseline: tuple[Figure, ...]
    candidate: tuple[Figure, ...]
    paired: bool = False
    runs: tuple[tuple[float, bool], ...] | None = None
    step: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict(Generic[S]):
    """The result of one comparison.

    `ratio` is candidate over baseline: of geometric means over pairs, else of medians. `p` is the rank test's, `q` the
    same after Benjamini and Hochberg, `detectable` the minimum detectable effect; all are None for pairs, and without
    enough repetitions. `n_*` count usable figures; `more_*` are
    the further boots that each side needs for a verdict, None if more alone would not help. `left_out` names unused
    figures, `reason` says why there is no verdict.
    """

    subject: S
    metric: Metric
    outcome: Outcome
    ratio: Ratio | None
    p: float | None
    q: float | None
    detectable: float | None
    n_baseline: int
    n_candidate: int
    more_baseline: int | None = 0
    more_candidate: int | None = 0
    left_out: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Tested(Generic[S]):
    comparison: Comparison[S]
    baseline: Floats
    candidate: Floats
    left_out: tuple[str, ...]
    p: float | None


def compare(comparisons: Sequence[Comparison[S]], criteria: Criteria | None = None) -> tuple[Verdict[S], ...]:
    """One verdict per comparison, in the same order.

    All comparisons of a request belong in one call, all paired or none: the false discovery rate holds for all of them.
    Pairs are judged by `superiority`, other samples by the rank test (Benjamini, Hochberg, JRSS B 57, 1995, 289-300).
    Figures that are missing, not finite or not above zero are left out and named.
    """
    wanted = criteria or Criteria()
    if any(comparison.paired for comparison in comparisons):
        found = iter(_of_pairs(comparisons, wanted))
        return tuple(_beside_step(next(found), each.step, wanted) for each in comparisons)
    by_runs = iter(_by_runs([each for each in comparisons if each.runs is not None], wanted))
    by_boots = iter(_by_boots([each for each in comparisons if each.runs is None], wanted))
    return tuple(
        _beside_step(next(by_boots if each.runs is None else by_runs), each.step, wanted) for each in comparisons
    )


def _beside_step(verdict: Verdict[S], step: float, criteria: Criteria) -> Verdict[S]:
    """The verdict as far as the steps of the figures' clock allow it."""
    if verdict.detectable is not None:
        verdict = replace(verdict, detectable=max(verdict.detectable, step))
    differs = verdict.outcome in (Outcome.REGRESSED, Outcome.IMPROVED)
    hidden = differs and verdict.ratio is not None and abs(math.log(verdict.ratio.value)) <= math.log1p(step)
    if hidden or (verdict.outcome is Outcome.UNCHANGED and 2 * step > criteria.smallest_effect):
        why = f"the clock of these figures has steps of {100 * step:.2g} %; measure longer jobs"
        return replace(verdict, outcome=Outcome.UNDECIDED, more_baseline=None, more_candidate=None, reason=why)
    return verdict


def _by_runs(comparisons: Sequence[Comparison[S]], criteria: Criteria) -> list[Verdict[S]]:
    """Verdicts on sides of different runs: e-values of all, through e-BH."""
    evidence = [_evidence(each.runs or ()) for each in comparisons]
    log_e = np.array([-math.inf if isinstance(each, str) else each.log_e for each in evidence])
    sure = e_bh(log_e, criteria.false_discoveries)
    return [
        _told_by_runs(comparison, found, criteria, differs=bool(differs))
        for comparison, found, differs in zip(comparisons, evidence, sure, strict=True)
    ]


def _evidence(runs: tuple[tuple[float, bool], ...]) -> SidesEvidence | str:
    """The evidence of runs that a difference is none of the lab's, or why there is none."""
    counts = [sum(side is candidate for _, side in runs) for candidate in (False, True)]
    if min(counts) == 0:
        return "no usable figures"
    if min(counts) < LEAST_RUNS:
        return (
            "the two sides ran one after the other: a change of the lab's level cannot be told from the kernel's "
            f"with {counts[0]} and {counts[1]} runs ({LEAST_RUNS} of each may); measure both in one run"
        )
    return sides_evidence(np.log([figure for figure, _ in runs]), [side for _, side in runs])


def _told_by_runs(
    comparison: Comparison[S], evidence: SidesEvidence | str, criteria: Criteria, *, differs: bool
) -> Verdict[S]:
    baseline, left_out = _usable("baseline", comparison.baseline)
    candidate, more_left_out = _usable("candidate", comparison.candidate)
    if isinstance(evidence, str):
        both = len(baseline) and len(candidate)
        ratio = ratio_of_medians(baseline, candidate, seed=criteria.seed) if both else None
        outcome, reason = Outcome.UNDECIDED, evidence
    else:
        ratio = Ratio(evidence.ratio, evidence.interval)
        within = evidence.interval.within(1 - criteria.smallest_effect, 1 + criteria.smallest_effect)
        outcome = Outcome.UNCHANGED if within else Outcome.UNDECIDED
        reason = "" if within else "the lab's own changes from run to run may look like this; measure both in one run"
        if differs:
            outcome, reason = _direction(evidence.ratio, comparison.metric, criteria), ""
    unusable = _too_many_unusable(comparison.baseline, comparison.candidate, criteria.most_unusable)
    if unusable:
        outcome, reason = Outcome.NOT_REPRODUCIBLE, unusable
    more = 0 if outcome in (Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.REGRESSED) else None
    return Verdict(
        subject=comparison.subject,
        metric=comparison.metric,
        outcome=outcome,
        ratio=ratio,
        p=None,
        q=None,
        detectable=None,
        n_baseline=len(baseline),
        n_candidate=len(candidate),
        more_baseline=more,
        more_candidate=more,
        left_out=left_out + more_left_out,
        reason=reason,
    )


def _by_boots(comparisons: Sequence[Comparison[S]], wanted: Criteria) -> tuple[Verdict[S], ...]:
    tested = [_test(comparison, wanted) for comparison in comparisons]
    p_values = [t.p for t in tested if t.p is not None]
    adjusted = iter(_adjusted(p_values) if p_values else [])
    # The level that a lone change among this many comparisons must reach.
    level = min(wanted.alpha, wanted.false_discoveries / max(1, len(tested)))
    return tuple(_judge(t, None if t.p is None else float(next(adjusted)), level, wanted) for t in tested)


def _adjusted(p_values: list[float]) -> list[float]:
    from scipy.stats import false_discovery_control

    return false_discovery_control(p_values, method="bh").tolist()


def _test(comparison: Comparison[S], criteria: Criteria) -> _Tested[S]:
    baseline, left_out = _usable("baseline", comparison.baseline)
    candidate, more_left_out = _usable("candidate", comparison.candidate)
    p = None
    if least_p(len(baseline), len(candidate)) <= criteria.alpha:
        p = rank_test(baseline, candidate)
    return _Tested(comparison, baseline, candidate, left_out + more_left_out, p)


def _of_pairs(comparisons: Sequence[Comparison[S]], criteria: Criteria) -> tuple[Verdict[S], ...]:
    rule = replace(
        KERNELS,
        false_discoveries=criteria.false_discoveries,
        smallest_effect=min(KERNELS.smallest_effect, math.log1p(criteria.smallest_effect)),
        equal_within=math.log1p(criteria.smallest_effect),
    )
    usable = [usable_pairs(comparison) for comparison in comparisons]
    differences = [
        [(1.0 if comparison.metric.more_is_better else -1.0) * (np.log(candidate) - np.log(baseline))]
        for comparison, (baseline, candidate) in zip(comparisons, usable, strict=True)
    ]
    judged = statements(differences, rule)
    return tuple(_of_pair(each, one, criteria) for each, (one,) in zip(comparisons, judged, strict=True))


def usable_pairs(comparison: Comparison[S]) -> tuple[Floats, Floats]:
    """Both sides' figures of the pairs that have both, shape (pairs,) each."""
    kept = [
        (one, two)
        for one, two in zip(comparison.baseline, comparison.candidate, strict=True)
        if one is not None and two is not None and not complaint(one) and not complaint(two)
    ]
    baseline, candidate = np.array(kept, dtype=np.float64).reshape(-1, 2).T
    return baseline, candidate


def _of_pair(comparison: Comparison[S], statement: SuperiorityStatement, criteria: Criteria) -> Verdict[S]:
    left_out = tuple(
        f"pair {number}: {side}: {wrong}"
        for number, pair in enumerate(zip(comparison.baseline, comparison.candidate, strict=True), start=1)
        for side, figure in zip(("baseline", "candidate"), pair, strict=True)
        if (wrong := complaint(figure))
    )
    ratio, interval = statement.change(more_is_better=comparison.metric.more_is_better)
    outcome, more = statement.outcome, statement.more_boots
    if ratio is not None and statement.decided and abs(math.log(ratio)) < criteria.negligible:
        outcome = Outcome.UNCHANGED
    unusable = _too_many_unusable(comparison.baseline, comparison.candidate, criteria.most_unusable)
    if unusable and statement.boots:
        outcome, more = Outcome.NOT_REPRODUCIBLE, None
    return Verdict(
        subject=comparison.subject,
        metric=comparison.metric,
        outcome=outcome,
        ratio=None if ratio is None else Ratio(ratio, interval or Interval(ratio, ratio)),
        p=None,
        q=None,
        detectable=None,
        n_baseline=statement.boots,
        n_candidate=statement.boots,
        more_baseline=more,
        more_candidate=more,
        left_out=left_out,
        reason=unusable if outcome is Outcome.NOT_REPRODUCIBLE else "",
    )


def _usable(side: str, figures: tuple[Figure, ...]) -> tuple[Floats, tuple[str, ...]]:
    entries = [(number, figure, complaint(figure)) for number, figure in enumerate(figures, start=1)]
    left_out = tuple(f"{side} {number}: {wrong}" for number, _, wrong in entries if wrong)
    return np.array([figure for _, figure, wrong in entries if not wrong], dtype=np.float64), left_out


def _judge(tested: _Tested[S], q: float | None, level: float, criteria: Criteria) -> Verdict[S]:
    comparison, baseline, candidate = tested.comparison, tested.baseline, tested.candidate
    ratio = ratio_of_medians(baseline, candidate, seed=criteria.seed) if len(baseline) and len(candidate) else None
    noise = relative_noise(baseline, candidate)
    least = None
    if noise is not None:
        least = detectable(noise, len(baseline), len(candidate), alpha=level, power=criteria.power)
    outcome, needed, reason = _outcome(tested, ratio, q, level, criteria)
    return Verdict(
        subject=comparison.subject,
        metric=comparison.metric,
        outcome=outcome,
        ratio=ratio,
        p=tested.p,
        q=q,
        detectable=None if least is None or math.isinf(least) else least,
        n_baseline=len(baseline),
        n_candidate=len(candidate),
        more_baseline=None if needed is None else max(0, needed - len(baseline)),
        more_candidate=None if needed is None else max(0, needed - len(candidate)),
        left_out=tested.left_out,
        reason=reason,
    )


def _outcome(
    tested: _Tested[S], ratio: Ratio | None, q: float | None, level: float, criteria: Criteria
) -> tuple[Outcome, int | None, str]:
    """The outcome, the repetitions per side that would decide it (0 if decided), and why it is undecided."""
    at_least = repetitions_for_alpha(level)
    reached = least_p(len(tested.baseline), len(tested.candidate))
    if ratio is None or tested.p is None or q is None:
        return Outcome.TOO_FEW, at_least, f"the rank test needs {at_least} repetitions of each side"
    unusable = _too_many_unusable(tested.comparison.baseline, tested.comparison.candidate, criteria.most_unusable)
    if unusable:
        return Outcome.NOT_REPRODUCIBLE, None, unusable
    if tested.p <= criteria.alpha and q <= criteria.false_discoveries and not ratio.interval.holds(1.0):
        return _direction(ratio.value, tested.comparison.metric, criteria), 0, ""
    if tested.p <= criteria.alpha and reached > level:
        return Outcome.TOO_FEW, at_least, f"this many comparisons need {at_least} repetitions of each side"
    if ratio.interval.within(1 - criteria.smallest_effect, 1 + criteria.smallest_effect):
        return Outcome.UNCHANGED, 0, ""
    low, high = ratio.interval.low - 1, ratio.interval.high - 1
    return (
        Outcome.NOT_REPRODUCIBLE,
        _enough(tested, level, criteria),
        f"the repetitions leave room for {low:+.1%} to {high:+.1%}, and {criteria.smallest_effect:.0%} would matter",
    )


def _too_many_unusable(baseline: tuple[Figure, ...], candidate: tuple[Figure, ...], most: float) -> str:
    for side, figures in (("baseline", baseline), ("candidate", candidate)):
        unusable = sum(complaint(figure) is not None for figure in figures)
        if unusable > most * len(figures):
            return f"{unusable} of {len(figures)} figures of the {side} cannot be used"
    return ""


def _direction(ratio: float, metric: Metric, criteria: Criteria) -> Outcome:
    if abs(math.log(ratio)) < criteria.negligible:
        return Outcome.UNCHANGED
    return Outcome.IMPROVED if (ratio > 1) == metric.more_is_better else Outcome.REGRESSED


def _enough(tested: _Tested[S], level: float, criteria: Criteria) -> int | None:
    """Repetitions per side that resolve the smallest effect; at least one more than now."""
    noise = relative_noise(tested.baseline, tested.candidate)
    one_more = max(len(tested.baseline), len(tested.candidate)) + 1
    if noise is None:
        return one_more
    enough = repetitions_for_effect(noise, criteria.smallest_effect, alpha=level, power=criteria.power)
    if enough is None:
        return None
    return max(enough, one_more)


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
