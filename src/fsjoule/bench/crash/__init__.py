"""Crash states: a run is recorded on the board, and each state that a power cut can leave behind is checked.

`onboard` has the programs of the board that record and check, `check` is one measurement; `model/write_log.py` knows
the states. Only `bench/run.py` calls this package.
"""
