"""The virtual lab's programs: how they are started, watched and ended.

Two processes, `supervisor.py` and `guardian.py`, watch each other, so that the lab ends whatever kills one of them.
They run as `python -m` modules. `lab.py` is the door for everybody else, `health.py` says what has died and `owner.py`
who has the lab.
"""
