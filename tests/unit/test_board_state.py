"""A bench whose board is hot, busy or has another governor: it waits, refuses, or says so. Over fakes of the ports."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_bench import PROFILE, answer, bench_of, entry

from fsjoule.bench.onboard import state as onboard_state
from fsjoule.bench.run import BoardBench
from fsjoule.errors import BoardError, ConfigError, ResultError
from fsjoule.host.paths import project_dir
from fsjoule.lab import read_environment
from fsjoule.model import MEASUREMENT_SCHEMA, StatePolicy
from fsjoule.ports import CommandResult
from fsjoule.report.facts import measurement_facts
from fsjoule.store.schemas import MEASUREMENT, decode, encode
from fsjoule.testing import FakeMeter, FakeShell

_STATE = """\
policy0/scaling_governor:{governor}
policy0/scaling_max_freq:{cap}
policy0/cpuinfo_max_freq:1500000
policy0/stats/time_in_state:600000 100
policy0/stats/time_in_state:1500000 {ticks}
thermal_zone0/type:cpu-thermal
thermal_zone0/temp:{temp}
0.31 0.12 0.04 1/52 321
"""
_GOOD = {"governor": "performance", "cap": 1500000, "ticks": 500, "temp": 40000}


def bench_with(policy: StatePolicy | None, *states: dict[str, object], guest_time: bool = False) -> BoardBench:
    """A bench whose board reads so, one state after the other, and the last one again and again."""
    left = [_STATE.format_map({**_GOOD, **each}) for each in states]

    def answered(argv: tuple[str, ...]) -> CommandResult:
        if argv == (onboard_state.SCRIPT,):
            return CommandResult(argv, 0, left.pop(0) if len(left) > 1 else left[0])
        if argv == onboard_state.governor_argv("schedutil"):
            return CommandResult(argv, 1, "ondemand powersave\nondemand\n")
        return answer(argv)

    bench = bench_of(shell=FakeShell(answered), meter=FakeMeter(None))
    return replace(bench, profile=replace(PROFILE, state_policy=policy, guest_time=guest_time))


def test_the_state_is_in_the_measurement_and_its_facts() -> None:
    bench = bench_with(None, {}, {"ticks": 620, "temp": 52300})
    measured = bench.measure(entry(bench, "write-16k"))
    assert measured.valid
    states = measured.board_state
    assert states is not None
    assert (states.before.hottest_c, states.after.hottest_c) == (40.0, 52.3)
    assert states.at_khz_s == {"policy0": {"600000": 0.0, "1500000": 1.2}}
    facts = dict(measurement_facts(measured))
    assert facts["governor"] == "policy0 performance, at most 1500 MHz"
    assert facts["time at frequencies, with the idle second"] == "policy0 1500 MHz 1.20 s"
    assert facts["temperature, before and after"] == "40.0 °C (cpu-thermal), 52.3 °C (cpu-thermal)"
    assert facts["load, before and after"] == "0.31, 0.31"
    assert "held back, before and after" not in facts
    content = encode(MEASUREMENT, measured, "it")
    assert decode(MEASUREMENT, content, MEASUREMENT_SCHEMA, Path("it")) == measured
    document = json.loads(content)
    document["board_state"]["at_khz_s"]["policy0"]["fast"] = 1.0
    with pytest.raises(ResultError, match="'fast' is not a frequency in kHz"):
        decode(MEASUREMENT, json.dumps(document).encode(), MEASUREMENT_SCHEMA, Path("it"))


def test_a_throttled_measurement_says_so() -> None:
    bench = bench_with(None, {}, {"cap": 1000000})
    measured = bench.measure(entry(bench, "write-16k"))
    assert measured.invalid_reasons == (
        "the board was throttled: the highest frequency of policy0 fell from 1500 MHz to 1000 MHz",
    )


def test_a_governor_that_changed_makes_it_invalid() -> None:
    bench = bench_with(StatePolicy("performance"), {}, {"governor": "ondemand"})
    [reason] = bench.measure(entry(bench, "write-16k")).invalid_reasons
    assert reason == "the governor of policy0 changed from performance to ondemand"


def test_a_board_without_the_governor_is_named_once() -> None:
    bench = bench_with(StatePolicy("schedutil"), {})
    for slug in ("write-16k", "read-16k"):
        with pytest.raises(BoardError, match="does not take the governor 'schedutil': it has ondemand, powersave"):
            bench.measure(entry(bench, slug))
    assert bench.boots == 1


def test_a_hot_board_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    bench = bench_with(StatePolicy(cool_below_c=60), {"temp": 72000}, {"temp": 65000}, {})
    measured = bench.measure(entry(bench, "write-16k"))
    assert (measured.valid, measured.notes[1:]) == (True, ())  # the first is the silent meter's
    assert bench.phases.spent_s["waiting"] == 10.0
    assert (
        "the board has 72.0 °C (cpu-thermal), and has to be below 60 °C: waiting for it, at most 300 s more"
        in caplog.text
    )
    assert "65.0 °C" not in caplog.text


def test_a_board_that_stays_hot_is_refused_or_noted() -> None:
    policy = StatePolicy(cool_below_c=60, wait_s=12.0)
    bench = bench_with(policy, {"temp": 72000})
    with pytest.raises(BoardError, match=r"72\.0 °C .*, and has to be below 60 °C: refused after 12 s"):
        bench.measure(entry(bench, "write-16k"))
    bench = bench_with(replace(policy, measure_anyway=True), {"temp": 72000})
    measured = bench.measure(entry(bench, "write-16k"))
    assert measured.valid
    assert "at the start the board has 72.0 °C (cpu-thermal), and has to be below 60 °C" in measured.notes


def test_a_board_that_does_not_tell_its_heat_is_refused() -> None:
    bench = bench_with(StatePolicy(cool_below_c=60), {"temp": "n/a"})
    with pytest.raises(
        BoardError, match="the board tells no temperature, and has to be below 60 °C: refused after 0 s"
    ):
        bench.measure(entry(bench, "write-16k"))


def test_in_guest_time_it_is_read_only_for_a_policy() -> None:
    """What is not asked for costs nothing there: figures stay as they were, to the digit."""
    for policy, asked in ((None, 0), (StatePolicy("performance"), 2)):
        bench = bench_with(policy, {}, guest_time=True)
        measured = bench.measure(entry(bench, "write-16k"))
        assert (measured.board_state is not None) == bool(asked)
        shell = bench.board.boot()
        assert isinstance(shell, FakeShell)
        assert shell.asked.count((onboard_state.SCRIPT,)) == asked


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{governor: performance, cool_below_c: 60, wait_s: 300, else: refuse, max_load: 0.5}", ""),
        (
            "{governer: performance}",
            "governer is no condition; there are governor, cool_below_c, max_load, wait_s",
        ),
        ("{governor: 'a; reboot'}", "governor is a governor of the kernel's: performance"),
        ("{cool_below_c: hot}", "cool_below_c is a temperature in °C, above 0 and up to 150: 60"),
        ("{cool_below_c: 0}", "cool_below_c is a temperature"),
        ("{max_load: yes}", "max_load is a load average, above 0: 0.5"),
        ("{max_load: .nan}", "max_load is a load average"),
        ("{cool_below_c: 60, wait_s: -1}", "wait_s is seconds, 0 or more: 300"),
        ("{cool_below_c: 60, else: ignore}", "else is what follows if waiting does not help: refuse, or measure"),
        ("performance", "it maps conditions to values"),
    ],
)
def test_the_policy_in_an_environment_file(tmp_path: Path, written: str, told: str) -> None:
    file = tmp_path / "env.yaml"
    text = (project_dir() / "env" / "virtual.yaml").read_text()
    file.write_text(text.replace("        memory_mib: 512\n", f"        board_state: {written}\n"))
    if not told:
        assert read_environment(file).profile.state_policy == StatePolicy("performance", 60.0, 0.5, 300.0)
        return
    with pytest.raises(ConfigError, match="BoardStrategy: board_state: ") as caught:
        read_environment(file)
    line = next(number for number, each in enumerate(file.read_text().splitlines(), 1) if "board_state" in each)
    assert (caught.value.file, caught.value.line) == (file, line)
    assert told in str(caught.value.hint)
