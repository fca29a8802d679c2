"""The state of a bisection by its log: its next step or its answer, and its cost.

`state` turns commits into positions, figures into logarithms; `fsjoule.statistics.bisection` decides. `answer` is the
answer as reports take it, `recorded` says which earlier runs count.
"""
