"""A bench on places of a virtual lab that is up: what it has told so far, the processes of its boards, its end."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from bench_runs import PROJECT, command

from fsjoule.virtual.lab import lab

# Generous: as many boards as there are may share the machine with other tests.
LIMIT_S = 3600.0


class PoolBench:
    """A bench that runs, and the lines that it has told so far, each with its time."""

    def __init__(self, bench: subprocess.Popen[str]) -> None:
        self.bench, self.lines = bench, list[str]()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.bench.stdout is not None
        for line in self.bench.stdout:
            self.lines.append(f"{time.strftime('%H:%M:%S', time.gmtime())} {line.rstrip()}")

    def until(self, what: str, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not done():
            assert self.bench.poll() is None, f"it ended before {what}:\n{self.text}"
            assert time.monotonic() < deadline, f"not yet {what}:\n{self.text}"
            time.sleep(0.2)

    def end(self) -> int:
        code = self.bench.wait(LIMIT_S)
        self._thread.join(10)
        return code

    @property
    def workers(self) -> list[int]:
        """The processes of its boards, in their order."""
        children = Path(f"/proc/{self.bench.pid}/task/{self.bench.pid}/children").read_text().split()
        found = [each for each in children if b"parallel.worker" in Path(f"/proc/{each}/cmdline").read_bytes()]
        return sorted(int(each) for each in found)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@contextmanager
def pool_bench(
    results: Path, environment: Path, running: lab.LabHandle, *options: str, **variables: str
) -> Generator[PoolBench]:
    """A bench on the lab's places; it is killed if the body fails."""
    environ = {**os.environ, **running.environment, "PYTHONUNBUFFERED": "1", **variables}
    del environ["LG_PLACE"]
    with subprocess.Popen(
        command(results, *options, environment=environment),
        cwd=PROJECT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as bench:
        told = PoolBench(bench)
        try:
            yield told
        finally:
            bench.kill()
            told.end()
