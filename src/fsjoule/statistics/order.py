"""The order of boots of two sides."""

from __future__ import annotations

import random
from enum import StrEnum


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
