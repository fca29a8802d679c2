"""Programs that hear Ctrl-C and a closed terminal, whoever started the tests."""

from __future__ import annotations


def interruptible(*argv: object) -> list[str]:
    """A program's arguments, for a test that sends it SIGINT or SIGHUP.

    A shell's background jobs, what nohup and some CI executors start, ignore these; so does everything that they start,
    the tests among it, and it would be a program's own right to go on ignoring them.
    """
    return ["env", "--default-signal=INT,HUP", *map(str, argv)]
