"""A board that is a program behind labgrid's drivers, flashed by its boot loader's `ums`."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labgrid import Environment

_ENVIRONMENT = """\
imports: [fsjoule.lab]
targets:
  main:
    resources:
      USBMassStorage: {{match: {{ID_PATH: none}}}}
    drivers:
      ExternalPowerDriver: {{cmd_on: 'true', cmd_off: 'true'}}
      ExternalConsoleDriver: {{cmd: '{python} {program}'}}
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
        off_time: {off_time}
        boot_timeout: {boot_timeout}
"""


@contextmanager
def program_board(folder: Path, text: str, *, off_time: float = 0, boot_timeout: float = 60) -> Generator[Any]:
    """A labgrid target whose console is the Python program `text`; times in seconds."""
    program, file = folder / "board.py", folder / "env.yaml"
    program.write_text(text)
    settings = {"python": sys.executable, "program": program, "off_time": off_time, "boot_timeout": boot_timeout}
    file.write_text(_ENVIRONMENT.format(**settings))
    environment_class: Any = Environment
    labgrid = environment_class(config_file=str(file))
    yield labgrid.get_target()
    labgrid.cleanup()
