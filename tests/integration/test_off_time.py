"""How long a board stays without power before it is switched on. The board is a program behind labgrid's drivers."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace

import pytest
from program_board import program_board

import fsjoule.lab.strategy
from fsjoule.lab import BoardStrategy


class _Clock:
    """A clock that goes on only while its user sleeps, or when told to."""

    def __init__(self) -> None:
        self.now_s, self.slept_s = 0.0, 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s, self.slept_s = self.now_s + seconds, self.slept_s + seconds

    def taken_s(self) -> float:
        """The seconds slept since the last call."""
        taken, self.slept_s = self.slept_s, 0.0
        return taken


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    # The console is drained by the time that really passes, hundredths of what is slept here.
    clock = _Clock()
    begin_s = time.monotonic()
    fake = SimpleNamespace(monotonic=lambda: clock.now_s + time.monotonic() - begin_s, sleep=clock.sleep)
    monkeypatch.setattr(fsjoule.lab.strategy, "time", fake)
    return clock


@pytest.fixture(name="board")
def _board(tmp_path: Path) -> Generator[BoardStrategy]:
    with program_board(tmp_path, "import time; time.sleep(3600)", off_time=2000) as target:
        yield target.get_driver("BoardStrategy", activate=False)


def test_the_time_that_flashing_takes_counts_as_without_power(board: BoardStrategy, clock: _Clock) -> None:
    board.transition("off")
    clock.now_s += 5000  # its card is written
    board.off()  # as each transition begins
    board.start()
    assert clock.taken_s() == 0


def test_a_board_that_was_on_is_without_power_for_all_of_its_time(board: BoardStrategy, clock: _Clock) -> None:
    board.transition("off")
    clock.now_s += 5000
    board.start()
    board.off()
    clock.now_s += 500
    board.off()
    board.start()
    assert clock.taken_s() == pytest.approx(1500, abs=400)
