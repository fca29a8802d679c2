"""How long a board stays without power before it is switched on. The board is a program behind labgrid's drivers."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from labgrid import Environment

import fsjoule.lab.strategy
from fsjoule.lab import BoardStrategy

ENVIRONMENT = """\
imports: [fsjoule.lab]
targets:
  main:
    resources:
      USBMassStorage: {{match: {{ID_PATH: none}}}}
    drivers:
      ExternalPowerDriver: {{cmd_on: 'true', cmd_off: 'true'}}
      ExternalConsoleDriver: {{cmd: '{python} -c "import time; time.sleep(3600)"'}}
      ShellDriver: {{prompt: 'root@board:~# ', login_prompt: 'login: ', username: root}}
      UBootDriver: {{prompt: '\\n=> '}}
      USBStorageDriver: {{}}
      UmsFlasher: {{disk_timeout: 0}}
      BoardStrategy:
        board: board
        recipe: imx6ul
        simulated: true
        mark_device: /dev/ttyS1
        card_device: mmcblk0
        scratch_device: /dev/mmcblk0p3
        off_time: 2000
"""


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
    file = tmp_path / "env.yaml"
    file.write_text(ENVIRONMENT.format(python=sys.executable))
    environment_class: Any = Environment
    labgrid = environment_class(config_file=str(file))
    yield labgrid.get_target().get_driver("BoardStrategy", activate=False)
    labgrid.cleanup()


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
