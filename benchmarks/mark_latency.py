"""How late marks are on a GPIO and on a UART of one board, by turns within one boot.

Boots the emulated Raspberry Pi 3 whose GPIO and second UART are both wired to the meter. Each round is a square load
(`fsjoule meter selftest`) per line, so that both meet the same load of this computer.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import redirect_stdout
from typing import Any, Final

import numpy as np
from common import show

from fsjoule import images, lab
from fsjoule.bench.square_load import Latency, square_load
from fsjoule.host.clock import HostClock
from fsjoule.host.messages import lines_to, silent
from fsjoule.host.paths import project_dir
from fsjoule.lab.meterdriver import MarksOfBoard
from fsjoule.model import MarkLine
from fsjoule.runs.meter import environment_target
from fsjoule.suites import SCRATCH_ROOT

_ENVIRONMENT: Final = "virtual-rpi3-gpio.yaml"
_UART: Final = "/dev/ttyAMA0"
_KERNEL: Final = "6.1"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="square loads per line, of 20 pulses each")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    arguments = parser.parse_args()
    with environment_target(project_dir() / "env" / _ENVIRONMENT, kernel=_KERNEL) as (target, profile):
        card = images.build_card(_KERNEL, SCRATCH_ROOT, recipe=profile.recipe)
        wanted = (card.facts.kernel_choice, SCRATCH_ROOT)
        board = lab.LabgridBoard(target, {wanted: card})
        lines = {"gpio": profile.mark_line, "uart": MarkLine(_UART)}
        found: dict[str, list[Latency]] = {f"{name}_{edge}": [] for name in lines for edge in ("start", "stop")}
        with redirect_stdout(sys.stderr):  # labgrid prints the output of its tools
            board.prepare(*wanted)
            shell = board.boot()
            try:
                for number in range(1, arguments.rounds + 1):
                    for name, line in lines.items():
                        meter = MarksOfBoard(lab.meter(target), line)
                        with silent():
                            seen, _ = square_load(shell, meter, HostClock(), line)
                        found[f"{name}_start"].append(seen.start)
                        found[f"{name}_stop"].append(seen.stop)
                    _say(f"round {number}, load {os.getloadavg()[0]:.0f}")
            finally:
                board.off()
    result: dict[str, Any] = {"pulses_per_line": sum(each.steps for each in found["gpio_start"])}
    for name, rounds in found.items():
        medians = [each.median_s * 1e3 for each in rounds]
        result[f"{name}_median_ms"] = float(np.median(medians))
        result[f"{name}_medians_of_rounds_ms"] = [round(each, 2) for each in medians]
        result[f"{name}_earliest_ms"] = min(each.least_s for each in rounds) * 1e3
        result[f"{name}_latest_ms"] = max(each.largest_s for each in rounds) * 1e3
    show("marks against the steps of power", result, as_json=arguments.json)
    return 0


if __name__ == "__main__":
    with lines_to(_say):
        sys.exit(main())
