"""Requests in threads of their own, so that Ctrl-C ends a command also while a server does not answer.

A request is made by code that hears no signal, and may last as long as its limits. The threads are daemons: they end
with the program.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE: Final = 8


def in_parallel(call: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """`call` for each item, some at once; results in order. After the first error no further call begins."""
    work = _Work(call, list(items))
    if work.left:
        work.run(min(AT_ONCE, work.left))
    return work.results()


def interruptible(call: Callable[[], R]) -> R:
    """`call` in another thread, unless this is one: only the main thread gets signals."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    return in_parallel(lambda _: call(), (None,))[0]


class _Work(Generic[T, R]):
    def __init__(self, call: Callable[[T], R], items: list[T]) -> None:
        self._call = call
        self._waiting: SimpleQueue[tuple[int, T]] = SimpleQueue()
        for number, item in enumerate(items):
            self._waiting.put((number, item))
        self._done: dict[int, R] = {}
        self._error: BaseException | None = None
        self._stopped = False
        self._running = 0
        self._changing = threading.Condition()
        self.left = len(items)

    def run(self, threads: int) -> None:
        """Return when no thread works any more; after a signal at once."""
        self._running = threads
        try:
            for _ in range(threads):
                threading.Thread(target=self._work, name="objects", daemon=True).start()
            with self._changing:
                while self._running:
                    self._changing.wait()
        finally:
            self._stopped = True

    def results(self) -> list[R]:
        if self._error is not None:
            raise self._error
        return [self._done[number] for number in sorted(self._done)]

    def _work(self) -> None:
        try:
            while not self._stopped:
                number, item = self._waiting.get_nowait()
                self._done[number] = self._call(item)
        except Empty:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised where the work was given
            self._stopped, self._error = True, self._error or error
        finally:
            with self._changing:
                self._running -= 1
                self._changing.notify()
