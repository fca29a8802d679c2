"""Why a figure changed: two profiles, function by function.

For: `fsjoule explain`.
Called by: `report`, `runs`, `cli`.
May call: `model`, `errors`.

`functions.py` names what was executed, `subsystems.py` says which part of the kernel a function is from, `changes.py`
says what differs. No file is read here, and nothing is worded for people.
"""
