"""Statistics: pure functions from repetitions to decisions with error rates. docs/statistics.md explains them.

For: methods only. They see numbers, never a file, a run or a series' name. Their unit is always the boot.
Called by: `store`, `suites`, `verdicts`, `report`, `runs`, `cli`.
May call: `model`, `host`, `errors`.

Entry points: `comparison.compare` judges two finished samples; `gate.SequentialTest` and `gate.Gate` decide while boots
still run (`evidence.py`, `policy.py`); `changepoints.nominate` finds changes in a history.
"""
