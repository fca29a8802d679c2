"""Byte streams to a meter, and the thread that listens to one.

`streams.py` opens an address, `receiver.py` receives, `client.py` commands, `finder.py` finds meters. `streams.py` and
`receiver.py` detect another reader of the same port. Called by `lab`, `virtual`, `runs`, `cli` and `meter/tools`.
"""
