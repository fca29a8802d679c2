"""Emulated instruments of other makers, which measure what the virtual board draws.

A row of `meter/instruments.py` names the module of each, whose `EMULATOR` says how a lab has it (`emulator.py`).
`ppk2.py` is a PPK2 as a program on a pseudo terminal. `iio.py`, `scpi.py` and `powercap.py` are asked for readings,
`asked.py` is each as a program. `joulescope.py` stands in for the maker's driver. `load.py` reads
the board's power feed; `serial_adapter.py` takes its mark line to the host.
"""
