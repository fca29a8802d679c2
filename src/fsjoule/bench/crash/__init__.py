"""Crash states: what a power cut at any moment of a recorded run can leave on the device, and what becomes of it.

`states` is pure: the recorded writes and the states that they allow. `onboard` has the programs of the board that
record and check, `check` is one measurement. Only `bench/run.py` calls this package.
"""
