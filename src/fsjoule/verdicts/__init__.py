"""Verdicts: measurements of two sides, of a gate or of a history become an answer.

For: judgement. Words, tables and colours are `report`'s.

::

    names ── sides ──> Side, Side ── pairing ──> Comparison, ... ── statistics ──> Compared ── report

Called by: `runs`, `report`, `ci`, `cli`.
May call: `store` (index and run folders), `suites`, `filesystems`, `statistics`, `model`, `errors`.

Entry points: `sides.Sources` reads a side from an index or from run folders, `compare.compare_sides` judges two of
them. A `gate.Judge` takes pairs of boots, fresh or from `recorded.recorded_pairs`, until it has seen enough. `trend/`
judges histories, `advice/` the filesystems of a device. `finding.py` has the answer per figure that compare, gate and
reports share.
"""
