"""The script that reads a board's state, run over trees of three boards by this computer's shell."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from board_trees import IMX6, RASPBERRY_PI, X86, lay
from busybox import path_with

from fsjoule.bench.board_state import complaints, notes, states_between, unmet
from fsjoule.bench.onboard import state as onboard_state
from fsjoule.bench.onboard.state import StateReading
from fsjoule.model import BoardState, StatePolicy

Read = Callable[[Path], StateReading]


@pytest.fixture(params=["busybox", "GNU"])
def read(tmp_path: Path, request: pytest.FixtureRequest) -> Read:
    script = tmp_path / "state"
    script.write_text(onboard_state.TEXT)
    tools = tmp_path / "tools"
    path = path_with(tools, "grep", "cat", "timeout") if request.param == "busybox" else f"{tools}:{os.environ['PATH']}"
    tools.mkdir(exist_ok=True)
    (tools / "systemctl").write_text('#!/bin/sh\ncat "$TIMERS"\n')
    (tools / "systemctl").chmod(0o755)

    def run(root: Path) -> StateReading:
        environment = {**os.environ, "PATH": path, "TIMERS": str(root / "timers")}
        argv = ["sh", script, root]
        done = subprocess.run(argv, env=environment, check=True, capture_output=True, text=True, timeout=60)
        assert done.stderr == ""
        return onboard_state.reading(done.stdout.replace("\n", "\r\n"))

    return run


def test_each_board_tells_what_it_has(read: Read, tmp_path: Path) -> None:
    imx6, pi, x86 = (
        read(lay(tmp_path / str(number), tree)) for number, tree in enumerate((IMX6, RASPBERRY_PI, X86), start=1)
    )
    assert imx6.state == BoardState(
        governors={"policy0": "ondemand"},
        current_khz={"policy0": 396000},
        cap_khz={"policy0": 696000},
        max_khz={"policy0": 696000},
        hottest_c=41.25,
        hottest_zone="imx_thermal_zone",
        throttle_counts={"changes of cpufreq-cpu0 (cooling_device0)": 4},
        throttle_levels={"cpufreq-cpu0 (cooling_device0)": 0},
        load=0.31,
    )
    assert imx6.at_khz_s == {"policy0": {198000: 60.0, 396000: 12.0, 528000: 0.0, 696000: 3.4}}
    assert imx6.work == {("cron", "300"): 5, ("a job of cron", "300"): 12}
    assert (pi.state.firmware_flags, pi.state.throttle_levels) == (0x50000, {"undervoltage alarm": 0})
    assert (x86.state.hottest_c, x86.state.hottest_zone) == (63.0, "x86_pkg_temp")
    assert x86.state.throttle_levels == {"Processor (cooling_device0)": 0}
    assert x86.state.throttle_counts == {
        "cpu0 core_throttle_count": 12,
        "cpu1 core_throttle_count": 0,
        "cpu0 package_throttle_count": 20,
    }


def test_a_board_without_any_of_it_says_nothing(read: Read, tmp_path: Path) -> None:
    assert read(lay(tmp_path / "other", {"sys/power/state": "mem", "proc/loadavg": "much"})) == StateReading(
        BoardState()
    )
    assert states_between(StateReading(BoardState()), StateReading(BoardState())) is None
    quiet = read(lay(tmp_path / "board", X86))
    same = states_between(quiet, quiet)
    assert same is not None
    assert (complaints(same, StatePolicy()), notes(same, StatePolicy()), same.ran) == ([], [], ())


@pytest.mark.parametrize(
    ("tree", "changed", "told"),
    [
        (X86, {"cpu0__thermal_throttle__core_throttle_count": "15"}, "throttled: cpu0 core_throttle_count rose by 3"),
        (X86, {"cooling_device0__cur_state": "2"}, "throttled: Processor (cooling_device0) was at level 2"),
        (IMX6, {"stats__total_trans": "6"}, "throttled: changes of cpufreq-cpu0 (cooling_device0) rose by 2"),
        (IMX6, {"scaling_max_freq": "528000"}, "the highest frequency of policy0 fell from 696 MHz to 528 MHz"),
        (IMX6, {"scaling_governor": "powersave"}, "the governor of policy0 changed from ondemand to powersave"),
        (RASPBERRY_PI, {"get_throttled": "50005"}, "the firmware tells under-voltage, throttling"),
        (RASPBERRY_PI, {"get_throttled": "0xd0000"}, "the firmware tells the soft temperature limit"),
        (RASPBERRY_PI, {"in0_lcrit_alarm": "1"}, "undervoltage alarm was at level 1"),
        (
            RASPBERRY_PI,
            {"time_in_state": "600000 130\n1500000 90300"},
            "policy0 ran below 1500 MHz for 1.20 s although its governor is performance",
        ),
    ],
)
def test_a_throttled_measurement_is_invalid(
    read: Read, tmp_path: Path, tree: dict[str, str], changed: dict[str, str], told: str
) -> None:
    before, after = read(lay(tmp_path / "board", tree)), read(lay(tmp_path / "board", tree, **changed))
    states = states_between(before, after)
    assert states is not None
    [said] = complaints(states, StatePolicy())
    assert told in said


def _timers(**last: str) -> str:
    """`systemctl show`, whose properties come in its own order."""
    return "\n".join(f"LastTriggerUSec={time}\nId={name.replace('_', '-')}.timer\n" for name, time in last.items())


def test_what_ran_beside_it_is_told(read: Read, tmp_path: Path) -> None:
    """What may have used the disk makes it invalid, the rest is noted."""
    root = lay(tmp_path / "board", {**IMX6, "run/systemd/system/x": ""})
    (root / "timers").write_text(_timers(apt_daily="Fri 2026-11-27 06:00:00 UTC", fstrim="n/a", motd_news=""))
    before = read(root)
    assert before.work["apt-daily.timer", ""] == "Fri 2026-11-27 06:00:00 UTC"
    (root / "timers").write_text(_timers(apt_daily="Sat 2026-11-28 06:00:00 UTC", fstrim="n/a", motd_news="Sat 2026"))
    lay(root, {"proc/500/stat": IMX6["proc/300/stat"].replace("300 (cron)", "500 (dpkg)")})
    lay(root, {"proc/300/stat": IMX6["proc/300/stat"].replace(" 12 0 20 ", " 19 0 20 ")})
    states = states_between(before, read(root))
    assert states is not None
    assert complaints(states, StatePolicy()) == [
        "apt-daily.timer fired in or just before the window",
        "dpkg ran in or just before the window",
    ]
    assert notes(states, StatePolicy()) == [
        "motd-news.timer fired in or just before the window",
        "a job of cron ran in or just before the window",
    ]


def test_the_policys_governor_and_heat_are_judged(read: Read, tmp_path: Path) -> None:
    policy = StatePolicy("performance", cool_below_c=40.0, max_load=0.3)
    reading = read(lay(tmp_path / "board", IMX6))
    states = states_between(reading, reading)
    assert states is not None
    assert complaints(states, policy) == [
        "the governor of policy0 was ondemand, and the environment file wants performance"
    ]
    hot = ["the board has 41.2 °C (imx_thermal_zone), and has to be below 40 °C", "the board's load is 0.31, above 0.3"]
    assert unmet(reading.state, policy) == hot
    assert notes(states, policy) == [f"at the start {each}" for each in hot]
    assert unmet(reading.state, StatePolicy(cool_below_c=41.3, max_load=0.31)) == []


def test_a_governor_is_set_or_those_that_are_there_are_told(tmp_path: Path) -> None:
    def set_in(root: Path) -> tuple[int, str]:
        *shell, script = onboard_state.governor_argv("performance")
        done = subprocess.run(
            [*shell, script.replace("/sys/", f"{root}/sys/", 1)], check=False, capture_output=True, text=True
        )
        assert done.stderr == ""
        return done.returncode, done.stdout.strip()

    assert set_in(tmp_path) == (2, "")
    (tmp_path / "sys/devices/system/cpu/cpufreq").mkdir(parents=True)
    assert set_in(tmp_path) == (1, "")
    governor = lay(tmp_path, IMX6) / "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    assert set_in(tmp_path) == (0, "")
    assert governor.read_text() == "performance\n"
    governor.unlink()
    governor.mkdir()  # nothing can be written to it
    governor.with_name("scaling_available_governors").write_text("ondemand powersave\n")
    assert set_in(tmp_path) == (1, "ondemand powersave")
