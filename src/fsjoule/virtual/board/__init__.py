"""The emulated board: QEMU, its supply, console, outlet and mark wire.

It is one program, `python -m fsjoule.virtual.board.program CONFIG.toml`, which the lab starts; it ends with its QEMU
and leaves nothing behind. `power_model.py` turns what QEMU did into amperes. In guest time `guest.py` adds the mailbox,
the probe and a fresh card per power-on (docs/virtual-board.md).
"""
