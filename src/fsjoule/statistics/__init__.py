"""Verdicts from repetitions: pure functions, without I/O. docs/statistics.md explains them.

`compare` judges two finished samples, `SequentialTest` and `Gate` decide while boots still run, `nominate` and
`confirm` find changes in a history. The unit of all of them is the boot.
"""
