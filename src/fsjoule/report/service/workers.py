"""Worker processes that make pages. One that takes too long is ended, and another takes its place.

A worker is `python -m fsjoule.report.service.workers FD`. It gets the settings, then makes pages for jobs.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from subprocess import Popen
from typing import Any, Final

from fsjoule.errors import FsjouleError
from fsjoule.host import process
from fsjoule.report.service.jobs import BugError, Job, Made, UnmadeError
from fsjoule.report.service.settings import Settings

# Starting Python with charts and numerics takes two seconds, on a busy machine more.
_START_S: Final = 120.0
_ENDING: Final = "the service is ending"
_LATER: Final = "try again later"
_AGAIN: Final = "try again; fsjoule serve --time-limit SECONDS allows more"


@dataclass
class _Worker:
    popen: Popen[bytes]
    connection: Connection[Any, Any]
    give_up_s: float
    is_ready: bool = False

    def end(self) -> None:
        with suppress(OSError):
            self.popen.kill()
        self.popen.wait()
        self.connection.close()


class _StartingError(UnmadeError):
    """No reader is late for it who did not ask: workers are also started ahead."""


_MOST_EACH: Final = 8


class Workers:
    """Give them jobs with `make`, from one event loop. `close` ends them at once, whatever they do."""

    def __init__(self, settings: Settings, *, count: int, limit_s: float) -> None:
        self._settings = settings
        self._limit_s = limit_s
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._running: dict[int, _Worker] = {}
        self._closed = False
        # Each thread has a worker of its own, and lives as long as that may.
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="fsjoule-worker")
        self.counts: Counter[str] = Counter()
        # Nobody waits for more than these; only the event loop's thread counts them.
        self._in_hand, self._most_in_hand = 0, _MOST_EACH * count
        for _ in range(count):
            self._threads.submit(self._prepared)

    async def make(self, job: Job) -> Made | str:
        """What a worker makes of a job. Raises FsjouleError, UnmadeError if that takes longer than the time limit."""
        due_s = time.monotonic() + self._limit_s
        if self._in_hand >= self._most_in_hand:
            self.counts["refused"] += 1
            raise UnmadeError("too many pages are being made", hint=_AGAIN)
        self._in_hand += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._made, job, due_s)
        except (RuntimeError, asyncio.CancelledError) as error:
            if not self._closed:
                raise
            raise UnmadeError(_ENDING, hint=_LATER) from error
        finally:
            self._in_hand -= 1

    def close(self) -> None:
        with self._lock:
            self._closed = True
            running = list(self._running.values())
        for each in running:
            with suppress(OSError):
                each.popen.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for each in running:
            each.end()

    def _prepared(self) -> None:
        with suppress(FsjouleError):
            self._worker(time.monotonic() + self._limit_s)

    def _made(self, job: Job, due_s: float) -> Made | str:
        try:
            worker = self._worker(due_s)
        except _StartingError:
            self.counts["late"] += 1
            raise
        answer = self._asked(worker, job, due_s)
        if isinstance(answer, FsjouleError):
            raise answer
        return answer

    def _asked(self, worker: _Worker, job: Job, due_s: float) -> Any:  # noqa: ANN401 - what a worker sends
        left_s = due_s - time.monotonic()
        if left_s <= 0:
            self.counts["late"] += 1
            raise UnmadeError("other pages are being made, and this one's time is over", hint=_AGAIN)
        try:
            worker.connection.send(job)
            if worker.connection.poll(left_s):
                return worker.connection.recv()
        except (OSError, EOFError) as error:
            self._dropped(worker)
            self.counts["lost"] += 1
            raise UnmadeError("the process that made this page has ended", hint="try again") from error
        self._dropped(worker)
        self.counts["ended"] += 1
        what = f"this page was not made within {self._limit_s:g} s"
        raise UnmadeError(what, hint=f"ask for less, or {_AGAIN}")

    def _worker(self, due_s: float) -> _Worker:
        """This thread's worker, started if necessary. One that starts slowly goes on, for the next reader."""
        worker: _Worker | None = getattr(self._mine, "worker", None)
        if worker is not None and worker.popen.poll() is not None:
            self._dropped(worker)
            worker = None
        if worker is None:
            worker = self._mine.worker = self._started()
        if worker.is_ready:
            return worker
        try:
            if worker.connection.poll(max(0.0, min(due_s, worker.give_up_s) - time.monotonic())):
                worker.is_ready = worker.connection.recv() == READY
            elif time.monotonic() < worker.give_up_s:
                raise _StartingError("the process that makes pages is still starting", hint=_AGAIN)
        except (OSError, EOFError):
            pass
        if worker.is_ready:
            return worker
        self._dropped(worker)
        raise UnmadeError("the process that makes pages does not start", hint=_LATER)

    def _started(self) -> _Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "fsjoule.report.service.workers", str(theirs.fileno())]
            popen = process.start(command, pass_fds=[theirs.fileno()])
        worker = _Worker(popen, Connection(ours.detach()), time.monotonic() + _START_S)
        with self._lock:
            self._running[popen.pid] = worker
            closed = self._closed
        self.counts["started"] += 1
        if closed:
            self._dropped(worker)
            raise UnmadeError(_ENDING, hint=_LATER)
        with suppress(OSError):
            worker.connection.send(self._settings)
        return worker

    def _dropped(self, worker: _Worker) -> None:
        with self._lock:
            self._running.pop(worker.popen.pid, None)
        worker.end()
        if getattr(self._mine, "worker", None) is worker:
            self._mine.worker = None


READY: Final = "ready"


def work(connection: Connection[Any, Any]) -> None:
    """Answer jobs until the other end is gone."""
    from fsjoule.report.service.making import Maker  # noqa: PLC0415 - charts and numerics take their time

    maker = Maker(connection.recv())
    connection.send(READY)
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            answer: object = maker.make(job)
        except FsjouleError as error:
            answer = error
        except Exception:  # noqa: BLE001 - the service goes on, and tells
            answer = BugError(traceback.format_exc())
        connection.send(answer)


if __name__ == "__main__":
    work(Connection(int(sys.argv[1])))
