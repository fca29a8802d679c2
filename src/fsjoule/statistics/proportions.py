"""The rate of failures, estimated from observed failures."""

from __future__ import annotations

from typing import Final

from fsjoule.errors import ConfigError

DEFAULT_CONFIDENCE: Final = 0.95


def clopper_pearson(failures: int, n: int, confidence: float = DEFAULT_CONFIDENCE) -> tuple[float, float]:
    """The interval of the rate of failures, from `failures` in `n` independent trials.

    Returns its lower and upper end, between 0 and 1. The exact interval (Clopper, Pearson: Biometrika 26, 1934) covers
    the rate at least with probability `confidence`, also if no trial or every trial failed: 0 of 50 means that the rate
    is below 7.1 %, not that it is zero. Without a trial it is (0, 1).
    Raises ConfigError for more failures than trials, or a confidence that is not between 0 and 1.
    """
    from scipy.special import betaincinv

    if not 0 <= failures <= n:
        raise ConfigError(f"{failures} failures of {n} trials: the number must be between 0 and the number of trials")
    if not 0 < confidence < 1:
        raise ConfigError(f"a confidence of {confidence:g} is not between 0 and 1", hint="0.95 is usual")
    outside = (1 - confidence) / 2
    low = float(betaincinv(failures, n - failures + 1, outside)) if failures else 0.0
    high = float(betaincinv(failures + 1, n - failures, 1 - outside)) if failures < n else 1.0
    return low, high
