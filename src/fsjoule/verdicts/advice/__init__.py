"""Which filesystem should this board run? A usage profile and measurements of one board become figures and an answer.

For: `fsjoule advise`, and a run's page.
Called by: `report`, `runs`, `cli`.
May call: `store`, `suites`, `filesystems`, `statistics`, `model`, `errors`.

`parts.py` takes a profile apart into workloads, `evidence.py` finds what was measured of them, `figures.py` computes a
day and a year of each filesystem, `advise.py` judges which filesystem is less on which axis and ranks them, `of_run.py`
asks what one run can answer alone. Nothing is worded for people here, and nothing that was not measured is filled in.
"""
