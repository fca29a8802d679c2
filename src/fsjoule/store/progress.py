"""How far a long command is."""

from __future__ import annotations

from collections.abc import Callable

# Gets what is done and of how much, in runs, folders or bytes: what it is, whoever watches knows.
Watcher = Callable[[int, int], None]


def unwatched(done: int, of: int) -> None:
    """A watcher for commands that nobody watches."""
    del done, of
