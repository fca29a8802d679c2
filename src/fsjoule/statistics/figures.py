"""Boots for statistics: the order of those of two sides, and one figure of each, finite and above zero."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Hashable, Iterable, Sequence
from enum import StrEnum

from fsjoule.model.metrics import Figure


def one_per_boot(figures: Iterable[tuple[Hashable, Figure]]) -> tuple[Figure, ...]:
    """One figure per boot, in order of first appearance: the median of the boot's figures.

    The boot is the unit of replication (Kalibera, Jones: Rigorous benchmarking in reasonable time, ISMM 2013): figures
    of one boot share its memory layout, and counting each of them would claim too much precision. The key must
    distinguish boots of different runs. A boot without one of its figures has no median.
    """
    by_boot: dict[Hashable, list[Figure]] = {}
    for boot, figure in figures:
        by_boot.setdefault(boot, []).append(figure)
    return tuple(_median(values) for values in by_boot.values())


def complaint(figure: Figure) -> str | None:
    """Why a figure cannot be compared, or None if it is finite and above zero."""
    if figure is not None and 0 < figure < math.inf:
        return None
    if figure is None:
        return "missing"
    if math.isnan(figure):
        return "not a number"
    if math.isinf(figure):
        return "infinite"
    return "zero" if figure == 0 else f"negative ({figure:g})"


def _median(figures: Sequence[Figure]) -> Figure:
    if len(figures) == 1:
        return figures[0]
    present = [figure for figure in figures if figure is not None]
    if len(present) < len(figures):
        return None
    # A median with NaN would depend on the order.
    return math.nan if any(map(math.isnan, present)) else statistics.median(present)


class Turn(StrEnum):
    BASELINE = "baseline"
    CANDIDATE = "candidate"


def interleaved(pairs: int, *, seed: int) -> tuple[tuple[Turn, Turn], ...]:
    """The order of both boots of each pair: ABBA or BAAB, drawn for every two pairs.

    In two such pairs a steady drift affects both sides equally; the draw keeps periodic disturbances from always
    meeting the same side (Box, Hunter, Hunter: Statistics for Experimenters, 2nd edition 2005, chapter 4).
    """
    draw = random.Random(seed)  # noqa: S311 - a recorded order, not a secret
    straight, reverse = (Turn.BASELINE, Turn.CANDIDATE), (Turn.CANDIDATE, Turn.BASELINE)
    order: list[tuple[Turn, Turn]] = []
    while len(order) < pairs:
        order += draw.choice([[straight, reverse], [reverse, straight]])
    return tuple(order[:pairs])
