"""Emulated instruments of other makers, each on a pseudo terminal, which measure what the virtual board draws.

`ppk2.py` is what a PPK2 says and does; `program.py` is it as a program; `load.py` reads the board's power feed.
"""
