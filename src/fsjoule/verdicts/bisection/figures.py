"""A bisection's figures by name, `<measurement> <metric>`, and as its statistics take them."""

from __future__ import annotations

import math

from fsjoule.model.metrics import Metric


def metric_of(figure: str) -> Metric:
    """The metric of `<measurement> <metric>`."""
    return Metric(figure.rpartition(" ")[2])


def worse(figure: str, value: float | None) -> float:
    """The logarithm, signed so that larger is worse; NaN where the figure is lacking."""
    if value is None or value <= 0:
        return math.nan
    return -math.log(value) if metric_of(figure).more_is_better else math.log(value)
