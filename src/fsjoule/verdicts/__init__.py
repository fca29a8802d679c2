"""Use cases over the index: what was measured on two sides becomes verdicts.

::

    names ── sides ──> Side, Side ── pairing ──> Comparison, ... ── statistics ──> Compared ── report

`Sources` reads a side from an index or from run folders, `compare_sides` judges two of them.
"""

from __future__ import annotations

from fsjoule.verdicts.pairing import compare_sides
from fsjoule.verdicts.sides import Side, Sources

__all__ = ["Side", "Sources", "compare_sides"]
