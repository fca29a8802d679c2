"""A project of its own whose tests measure blocks, with an emulated instrument in a virtual time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

ENVIRONMENT = "imports: [fsjoule.lab, meter.py]\ntargets: {main: {drivers: {EmulatedDriver: {}}}}\n"
METER = '''\
import attr
from labgrid.factory import target_factory
from fsjoule.host.clock import HostClock
from fsjoule.lab.instruments import InstrumentBase
from fsjoule.lab.energy_analyzer import ANALYZER
from fsjoule.meter.energy.stated import NEEDED
from fsjoule.meter.protocol.polled import PolledTrace
from fsjoule.errors import MeterError
from fsjoule.model import Mark, MarkSource, PlainInfo

INFO = PlainInfo(
    instrument=ANALYZER, firmware="", serial_number="emulated", rate_hz=1000, measures_voltage=False, simulated=True,
    settings=dict.fromkeys(NEEDED, 0.0) | {"volts_share": 0.01, "read_s": 1e-4},
)


class Emulated:
    """An instrument whose time passes when somebody sleeps or works. It is silent while `dead`."""

    def __init__(self):
        self.time_us, self.total_nj, self.trace, self.dead = 0, 0.0, None, False

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
        if self.dead:
            raise MeterError("the meter fell silent")
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


def write_project(root: Path, tests: str) -> None:
    """The files of a project with these tests."""
    for name, text in {"env.yaml": ENVIRONMENT, "meter.py": METER, "test_pump.py": tests}.items():
        (root / name).write_text(text)


def run_tests(
    root: Path,
    *options: str,
    environment: str = "env.yaml",
    variables: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> tuple[dict[str, str], subprocess.CompletedProcess[str]]:
    """JUnit's answers by the tests' names (passed, failure, error, skipped), and the whole pytest."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--junit-xml", "junit.xml"]
    done = subprocess.run(
        [*command, "--lg-env", environment, *options],
        cwd=root,
        env={**os.environ, **(variables or {}), "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    cases = ET.parse(root / "junit.xml").iter("testcase") if (root / "junit.xml").exists() else []
    return {str(case.get("name")): _answer(case) for case in cases}, done


def _answer(case: ET.Element) -> str:
    tags = {child.tag for child in case}
    return next((tag for tag in ("error", "failure", "skipped") if tag in tags), "passed")
