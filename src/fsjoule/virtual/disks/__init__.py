"""Disks of the emulated board: its card, and disks whose cache does not survive a power cut.

Only `board/` and `lab/` call them. `card.py` keeps the card with the host or the board, never both; `lossy_disk.py`
serves a disk over NBD and drops or tears writes that were not flushed.
"""
