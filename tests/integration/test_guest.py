"""fsjoule is installed beside somebody else's tests: they run as they would without it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

# The product has drivers, a strategy, fixtures and options of its own, with the names that fsjoule uses.
PRODUCT: Final = {
    "product.py": """\
import enum
import attr
from labgrid import target_factory
from labgrid.driver import Driver
from labgrid.strategy import Strategy

@target_factory.reg_driver
@attr.s(eq=False)
class MeterDriver(Driver):
    pass

class Status(enum.Enum):
    off = 0
    on = 1

@target_factory.reg_driver
@attr.s(eq=False)
class BoardStrategy(Strategy):
    bindings = {"meter": "MeterDriver"}
    status = attr.ib(default=Status.off)

    def transition(self, status, *, step=None):
        self.status = Status[status]
""",
    "env.yaml": "imports: [product.py]\ntargets: {main: {drivers: {MeterDriver: {}, BoardStrategy: {}}}}\n",
    # pytest-profiling's options, and what a product of kernels may have.
    "profiling.py": """\
def pytest_addoption(parser):
    group = parser.getgroup("Profiling")
    group.addoption("--profile", action="store_true", help="generate profiling information")
    group.addoption("--results", action="store_true", dest="results", help="keep them")

def pytest_report_header(config):
    return f"profile: {config.getvalue('profile')}"
""",
    "conftest.py": """\
import signal
import pytest

def pytest_addoption(parser):
    parser.addoption("--kernel", default="none")

@pytest.fixture(params=[1, 2])
def planned(request):
    return request.param

@pytest.fixture
def measurement(planned, request):
    return planned, request.config.option.kernel

def pytest_sessionfinish():
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
""",
    "test_product.py": """\
import sys
import pytest
from product import BoardStrategy

def test_strategy(strategy):
    strategy.transition("on")
    assert type(strategy) is BoardStrategy
    assert not [name for name in sys.modules if name == "fsjoule.lab"]

def test_measurement(measurement):
    assert measurement[1] == "v6.1"

@pytest.mark.parametrize("bench", [3])
@pytest.mark.parametrize("planned", [5])
def test_plan(planned, bench):
    assert (planned, bench) == (5, 3)

def test_fails(target):
    assert target.name == "other"
""",
    "test_leaving.py": "import pytest\ndef test_leaves(env): pytest.exit('enough', returncode=9)\n",
}
ENVIRONMENT: Final = ("--lg-env", "env.yaml", "--kernel", "v6.1")
# Words of the command line, and pytest's exit code.
RUNS: Final[list[tuple[tuple[str, ...], int]]] = [
    ((*ENVIRONMENT, "--profile", "--results", "test_product.py"), 1),
    ((*ENVIRONMENT, "-vv", "-k", "strategy"), 0),
    ((*ENVIRONMENT, "test_leaving.py"), 9),
    ((*ENVIRONMENT, "-k", "nothing"), 5),
    (("--no-such-option", *ENVIRONMENT), 4),
    (("--lg-env", "absent.yaml"), 3),
]
# All in children of one process, which has loaded pytest and labgrid: that takes seconds.
MAIN: Final = """\
import json, os, sys
import labgrid.pytestplugin
import pytest

told = []
for argv in json.loads(sys.argv[1]):
    reader, writer = os.pipe()
    if not os.fork():
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        os.close(writer)
        os.close(reader)
        code = int(pytest.main(argv))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    os.close(writer)
    with open(reader) as output:
        text = output.read()
    told.append((os.waitstatus_to_exitcode(os.wait()[1]), text))
print(json.dumps(told))
"""


def test_output_and_exit_codes_are_those_without_it(tmp_path: Path) -> None:
    for name, text in PRODUCT.items():
        (tmp_path / name).write_text(text)
    plugins = ("-p", "no:cacheprovider", "-p", "profiling", "-p", "labgrid.pytestplugin", "-p")
    runs = [[*plugins, guest, *words] for words, _ in RUNS for guest in ("no:fsjoule", "fsjoule.pytest_plugin")]
    runs.append([*plugins, "fsjoule.pytest_plugin", "--help"])
    done = subprocess.run(
        [sys.executable, "-c", MAIN, json.dumps(runs)],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    told = [(code, re.sub(r"in \d+\.\d+s|0x[0-9a-f]+", "", text)) for code, text in json.loads(done.stdout)]
    helped, help_text = told.pop()
    assert (helped, "--fsjoule-kernel=KERNEL" in help_text, "--profile " in help_text) == (0, True, True), help_text
    alone, beside = told[::2], told[1::2]
    assert [code for code, _ in alone] == [code for _, code in RUNS], alone
    assert beside == alone
