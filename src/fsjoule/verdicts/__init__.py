"""Verdicts: measurements of two sides, of a gate or of a history become an answer.

For: judgement. Words, tables and colours are `report`'s.

::

    Side, Side ── pairing ──> Comparison, ... ── statistics ──> Compared ── report

Called by: `runs`, `report`, `ci`, `cli`.
May call: `store` (its documents, never an index), `suites`, `filesystems`, `statistics`, `model`, `errors`.

Entry points: `compare.compare_sides` judges two sides that `store/sides.py` has read. A `gate.Judge` takes pairs of
boots, fresh or from `recorded_gate.recorded_pairs`, until it has seen enough. `trend/` judges histories, `advice/` the
filesystems of a device. `store.finding` has the answer per figure that compare, gate and reports share.
"""
