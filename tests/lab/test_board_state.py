"""A board whose state is laid over its sysfs: throttled, hot, with another governor, with a program that disturbs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from board_trees import IMX6
from fake_bench import bench_of
from labgrid_process import forget_coordinator

from fsjoule import images
from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.run import BoardBench
from fsjoule.errors import BoardError
from fsjoule.host.paths import project_dir
from fsjoule.model import Measurement, StatePolicy
from fsjoule.ports import Shell
from fsjoule.runs.held_lab import equipment
from fsjoule.runs.meter import environment_target
from fsjoule.suites import SCRATCH_ROOT
from fsjoule.testing import FakeMeter, FakeShell

pytestmark = pytest.mark.slow

_TREE = "/tmp/tree"
_CPUFREQ = "/sys/devices/system/cpu/cpufreq"
_THERMAL = "/sys/class/thermal"
_POLICY = StatePolicy("performance", cool_below_c=60.0, wait_s=10.0)


@dataclass
class _LaidBoard:
    """A board that has cpufreq and thermal zones at each boot."""

    board: Any
    shell: Shell | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.board, name)

    def boot(self, seed: int = 1) -> Shell:
        shell: Shell = self.board.boot(seed)
        lines = [f"mkdir -p {_TREE}", f"mount -t tmpfs tree {_TREE}", f"cp $(command -v sh) {_TREE}/fstrim"]
        for path, text in IMX6.items():
            if path.startswith("sys/"):
                lines += [f"mkdir -p $(dirname {_TREE}/{path})", f"printf '{text}\\n' > {_TREE}/{path}"]
        lines += [f"mount --bind {_TREE}{folder} {folder}" for folder in (_CPUFREQ, _THERMAL)]
        shell.put("/tmp/lay", "\n".join(lines).encode())
        done = shell.run(("sh", "-e", "/tmp/lay"))
        assert done.exit_code == 0, done.stdout
        self.shell = shell
        return shell

    def later(self, command: str, *, when: str = f"[ -e {onboard.BEFORE} ]") -> None:
        """Do something on the board when the window begins, or at another moment."""
        assert self.shell is not None
        waiting = f"rm -f {onboard.BEFORE}; until {when}; do sleep 0.01; done; {command}"
        self.shell.run(("sh", "-c", f"({waiting}) > /dev/null 2>&1 < /dev/null &"))


@pytest.fixture(scope="module")
def bench(module_state: object) -> Any:
    del module_state
    card = images.build_card("6.1", SCRATCH_ROOT)
    with environment_target(project_dir() / "env" / "deterministic.yaml") as (target, profile):
        board, _, _ = equipment(target, {("6.1", SCRATCH_ROOT): card}, ("", "deterministic"))
        laid = _LaidBoard(board)
        fake = bench_of(shell=FakeShell(lambda _: pytest.fail("the fake was asked")), meter=FakeMeter(None))
        bench = replace(fake, board=laid, profile=replace(profile, state_policy=_POLICY))
        yield bench, laid
        board.off()
    forget_coordinator()


def measured(bench: BoardBench, number: int) -> Measurement:
    entry = next(each for each in bench.plan.entries if each.workload.slug == "mount")
    return bench.measure(replace(entry, number=number))


def test_each_state_is_told(bench: tuple[BoardBench, _LaidBoard], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    run, board = bench
    quiet = measured(run, 101)
    assert quiet.valid, quiet.invalid_reasons
    assert quiet.board_state is not None
    assert quiet.board_state.after.governors == {"policy0": "performance"}
    assert quiet.board_state.before.hottest_c == 41.25

    told: dict[str, tuple[str, ...]] = {}
    cap, cooling, governor = (
        f"{_CPUFREQ}/policy0/scaling_max_freq",
        f"{_THERMAL}/cooling_device0/cur_state",
        f"{_CPUFREQ}/policy0/scaling_governor",
    )
    for number, (name, change, undo) in enumerate(
        (
            ("throttled", f"echo 528000 > {cap}", f"echo 696000 > {cap}"),
            ("cooled", f"echo 1 > {cooling}", f"echo 0 > {cooling}"),
            ("governor", f"echo powersave > {governor}", f"echo performance > {governor}"),
            ("timer", f"{_TREE}/fstrim -c 'sleep 600; true'", "kill $(pidof fstrim)"),
        ),
        start=102,
    ):
        board.later(change)
        told[name] = measured(run, number).invalid_reasons
        assert board.shell is not None
        board.shell.run(("sh", "-c", undo))
    assert told == {
        "throttled": ("the board was throttled: the highest frequency of policy0 fell from 696 MHz to 528 MHz",),
        "cooled": ("the board was throttled: cpufreq-cpu0 (cooling_device0) was at level 1",),
        "governor": ("the governor of policy0 changed from performance to powersave",),
        "timer": ("fstrim ran in or just before the window",),
    }

    board.later("true", when="true")
    assert board.shell is not None
    board.shell.run(("sh", "-c", f"echo 72000 > {_THERMAL}/thermal_zone0/temp"))
    board.later(f"sleep 6; echo 41000 > {_THERMAL}/thermal_zone0/temp", when="true")
    waited = measured(run, 106)
    assert waited.valid, waited.invalid_reasons
    assert run.phases.spent_s.keys() >= {"waiting"}
    assert (
        "the board has 72.0 °C (imx_thermal_zone), and has to be below 60 °C: waiting for it, at most 10 s more"
        in caplog.text
    )
    board.shell.run(("sh", "-c", f"echo 72000 > {_THERMAL}/thermal_zone0/temp"))
    with pytest.raises(BoardError, match="has to be below 60 °C: refused after 10 s"):
        measured(run, 107)
