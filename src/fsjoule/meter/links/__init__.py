"""Byte streams to a meter, and the thread that listens to one.

`address.py` reads an address, `streams.py` opens it, `receiver.py` receives, `client.py` commands, `finder.py` finds
meters. `holders.py` and `stray.py` detect another reader of the same port. Called by `lab`, `virtual`, `runs`, `cli`
and `meter/tools`.
"""
