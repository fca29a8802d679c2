"""Each emulated instrument that is asked for readings tells the joules of a known load, in windows anywhere."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

from fsjoule.host import process
from fsjoule.host.paths import project_dir
from fsjoule.meter.energy import energy
from fsjoule.meter.instruments import INSTRUMENTS, kind_at
from fsjoule.model import Window
from fsjoule.virtual.board.power import FeedWriter

VOLTS = 5.0
WINDOWS = 5
LIMIT_S = 60.0


class Board:
    """Draws bursts, and tells them to a feed, a thousand times a second; it remembers what it drew."""

    def __init__(self, path: Path) -> None:
        self._feed = FeedWriter(path)
        self._ended = threading.Event()
        self.times_ns: list[int] = []
        self.amperes: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.001):
            now_ns = time.monotonic_ns()
            drawn = 0.22 + 0.15 * (now_ns // 130_000_000 % 3 == 0)
            self._feed.append(now_ns, VOLTS, drawn)
            self.times_ns.append(now_ns)
            self.amperes.append(drawn)

    def joules(self, window: Window) -> float:
        """What was drawn in a window of the monotonic clock, in us: a record holds from the one before."""
        ends_ns = np.array(self.times_ns, dtype=np.float64)
        sums = np.concatenate([[0.0], np.cumsum(np.diff(ends_ns) * self.amperes[1 : len(ends_ns)] * VOLTS)]) * 1e-9
        begin, end = np.interp([window.start_us * 1e3, window.stop_us * 1e3], ends_ns, sums).tolist()
        return end - begin

    def close(self) -> None:
        self._ended.set()
        self._thread.join()


@pytest.fixture(name="devices")
def _devices() -> Generator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fsjoule-test-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


ASKED = sorted(row.name for row in INSTRUMENTS.values() if row.emulator_module and row.emulator().serve is not None)


@pytest.mark.parametrize("kind", ASKED)
def test_the_joules_of_a_known_load(kind: str, devices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_METERS_DIR", str(project_dir() / "labgrid" / "virtual" / "meters"))
    choice, board = random.Random(kind), Board(devices / "feed")
    words = ["--feed", str(devices / "feed"), "--address-file", str(devices / kind)]
    program = process.start([sys.executable, "-m", "fsjoule.virtual.instruments.asked", kind, *words])
    try:
        deadline = time.monotonic() + LIMIT_S
        while not (devices / kind).exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        address = (devices / kind).read_text()
        found = kind_at(address)
        assert found is not None
        with found.link().meter(address.removeprefix(found.prefix)) as meter:
            meter.arm()
            time.sleep(0.8)
            for _ in range(WINDOWS):
                meter.mark_now("begin")()
                time.sleep(choice.uniform(0.4, 0.9))
                meter.mark_now("end")()
                time.sleep(0.1)
            trace = meter.disarm()
    finally:
        process.stop(program)
        board.close()
    times_us = [float(mark.time_us) for mark in trace.marks]
    idle = Window(times_us[0] - 600_000, times_us[0] - 100_000)
    within, ratios = 0, list[float]()
    for begin_us, end_us in zip(times_us[::2], times_us[1::2], strict=True):
        told, wanted = energy(trace, window := Window(begin_us, end_us), idle).gross_mj, 1e3 * board.joules(window)
        ratios.append(told.value / wanted)
        within += abs(told.value - wanted) <= 2 * told.uncertainty
    # A busy computer is late now and then, and delays more than the uncertainty has room for.
    assert within >= WINDOWS - 1, ratios
    assert np.median(ratios) == pytest.approx(1.0, abs=0.05)
