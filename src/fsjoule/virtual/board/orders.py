"""Orders to the virtual board, from the threads that take them to the main thread, which carries them out."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from fsjoule.errors import LabError

_log: Final = logging.getLogger("fsjoule.virtual.board")
_WATCH_INTERVAL_S: Final = 0.1
_ORDER_TIMEOUT_S: Final = 60.0
_PATIENCE_S: Final = 1.0


class OrderQueue:
    """Runs orders of other threads in the main thread, which must start all processes."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[tuple[Callable[[], None], Future[None]] | None] = queue.SimpleQueue()

    def do(self, order: Callable[[], None], *, hurry: Callable[[], None] | None = None) -> None:
        """Run an order and wait for it. Raises its error, or LabError if it takes too long.

        If it does not begin soon, `hurry` is called: it ends the operation that the main thread waits for.
        """
        done: Future[None] = Future()
        self._orders.put((order, done))
        if hurry is not None:
            with suppress(TimeoutError):
                done.result(_PATIENCE_S)
                return
            hurry()
        try:
            done.result(_ORDER_TIMEOUT_S)
        except TimeoutError:
            raise LabError("the virtual board is busy", transient=True) from None

    def end(self, *_: object) -> None:
        """Make `serve` return. It is a signal handler."""
        self._orders.put(None)

    def serve(self, between: Callable[[], None]) -> None:
        """Carry out orders until `end`. It calls `between` after each order, and regularly without orders."""
        while True:
            with suppress(queue.Empty):
                item = self._orders.get(timeout=_WATCH_INTERVAL_S)
                if item is None:
                    return
                _carry_out(*item)
            between()


def _carry_out(order: Callable[[], None], done: Future[None]) -> None:
    try:
        order()
    except Exception as error:  # noqa: BLE001 - raised again in the thread that gave the order
        _log.warning("%s", error)
        done.set_exception(error)
    else:
        done.set_result(None)
