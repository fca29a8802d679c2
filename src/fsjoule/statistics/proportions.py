"""How often something fails, from how often it was seen to."""

from __future__ import annotations

from typing import Final

from fsjoule.errors import ConfigError

DEFAULT_CONFIDENCE: Final = 0.95


def clopper_pearson(failures: int, n: int, confidence: float = DEFAULT_CONFIDENCE) -> tuple[float, float]:
    """The interval in which the rate of failures lies, from `failures` of `n` independent trials.

    Returns its lower and upper end, between 0 and 1. It is the exact one (Clopper, Pearson: Biometrika 26, 1934), which
    covers the rate at least as often as `confidence` says, also where no trial or every trial failed: none of 50 says
    that the rate is below 7.1 %, not that it is zero. Without a trial it is all from 0 to 1.
    Raises ConfigError for more failures than trials, or a confidence that is not between 0 and 1.
    """
    from scipy.special import betaincinv

    if not 0 <= failures <= n:
        raise ConfigError(f"{failures} failures of {n} trials: there cannot be fewer than none, nor more than trials")
    if not 0 < confidence < 1:
        raise ConfigError(f"a confidence of {confidence:g} is not between 0 and 1", hint="0.95 is usual")
    outside = (1 - confidence) / 2
    low = float(betaincinv(failures, n - failures + 1, outside)) if failures else 0.0
    high = float(betaincinv(failures + 1, n - failures, 1 - outside)) if failures < n else 1.0
    return low, high
