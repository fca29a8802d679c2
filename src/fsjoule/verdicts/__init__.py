"""Use cases over the index: what was measured on two sides becomes verdicts.

::

    names ── sides ──> Side, Side ── pairing ──> Comparison, ... ── statistics ──> Compared ── report

`Sources` reads a side from an index or from run folders, `compare_sides` judges two of them. A `Judge` is given
pairs of boots, fresh ones or those of `recorded_pairs`, until it has seen enough.
"""
