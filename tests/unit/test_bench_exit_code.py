"""The exit code of a bench tells a fault of the lab, which is worth another try, from what is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TESTS = """\
import pytest
from fsjoule.errors import BoardError, ConfigError, MeasurementInvalid

@pytest.fixture
def measurement(request):
    raise BoardError("the board hung")

@pytest.fixture
def dead(request):
    request.session.shouldstop = "stopped: the board hung"
    raise BoardError("the board hung")

def test_measured(): pass
def test_lab(measurement): pass
def test_invalid(): raise MeasurementInvalid("write", ["no marks"])
def test_wrong(): assert 1 == 2
def test_config(): raise ConfigError("no such place")
def test_ctrl_c(): raise KeyboardInterrupt
def test_dead(dead): pass
def test_after(): pass
"""


# What runs, as pytest's -k has it, and the exit code.
CASES = {
    "measured": 0,
    "measured or lab": 4,
    "lab or invalid": 4,
    "invalid": 1,
    "lab or wrong": 1,
    "lab or config": 1,
    "lab or ctrl_c": 2,
    "dead or after": 4,
    "invalid or dead or after": 4,
    "wrong or dead or after": 2,
}
# All in one process: starting pytest takes seconds.
MAIN = """\
import json, pytest, sys
from fsjoule.pytest_plugin import ExitCode
folder, *cases = sys.argv[1:]
options = ["-p", "no:cacheprovider", "-q"]
codes = {case: int(pytest.main([*options, "-k", case, folder], plugins=[ExitCode()])) for case in cases}
print(json.dumps(codes))
"""


def test_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "test_bench.py").write_text(TESTS)
    argv = [sys.executable, "-c", MAIN, str(tmp_path), *CASES]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == CASES, done.stdout
