"""Programs that hear Ctrl-C, whoever started the tests."""

from __future__ import annotations


def interruptible(*argv: object) -> list[str]:
    """A program's arguments, for a test that sends it SIGINT.

    A shell's background jobs, and what some CI executors start, ignore that signal; so does everything that they start,
    the tests among it, and it would be a program's own right to go on ignoring it.
    """
    return ["env", "--default-signal=INT", *map(str, argv)]
