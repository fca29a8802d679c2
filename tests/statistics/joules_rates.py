#!/usr/bin/env python3
"""How often `@pytest.mark.joules(effect="5 %")` fails falsely, and how often it finds 5 % more energy.

A project of its own has `runs` tests without a change and as many with 5 % in the last night. Each night is a pytest of
its own; all figures come from an emulated meter in a virtual time, through the fixture, run folders and their history.
A boot's level varies by 0.5 %, a repetition by 0.5 %, and one repetition in fifty stalls (half a normal of 30 %).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

_ENVIRONMENT = "imports: [fsjoule.lab, meter.py]\ntargets: {main: {drivers: {EmulatedDriver: {}}}}\n"
_METER = '''
import attr
from labgrid.factory import target_factory
from fsjoule.host.clock import HostClock
from fsjoule.lab.instruments import InstrumentBase
from fsjoule.lab.energy_analyzer import ANALYZER
from fsjoule.meter.energy.stated import NEEDED
from fsjoule.meter.protocol.polled import PolledTrace
from fsjoule.model import Mark, MarkSource, PlainInfo

INFO = PlainInfo(
    instrument=ANALYZER, firmware="", serial_number="emulated", rate_hz=1000, measures_voltage=False, simulated=True,
    settings=dict.fromkeys(NEEDED, 0.0) | {"volts_share": 0.01, "read_s": 1e-4},
)

class Emulated:
    """An instrument whose time passes when somebody sleeps or works."""

    def __init__(self):
        self.time_us, self.total_nj, self.trace = 0, 0.0, None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def info(self):
        return INFO

    def spend(self, seconds, watts):
        self.time_us += round(seconds * 1e6)
        self.total_nj += seconds * watts * 1e9
        if self.trace is not None:
            self.trace.read(self.time_us, self.total_nj)

    def arm(self):
        self.trace = PolledTrace(INFO, gaps=False)
        self.trace.read(self.time_us, self.total_nj)

    def mark_now(self, text):
        self.trace.mark(Mark(self.time_us, text, MarkSource.HOST))
        return lambda: None

    def take(self, *, whole=False):
        return self.trace.take()

    def disarm(self):
        return self.trace.take()

EMULATED = Emulated()
HostClock.sleep = lambda self, seconds: EMULATED.spend(seconds, 1.0)
HostClock.now_s = lambda self: EMULATED.time_us * 1e-6

@target_factory.reg_driver
@attr.s(eq=False)
class EmulatedDriver(InstrumentBase):
    bindings = {}
    where = ("EmulatedDriver", "")

    def opened(self):
        return EMULATED
'''
_TEST = """
import os, random
import pytest

RUNS, NIGHT, LAST = (int(os.environ["RATES_" + name]) for name in ("RUNS", "NIGHT", "LAST"))
SEED = os.environ["RATES_SEED"]

@pytest.mark.joules(effect="5 %", most=5)
@pytest.mark.parametrize("planted", [False, True], ids=["same", "more"])
@pytest.mark.parametrize("number", range(RUNS))
def test_work(target, joules, number, planted):
    from meter import EMULATED
    boot = random.Random(f"{SEED} {number} {planted} {NIGHT}")
    level = boot.gauss(0, 0.005) + (0.05 if planted and NIGHT == LAST else 0)
    noise = random.Random(f"{SEED} {number} {planted} {NIGHT} {EMULATED.time_us}")
    stall = abs(noise.gauss(0, 0.3)) if noise.random() < 0.02 else 0
    with joules("work"):
        EMULATED.spend(1.0, 1.5 * (1 + level + noise.gauss(0, 0.005) + stall))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--nights", type=int, default=10, help="nights of history")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in {"env.yaml": _ENVIRONMENT, "meter.py": _METER, "test_rates.py": _TEST}.items():
            (root / name).write_text(text)
        answers = [_night(root, asked, night) for night in range(asked.nights + 1)][-1]
    counts = Counter(answers)
    found = {
        "failed_falsely": counts["same", "failure"],
        "same_not_decided": counts["same", "skipped"],
        "found": counts["more", "failure"],
        "missed": counts["more", "passed"],
        "more_not_decided": counts["more", "skipped"],
    }
    if asked.json:
        print(json.dumps({"runs": asked.runs, "nights": asked.nights, **found}, indent=2))
        return
    print(f"of {asked.runs} tests without a change and as many with 5 % more, after {asked.nights} nights:")
    for name, count in found.items():
        print(f"  {name.replace('_', ' ')}: {count}")


def _night(root: Path, asked: argparse.Namespace, night: int) -> list[tuple[str, str]]:
    """One pytest: the kind of each of its tests, and JUnit's answer."""
    rates = {"RUNS": asked.runs, "NIGHT": night, "LAST": asked.nights, "SEED": asked.seed}
    told = {f"RATES_{name}": str(value) for name, value in rates.items()} | {"PYTHONPATH": "."}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junit-xml", "junit.xml"]
    done = subprocess.run(
        [*command, "--lg-env", "env.yaml"],
        cwd=root,
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        check=False,
    )
    cases = list(ET.parse(root / "junit.xml").iter("testcase"))
    answers = [(case.get("name", "").rpartition("-")[2][:4], _answer(case)) for case in cases]
    if len(answers) != 2 * asked.runs or {answer for _, answer in answers} & {"error"}:
        sys.exit(f"night {night}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return answers


def _answer(case: ET.Element) -> str:
    tags = {child.tag for child in case}
    return next((tag for tag in ("error", "failure", "skipped") if tag in tags), "passed")


if __name__ == "__main__":
    main()
