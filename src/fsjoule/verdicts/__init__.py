"""Use cases over the index: what was measured on two sides becomes verdicts.

::

    names ── sides ──> Side, Side ── pairing ──> Comparison, ... ── statistics ──> Compared ── report

`Sources` reads a side from an index or from run folders, `compare_sides` judges two of them. A `Judge` is given
pairs of boots, fresh ones or those of `recorded_pairs`, until it has seen enough.
"""

from __future__ import annotations

from fsjoule.verdicts.gating import Judge, histories
from fsjoule.verdicts.pairing import compare_sides
from fsjoule.verdicts.pairs import Enough, Figures, Pair, Test
from fsjoule.verdicts.recorded import recorded_pairs
from fsjoule.verdicts.sides import Side, Sources

__all__ = [
    "Enough",
    "Figures",
    "Judge",
    "Pair",
    "Side",
    "Sources",
    "Test",
    "compare_sides",
    "histories",
    "recorded_pairs",
]
