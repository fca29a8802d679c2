"""The virtual lab's programs: start, watch and end them.

Two processes, `supervisor.py` and `guardian.py`, watch each other, so that the lab ends if either of them is killed.
They run as `python -m` modules. `lab.py` is the door for all callers, and knows who uses the lab; `health.py` tells
what has died.
"""
