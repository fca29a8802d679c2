"""A project with a strategy of its own measures blocks: on the virtual board, and at a desk with other instruments."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from joules_project import run_tests

from fsjoule import images
from fsjoule.host import process
from fsjoule.host.paths import project_dir
from fsjoule.store.reader import load_run
from fsjoule.virtual.board.power import FeedWriter
from fsjoule.virtual.lab import lab

CLIENT = Path(sys.executable).parent / "labgrid-client"
LIMIT_S = 60.0
VOLTS, AMPERES = 5.0, 0.3

STRATEGY = '''
import attr
from labgrid.factory import target_factory
from labgrid.strategy import Strategy

@target_factory.reg_driver
@attr.s(eq=False)
class PumpStrategy(Strategy):
    """Writes the pump's image, and boots it, once."""

    bindings = {
        "power": "PowerProtocol", "sdmux": "USBSDMuxDriver", "storage": "USBStorageDriver", "shell": "ShellDriver"
    }

    def boot(self):
        target = self.target
        for driver in (self.power, self.sdmux, self.storage):
            target.activate(driver)
        self.power.off()
        self.sdmux.set_mode("host")
        self.storage.write_image(target.env.config.get_image_path("card"))
        self.sdmux.set_mode("dut")
        self.power.on()
        target.activate(self.shell)

    def off(self):
        self.target.deactivate(self.shell)
        self.target.activate(self.power)
        self.power.off()
'''

ENVIRONMENT = """
imports: [fsjoule.lab, strategy.py]
images: {card: CARD}
targets:
  main:
    options:
      fsjoule: {board: pump, mark_device: /dev/ttymxc1, simulated: true, guest_time: GUEST_TIME}
    resources:
      RemotePlace: {name: virtual}
    drivers:
      NetworkPowerDriver: {}
      SerialDriver: {bindings: {port: default}}
      ShellDriver:
        login_prompt: 'fsjoule login: '
        username: root
        prompt: 'root@fsjoule:~# '
        login_timeout: 120
        await_login_timeout: 60
      USBSDMuxDriver: {}
      USBStorageDriver: {}
      MeterDriver: {bindings: {port: meter}}
      PumpStrategy: {}
"""

TESTS = """
import pytest
from fsjoule.units import J

@pytest.fixture(scope="session")
def pump(strategy):
    strategy.boot()
    yield strategy
    strategy.off()

def test_sync(target, pump, joules):
    shell = target.get_driver("CommandProtocol")
    with joules("sync") as used:
        shell.run_check("dd if=/dev/zero of=/root/a bs=64k count=16 conv=fsync")
    assert 0 < used.energy < 20 * J and used.uncertainty < 0.2 * used.energy

@pytest.mark.joules(budget="60 J")
def test_list(target, pump):
    target.get_driver("CommandProtocol").run_check("ls -R /usr/bin > /dev/null")

def test_command(pump, joules):
    used = joules.run("dd if=/dev/zero of=/root/a bs=64k count=16 conv=fsync; echo done; false", "sync")
    assert used.result.exit_code == 1 and "done" in used.result.stdout
    assert 0 < used.energy < 20 * J and used.uncertainty < 0.2 * used.energy
"""


@pytest.fixture
def pump(tmp_path: Path) -> Path:
    root = tmp_path / "pump"
    root.mkdir()
    for name, text in {"strategy.py": STRATEGY, "test_pump.py": TESTS}.items():
        (root / name).write_text(text)
    return root


def answered(root: Path, board: str) -> tuple[dict[str, str], subprocess.CompletedProcess[str]]:
    """Run a project's tests in a virtual lab with this kind of board, whose place is acquired."""
    handle = lab.up(board, owner_pid=os.getpid(), board=board)
    try:
        client, variables = [CLIENT, "-p", "virtual"], {**os.environ, **handle.environment}
        subprocess.run([*client, "acquire"], env=variables, timeout=LIMIT_S, check=True)
        found = run_tests(root, variables=handle.environment)
        subprocess.run([*client, "release"], env=variables, timeout=LIMIT_S, check=True)
    finally:
        lab.down(board)
    return found


def measured(root: Path, board: str, state: Path) -> list[float]:
    """The energies of the project's blocks on a virtual board of this kind, in mJ."""
    assert state
    card = images.build_card("6.1", "ext4").path
    text = ENVIRONMENT.replace("CARD", str(card)).replace("GUEST_TIME", str(board == "deterministic").lower())
    (root / "env.yaml").write_text(text)
    answers, done = answered(root, board)
    assert answers == dict.fromkeys(["test_sync", "test_list", "test_command"], "passed"), done.stdout + done.stderr
    newest = max((root / "results").iterdir(), key=lambda folder: folder.stat().st_mtime)
    loaded = load_run(newest)
    assert loaded.run.board is not None
    assert loaded.run.kernels[0].release.startswith("6.1")
    assert {each.series.filesystem for each in loaded.measurements} == {"ext4"}
    assert all(each.valid for each in loaded.measurements)
    return [each.energy.gross_mj.value for each in loaded.measurements if each.energy]


@pytest.mark.slow
def test_blocks_on_a_board_in_real_time(pump: Path, state: Path) -> None:
    assert len(measured(pump, "board", state)) == 3


@pytest.mark.slow
def test_blocks_in_guest_time_repeat_to_the_digit(pump: Path, state: Path) -> None:
    first = measured(pump, "deterministic", state)
    assert len(first) == 3
    assert measured(pump, "deterministic", state) == first


POWERED = """
import time
import pytest

@pytest.fixture
def power(target):
    power = target.get_driver("PowerProtocol")
    power.on()
    yield power
    power.off()

@pytest.mark.joules(budget="3 J", most=10)
def test_boots(power, joules):
    time.sleep(2)
    with joules("second"):
        time.sleep(1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "driver"),
    [
        ("ppk2", "Ppk2Driver: {bindings: {port: ppk2}, volts: 5.0}"),
        ("instruments", "InstrumentDriver: {bindings: {instrument: joulescope}}"),
    ],
    ids=["ppk2", "joulescope"],
)
def test_blocks_with_another_instrument(board: str, driver: str, state: Path, tmp_path: Path) -> None:
    assert state
    root = tmp_path / "powered"
    root.mkdir()
    (root / "test_powered.py").write_text(POWERED)
    place = "resources: {RemotePlace: {name: virtual}}"
    drivers = f"drivers:\n      NetworkPowerDriver: {{}}\n      {driver}\n"
    (root / "env.yaml").write_text(f"imports: [fsjoule.lab]\ntargets:\n  main:\n    {place}\n    {drivers}")
    answers, done = answered(root, board)
    # A busy computer loses an emulated PPK2's samples: what is invalid then is measured again.
    assert answers == {"test_boots": "passed"}, done.stdout


@pytest.fixture
def feed(tmp_path: Path) -> Generator[Path]:
    """What a desk's board draws, a thousand times a second."""
    ended, writer = threading.Event(), FeedWriter(tmp_path / "feed")

    def draw() -> None:
        while not ended.wait(0.001):
            writer.append(time.monotonic_ns(), VOLTS, AMPERES)

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    yield tmp_path / "feed"
    ended.set()
    thread.join()


DESK = """
import time

def test_steady(target, joules):
    with joules() as used:
        time.sleep(0.5)
    assert abs(used.power - 1.5) < 0.05, used.power
    assert abs(used.energy - 0.75) < 0.1 + 3 * used.uncertainty
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["powercap", "iio", "scpi"])
def test_blocks_at_a_desk(kind: str, feed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_METERS_DIR", str(project_dir() / "labgrid" / "virtual" / "meters"))
    file = tmp_path / kind
    words = ["--feed", str(feed), "--address-file", str(file)]
    program = process.start([sys.executable, "-m", "fsjoule.virtual.instruments.asked", kind, *words])
    try:
        deadline = time.monotonic() + LIMIT_S
        while not file.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        root = tmp_path / "desk"
        root.mkdir()
        (root / "test_desk.py").write_text(DESK)
        (root / "env.yaml").write_text(
            "imports: [fsjoule.lab]\n"
            f"targets: {{main: {{drivers: {{InstrumentDriver: {{address: '{file.read_text()}'}}}}}}}}\n"
        )
        answers, done = run_tests(root)
        assert answers == {"test_steady": "passed"}, done.stdout
        assert re.search(r"1\.5\d\d W|1\.49\d W", done.stdout)
    finally:
        process.stop(program)
