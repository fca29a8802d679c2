"""The emulated board: QEMU, its supply, console, outlet and mark wire.

It is one program, `python -m fsjoule.virtual.board.program CONFIG.toml`, which the lab starts. It ends with its
QEMU and leaves nothing behind. `power.py` turns QEMU's activity into amperes. In guest time `guest.py` adds the
mailbox, the probe and a fresh card per power-on (docs/virtual-board.md).
"""
