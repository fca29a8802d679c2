"""Evidence for and against a loss, from interleaved boots whose noise is unknown and which sometimes stall.

A boot's figure is its logarithm, with a sign so that less is worse. Boots of the candidate differ from the baseline's
by the effect e. A boot's noise is normal with an unknown standard deviation s; with a small probability the boot
stalls, and its figure is then spread so widely that it says almost nothing (Tukey's contaminated normal; Huber, Ann.
Math. Statist. 36, 1965, 1753-1758, says why a sequential test needs it).

Each block of three pairs has its own level, so that drift from block to block cancels. The level is integrated out with
a flat prior, s by a sum over a grid. Boots in guest time share the seed of their pair, and with it the layout of files,
which moves some figures by hundreds of times their noise: there a block's pairs have levels of their own as well, with
probability 1/2.

L(e) is the likelihood of all boots so far. Two quantities are followed:

    regressed      mean of L(e) over losses of at least the smallest effect  /  largest L(e) over no loss and gains
    not regressed  mean of L(e) over no loss and gains  /  largest L(e) over losses of at least the smallest effect

Each is an e-value: if its denominator's hypothesis holds, it exceeds 1/a at any time with probability at most a (Ville
1939; Ramdas, Gruenwald, Vovk, Shafer: Game-theoretic statistics and safe anytime-valid inference, 2023, sections 2 and
5). So one may look after every pair and stop at any time. This holds on average over the grid of s; docs/statistics.md
has simulated rates for a given s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Final

import numpy as np

from fsjoule.statistics.ratios import Floats

BLOCK_PAIRS: Final = 3
STALL_PROBABILITY: Final = 0.05
# Spread of a stalled boot's logarithm: wide enough for a boot that takes twice as long.
STALL_SD: Final = 0.3
# 0.01 % to 30 % (useless), in steps of a third. With less (instructions of a deterministic board) a loss of 20 to 40 %
# between two of the grid of effects looked like stalls of all boots, and stayed undecided.
_SIGMAS: Final[Floats] = np.exp(np.arange(math.log(1e-4), math.log(0.3), 0.3))
# Earlier boots must not outweigh fresh boots that disagree.
_MOST_DEGREES: Final = 4.0
# The grid of effects ends at an eighth or eight times as much. Where noise is small, an effect between two of the grid
# speaks against both: with steps of a factor 2, a loss of 2.8 % was undecided where one of 4 % was found.
_LARGEST: Final = math.log(8)
_STEP: Final = 1.15
# Levels of pairs are anywhere within so much, as logarithms: of reads they lay 2 % apart.
_LEVELS: Final = 0.3
# Terms of likelihoods that are summed at once: what fits into the processor's cache.
_TERMS: Final = 2**15
# The logarithm of a term that adds nothing to the largest. Much less would be a denormal number, which takes long.
_NOTHING: Final = -100.0
# Effects of all sizes, from 0.001 % up, each a tenth larger than the last.
_SIZES: Final[Floats] = np.exp(np.arange(math.log(1e-5), math.log(_LARGEST), 0.1))
_EFFECTS: Final[Floats] = np.concatenate([-_SIZES[::-1], [0.0], _SIZES])
# Weight of the smallest effect among losses, and of no effect among gains.
_WEIGHT_OF_FIRST: Final = 0.5


@dataclass(frozen=True, slots=True)
class KnownNoise:
    """The noise of earlier boots: relative SD and degrees of freedom, of which at most four count."""

    relative_sd: float
    degrees: float


@dataclass(frozen=True, slots=True, eq=False)
class Hypotheses:
    """Effects with log weights, shape (n,): `losses` from the smallest effect, `gains` from zero."""

    losses: Floats
    loss_weights: Floats
    gains: Floats
    gain_weights: Floats

    @classmethod
    def about(cls, smallest_loss: float) -> Hypotheses:
        """The grids for the smallest loss that matters, a positive difference of logarithms."""
        steps = max(1, math.ceil(math.log(_LARGEST / smallest_loss, _STEP)))
        sizes = smallest_loss * _STEP ** np.arange(steps + 1, dtype=np.float64)
        gains = np.concatenate([[0.0], sizes])
        return cls(-sizes, _weights(len(sizes)), gains, _weights(len(gains)))


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Logarithms of both e-values after each pair, and the estimated noise; all have shape (..., pairs)."""

    regressed: Floats
    not_regressed: Floats
    relative_noise: Floats


def evidence(
    baseline: Floats,
    candidate: Floats,
    hypotheses: Hypotheses,
    known: KnownNoise | None = None,
    *,
    seeded: bool = False,
    last_only: bool = False,
) -> Evidence:
    """The evidence after each pair, or with `last_only` after the last one alone: shape (..., 1).

    With `seeded` the boots of a pair share their seed, and no boot drifts.

    Both arrays have the shape (..., pairs): logarithms, less is worse, in the order of time. The leading axes can hold
    any number of trials.
    """
    effects = np.concatenate([hypotheses.losses, hypotheses.gains])
    prior = _sigma_prior(known)
    done = np.zeros((*baseline.shape[:-1], len(effects), len(_SIGMAS)))
    after: list[tuple[Floats, Floats, Floats]] = []
    last = baseline.shape[-1] - 1
    for pair in range(last + 1):
        start = pair - pair % BLOCK_PAIRS
        if last_only and pair not in (start + BLOCK_PAIRS - 1, last):
            continue
        block = slice(start, pair + 1)
        likelihood = done + _of_block(baseline[..., block], candidate[..., block], effects, seeded=seeded)
        if pair + 1 == start + BLOCK_PAIRS:
            done = likelihood
        if pair == last or not last_only:
            after.append(_weigh(likelihood + prior, hypotheses))
    regressed, not_regressed, noise = (np.stack(parts, axis=-1) for parts in zip(*after, strict=True))
    return Evidence(regressed, not_regressed, noise)


def effect_bounds(
    baseline: Floats,
    candidate: Floats,
    hypotheses: Hypotheses,
    known: KnownNoise | None = None,
    *,
    confidence: float,
    seeded: bool = False,
) -> tuple[float, float]:
    """Bounds of the effect that hold at any number of pairs, so also when somebody stops.

    They include all effects e with evidence against them, mean of L / L(e), below 1 / (1 - confidence): a confidence
    sequence (Ramdas et al. 2023, section 3.4). Half of the mean is over the hypotheses' effects, half over a grid of
    all sizes, so that it is also narrow about other effects. Both arrays are as in `evidence`, one-dimensional, with
    at least one pair.
    """
    from scipy.special import logsumexp

    estimate = float(np.median(candidate - baseline))
    around = estimate + _EFFECTS
    effects = np.concatenate([hypotheses.losses, hypotheses.gains, _EFFECTS, around])
    joint = np.zeros((len(effects), len(_SIGMAS)))
    for start in range(0, len(baseline), BLOCK_PAIRS):
        block = slice(start, start + BLOCK_PAIRS)
        joint = joint + _of_block(baseline[block], candidate[block], effects, seeded=seeded)
    per_effect = logsumexp(joint + _sigma_prior(known), axis=-1)
    named = np.concatenate([hypotheses.loss_weights, hypotheses.gain_weights]) - math.log(4)
    weights = np.concatenate([named, np.full(len(_EFFECTS), -math.log(2 * len(_EFFECTS)))])
    against = logsumexp(per_effect[: len(weights)] + weights) - per_effect[len(weights) :]
    held = np.flatnonzero(against < -math.log1p(-confidence))
    if not len(held):
        return float(around[0]), float(around[-1])
    # The neighbours of the effects that hold, so that the grid does not make the bounds too narrow.
    return float(around[max(held.min() - 1, 0)]), float(around[min(held.max() + 1, len(around) - 1)])


def _weigh(joint: Floats, hypotheses: Hypotheses) -> tuple[Floats, Floats, Floats]:
    """Logarithms of both e-values, and the noise, from likelihood times prior of shape (..., effects, sigmas)."""
    from scipy.special import logsumexp

    per_effect = logsumexp(joint, axis=-1)
    losses, gains = per_effect[..., : len(hypotheses.losses)], per_effect[..., len(hypotheses.losses) :]
    regressed = logsumexp(losses + hypotheses.loss_weights, axis=-1) - gains.max(axis=-1)
    not_regressed = logsumexp(gains + hypotheses.gain_weights, axis=-1) - losses.max(axis=-1)
    posterior = np.exp(joint - logsumexp(joint, axis=(-2, -1), keepdims=True)).sum(axis=-2)
    return regressed, not_regressed, np.exp(posterior @ np.log(_SIGMAS))


def _of_block(baseline: Floats, candidate: Floats, effects: Floats, *, seeded: bool) -> Floats:
    """Logarithm of a block's likelihood, with one level, or as well with one for each pair, if it has several."""
    common = _log_likelihood(baseline, candidate, effects)
    pairs = baseline.shape[-1]
    if not seeded or pairs == 1:
        return common
    # Each further level has a density of its own.
    apart = (pairs - 1) * math.log(math.sqrt(2 * math.pi) / _LEVELS)
    for pair in range(pairs):
        apart = apart + _log_likelihood(baseline[..., pair : pair + 1], candidate[..., pair : pair + 1], effects)
    return np.logaddexp(common, apart) - math.log(2)


def _log_likelihood(baseline: Floats, candidate: Floats, effects: Floats) -> Floats:
    """Logarithm of one block's likelihood, its level integrated out: (..., k), (..., k) to (..., effects, sigmas).

    It sums over all sets of stalled boots among the 2k. With inverse variances w and figures minus effect r, the
    integral over the level is exp(-(sum w r^2 - (sum w r)^2 / sum w) / 2) * sqrt(prod w / sum w), up to a constant. The
    exponent is a square of the effect, whose three coefficients are the same for all effects.
    """
    runs = np.concatenate([baseline, candidate], axis=-1)
    runs = runs - runs.mean(axis=-1, keepdims=True)  # keeps digits; the level is integrated out anyway
    weights, total, scale = _stalled(baseline.shape[-1])
    of_candidate = weights[baseline.shape[-1] :]
    candidates = of_candidate.sum(axis=0)
    sums = runs @ weights
    constant = scale - (np.square(runs) @ weights - np.square(sums) / total) / 2
    linear = runs[..., baseline.shape[-1] :] @ of_candidate - sums * candidates / total
    square = (candidates - np.square(candidates) / total) / 2
    likelihoods = np.empty((*runs.shape[:-1], len(effects), len(_SIGMAS)))
    at_once = max(1, _TERMS // constant.size)
    for start in range(0, len(effects), at_once):
        effect = effects[start : start + at_once, None]
        terms = constant[..., None, :] + effect * linear[..., None, :] - np.square(effect) * square
        terms = terms.reshape(*terms.shape[:-1], -1, len(_SIGMAS))
        largest = terms.max(axis=-2)
        terms -= largest[..., None, :]
        np.maximum(terms, _NOTHING, out=terms)
        likelihoods[..., start : start + at_once, :] = largest + np.log(np.exp(terms, out=terms).sum(axis=-2))
    return likelihoods


@cache
def _stalled(pairs: int) -> tuple[Floats, Floats, Floats]:
    """For each set of stalled boots of a block, and each noise: weights, their sum, and the logarithm of their factor.

    Shapes (2 pairs, sets * sigmas), and (sets * sigmas,) for the others.
    """
    stalled = np.array(list(product((0.0, 1.0), repeat=2 * pairs))).T[..., None]
    weights = 1 / (np.square(_SIGMAS) + stalled * STALL_SD**2)
    total = weights.sum(axis=0)
    count = stalled.sum(axis=0)
    chance = count * math.log(STALL_PROBABILITY) + (2 * pairs - count) * math.log1p(-STALL_PROBABILITY)
    scale = (np.log(weights).sum(axis=0) - np.log(total)) / 2 + chance
    return weights.reshape(2 * pairs, -1), total.ravel(), scale.ravel()


def _sigma_prior(known: KnownNoise | None) -> Floats:
    """Logarithms of the noise grid's weights: uniform, or an inverse chi-squared from earlier boots."""
    from scipy.special import logsumexp

    weights = np.zeros(len(_SIGMAS))
    if known is not None and known.degrees > 0:
        degrees = min(known.degrees, _MOST_DEGREES)
        weights = -degrees * (np.log(_SIGMAS) + np.square(max(known.relative_sd, _SIGMAS[0]) / _SIGMAS) / 2)
    return weights - logsumexp(weights)


def _weights(count: int) -> Floats:
    rest = (1 - _WEIGHT_OF_FIRST) / (count - 1)
    return np.log(np.concatenate([[_WEIGHT_OF_FIRST], np.full(count - 1, rest)]))
