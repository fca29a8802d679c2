"""The checks of a place, over fakes: what is seen, what is said of it, and what is not tried because of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_bench import FACTS, IMAGE, PROFILE
from traces import INFO, trace_of

from fsjoule.bench.health.checkup import Checkup, MeterTools
from fsjoule.bench.health.result import Check, Health, exit_code, overall
from fsjoule.bench.square_load import BUSY_S, IDLE_S
from fsjoule.errors import BoardError, LabError, PlaceLostError
from fsjoule.meter.tools.clock_fit import Drift
from fsjoule.model import Mark, Trace
from fsjoule.ports import CommandResult
from fsjoule.runs.doctor import open_doors, switch_off
from fsjoule.testing import FakeBoard, FakeClock, FakeMeter, FakeShell

_OFF, _ON, _BUSY = 0, 2200, 2640  # counts of the shunt: 0 W, 1.10 W, 1.32 W at 5 V
_SYS = "/sys/class/block/mmcblk1"
_EMMC = {
    "size": "2097152",
    "device/type": "MMC",
    "device/name": "DG4008",
    "device/date": "05/2021",
    "device/life_time": "0x02 0x01",
    "device/pre_eol_info": "0x01",
}


class _Place:
    """A place on which all is well, until a test changes something."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.card = dict(_EMMC)
        self.kernel_log = ""
        self.clock_gain = 0.0
        self.late_ms = 0.0
        self.marks: Callable[[Mark], bool] = lambda _mark: True
        self.levels: tuple[int, int] = (_OFF, _ON)
        self.lost: Sequence[int] = ()
        self.faults: tuple[str, ...] = ()
        self.notices: list[str] = []
        self.drift: Drift | None = Drift(10.0, 5.0, 8.0, 16)
        self.booted_s = 12.0
        self.meter: FakeMeter | None = FakeMeter(now=self.trace)
        self.board = FakeBoard(FakeShell(self._answer), FACTS, IMAGE, reached="the mux went to the exporter and back")
        self.profile = PROFILE
        self._measured = False

    def checks(self, *, write: Callable[[], None] | None = None) -> dict[str, Check]:
        self._measured = False
        tools = None
        if self.meter is not None:
            tools = MeterTools(self.meter, lambda: self.notices, self._watch)
        checkup = Checkup(self.board, self.board, tools, self.clock, self.profile, 1024 << 20, write)
        return {check.name: check for check in checkup.checks()}

    def _watch(self, seconds: float) -> Drift | None:
        self.clock.sleep(seconds)
        return self.drift

    def trace(self) -> Trace:
        return replace(self._made(), faults=self.faults)

    def _made(self) -> Trace:
        if self._measured:
            return self._square()
        # In guest time the meter's clock stands still while the board is off.
        samples = 0 if self.profile.guest_time and not self.board.powered else 2000
        return trace_of(np.full(samples, self.levels[self.board.powered]), lost=self.lost)

    def _square(self) -> Trace:
        busy, period = round(BUSY_S * 1000), round((BUSY_S + IDLE_S) * 1000)
        shunt = np.full(1000 + 6 * period, _ON)
        marks: list[Mark] = []
        for number in range(6):
            up = 600 + number * period
            shunt[up : up + busy] = _BUSY
            for at, letter in ((up, "S"), (up + busy, "E")):
                marks.append(Mark(round((1000 + at + self.late_ms) * 1000), f"{letter}{number + 1}"))
        return trace_of(shunt, marks=[mark for mark in marks if self.marks(mark)])

    def _answer(self, argv: tuple[str, ...]) -> CommandResult:
        self.clock.sleep(0.01)
        said = ""
        if argv[0] == "grep":
            said = "".join(f"{_SYS}/{name}:{value}\n" for name, value in self.card.items())
        elif argv[0] == "dmesg":
            said = self.kernel_log
        elif argv[:2] == ("cat", "/proc/uptime"):
            said = f"{self.clock.time_s * (1 + self.clock_gain):.2f} 0.0\n"
        elif argv[0] == "sh" and "/proc/uptime" in argv[2]:
            said = "10.0 11.0\n"  # of a square load's loop
        elif argv[0] == "sh":
            self._measured = True
        return CommandResult(argv, 0, said)


@pytest.fixture
def place() -> _Place:
    return _Place()


def _health(checks: dict[str, Check]) -> dict[str, str]:
    return {name: str(check.health) for name, check in checks.items()}


@pytest.mark.parametrize(
    ("address", "is_open"),
    [("127.0.0.1", False), ("0.0.0.0", True), ("::1", False), ("::", True), ("::ffff:127.0.0.1", False)],
)
def test_a_coordinator_that_other_computers_reach_is_named(address: str, is_open: bool) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        listener.listen()
        port = listener.getsockname()[1]
        told = list(open_doors(f"localhost:{port}"))
    assert [each for each in told if "coordinator" in each] == (
        [f"the coordinator at localhost:{port} listens beyond its computer, and asks nobody for a password"]
        if is_open
        else []
    )
    assert any("10.0.0.7" in each for each in open_doors("10.0.0.7:20408"))


def test_a_lava_worker_that_is_root_is_named(tmp_path: Path) -> None:
    (tmp_path / "17").mkdir()
    (tmp_path / "17" / "comm").write_text("lava-worker\n")
    told = list(open_doors("127.0.0.1:20408", tmp_path))
    assert bool(told) is (os.geteuid() == 0)
    assert all("lava-worker (process 17) is root" in each for each in told)


def test_a_good_place_is_ok_in_every_part(place: _Place) -> None:
    checks = place.checks()
    assert list(checks) == ["power", "meter", "flasher", "boot", "card", "marks", "clock"]
    assert set(_health(checks).values()) == {"ok"}
    assert overall(checks.values()) is Health.OK
    assert "off 0.000 W, on 1.100 W, off 0.000 W; the outlet says off, on, off" in checks["power"].seen
    assert "1000 samples/s, 0 of 2000 lost; board off +0.00 mW" in checks["meter"].seen
    assert checks["flasher"].seen.endswith("; nothing was written")
    assert "1024 MiB, DG4008 MMC; date 05/2021; up to 20 % of its life is used, reserved blocks normal" in (
        checks["card"].seen
    )
    assert "start marks +0.0 ms" in checks["marks"].seen
    assert "board +0.00% ± " in checks["clock"].seen
    assert "meter +10 ± 10 ppm" in checks["clock"].seen


def test_what_is_ok_needs_no_advice_and_all_else_has_some(place: _Place) -> None:
    place.board.faults = [BoardError("fake did not boot", console_tail=["panic"])]
    place.notices = ["its watchdog has reset it"]
    for check in place.checks().values():
        assert bool(check.advice) == (check.health in {Health.DOUBTFUL, Health.BROKEN})


@pytest.mark.parametrize(
    ("levels", "outlet", "health", "said"),
    [
        ((_OFF, _OFF), None, "broken", "no current that comes and goes"),
        ((_ON, _ON), None, "broken", "no current that comes and goes"),
        ((600, _ON), None, "doubtful", "27% of the power stays"),
        ((_OFF, -_ON), None, "broken", "the leads of the meter are swapped"),
        ((_OFF, _ON), False, "broken", "does not follow"),
        ((_OFF, _ON), True, "broken", "does not follow"),
    ],
)
def test_power_follows_the_outlet_or_it_is_said(
    place: _Place, levels: tuple[int, int], outlet: bool | None, health: str, said: str
) -> None:
    place.levels = levels
    if outlet is not None:
        place.board.outlet = lambda: outlet
    check = place.checks()["power"]
    assert (str(check.health), said in check.seen) == (health, True)


def test_an_outlet_that_does_not_tell_is_believed_to_the_meter(place: _Place) -> None:
    place.board.outlet = lambda: None
    check = place.checks()["power"]
    assert check.health is Health.OK
    assert "the outlet does not tell" in check.seen


def test_without_a_meter_the_outlet_tells_and_the_rest_is_checked(place: _Place) -> None:
    place.meter = None
    checks = place.checks()
    assert "no meter saw it" in checks["power"].seen
    assert {name for name, check in checks.items() if check.health is Health.NOT_HERE} == {"meter", "marks"}
    assert overall(checks.values()) is Health.OK
    place.board.outlet = lambda: None
    assert place.checks()["power"].health is Health.NOT_HERE


def test_a_silent_meter_is_the_first_cause_and_not_the_power(place: _Place) -> None:
    place.meter = FakeMeter()
    checks = place.checks()
    assert _health(checks) == {
        "power": "ok",
        "meter": "broken",
        "flasher": "ok",
        "boot": "ok",
        "card": "ok",
        "marks": "not tried",
        "clock": "ok",
    }
    assert "silent for 2 s" in checks["meter"].seen
    assert checks["marks"].because == "meter"
    assert "ppm" not in checks["clock"].seen


def test_a_meter_is_doubted_for_what_it_says_and_for_what_it_loses(place: _Place) -> None:
    place.notices = ["not calibrated yet: zero"]
    place.lost = (40,)
    check = place.checks()["meter"]
    assert check.health is Health.DOUBTFUL
    assert "not calibrated yet: zero; 1.0% of its samples are lost" in check.seen
    place.lost = range(30, 60)
    assert place.checks()["meter"].health is Health.BROKEN


def test_a_meter_that_reads_power_of_a_board_that_is_off_is_doubted(place: _Place) -> None:
    place.levels = (30, _ON)  # 15 mW; an uncalibrated offset is at most 12.5 mW
    assert "more than its offset may be" in place.checks()["meter"].seen


def test_noise_of_a_few_counts_is_the_instruments_and_more_is_doubted(place: _Place) -> None:
    random = np.random.default_rng(1)
    for sd, health in ((1.0, Health.OK), (20.0, Health.DOUBTFUL)):
        noisy = trace_of(np.round(random.normal(0, sd, 2000)))
        quiet = FakeMeter(now=lambda noisy=noisy: trace_of(np.full(2000, _ON)) if place.board.powered else noisy)
        place.meter = quiet
        assert place.checks()["meter"].health is health


def test_an_outlet_that_fails_leaves_nothing_to_try_but_the_meter(
    place: _Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise LabError("switching the board off failed: connection refused")

    monkeypatch.setattr(place.board, "off", fails)
    checks = place.checks()
    assert _health(checks) == {
        "power": "broken",
        "meter": "ok",
        "flasher": "not tried",
        "boot": "not tried",
        "card": "not tried",
        "marks": "not tried",
        "clock": "not tried",
    }
    assert {check.because for check in checks.values()} == {"", "power"}


def test_a_board_that_does_not_boot_shows_its_console_and_is_the_cause_of_the_rest(place: _Place) -> None:
    place.board.faults = [BoardError("fake did not boot: a panic", console_tail=["Kernel panic"], hint="another card")]
    checks = place.checks()
    assert checks["boot"] == Check(
        "boot", Health.BROKEN, "fake did not boot: a panic", "another card", ("console| Kernel panic",)
    )
    assert [checks[name].because for name in ("card", "marks", "clock")] == ["boot"] * 3
    assert exit_code(overall(checks.values())) == 4


def test_a_flasher_that_fails_does_not_keep_the_board_from_its_boot(place: _Place) -> None:
    place.board.reached = LabError("the mux is silent", hint="its cable")
    checks = place.checks()
    assert (checks["flasher"].health, checks["flasher"].advice) == (Health.BROKEN, "its cable")
    assert checks["boot"].health is Health.OK
    place.board.reached = ""
    assert place.checks()["flasher"].health is Health.NOT_HERE


def test_a_card_is_written_only_if_that_is_asked_for(place: _Place) -> None:
    written: list[float] = []

    def write() -> None:
        written.append(place.clock.now_s())
        place.clock.sleep(20.0)

    assert "the card was written in 20 s" in place.checks(write=write)["flasher"].seen
    assert len(written) == 1


@pytest.mark.parametrize(
    ("registers", "health", "said"),
    [
        ({}, "broken", "no storage device mmcblk1"),
        ({"size": "1048576"}, "broken", "smaller than the board's card images (1024 MiB)"),
        ({"size": "2097152", "device/type": "SD"}, "ok", "it tells no wear"),
        ({"size": "2097152", "device/life_time": "0x00 0x00"}, "ok", "it tells no wear"),
        ({"size": "2097152", "device/life_time": "0x01 0x09"}, "doubtful", "it is worn; "),
        ({"size": "2097152", "device/life_time": "0x0b 0x01"}, "broken", "its life is used up"),
        ({"size": "2097152", "device/pre_eol_info": "0x02"}, "doubtful", "reserved blocks 80 % used"),
        ({"size": "2097152", "device/pre_eol_info": "0x03"}, "broken", "reserved blocks urgent"),
    ],
)
def test_a_card_is_judged_by_its_size_and_registers(
    place: _Place, registers: dict[str, str], health: str, said: str
) -> None:
    place.card = registers
    check = place.checks()["card"]
    assert (str(check.health), said in check.seen) == (health, True)


def test_the_kernels_complaints_about_a_card_are_told(place: _Place) -> None:
    place.kernel_log = "[ 1.0] mmc0: new card\n[ 9.1] mmcblk1: error -110 transferring data, sector 8\n"
    check = place.checks()["card"]
    assert check.health is Health.DOUBTFUL
    assert "mmcblk1: error -110" in check.seen


def test_marks_that_are_late_are_doubted_and_marks_that_are_gone_are_broken(place: _Place) -> None:
    place.profile = replace(PROFILE, window_excess_s=0.01)
    place.late_ms = 30.0
    late = place.checks()["marks"]
    assert (late.health, "a mark was 30 ms off" in late.seen) == (Health.DOUBTFUL, True)
    place.late_ms = 0.0
    place.marks = lambda mark: mark.text != "E3"
    gone = place.checks()["marks"]
    assert (gone.health, gone.seen) == (Health.BROKEN, "11 of 12 marks arrived at the meter")
    assert "the wire from mark_device" in gone.advice


def test_a_mark_line_that_damages_is_doubted_and_a_mark_that_is_gone_is_explained(place: _Place) -> None:
    place.faults = ("1 mark damaged on the mark line: '~E3~44'",)
    checks = place.checks()
    damaged = checks["marks"]
    assert (damaged.health, damaged.seen.split(";")[0]) == (Health.DOUBTFUL, place.faults[0])
    assert "a common ground" in damaged.advice
    assert checks["meter"].health is Health.OK  # a board that is off leaves its line floating
    place.marks = lambda mark: mark.text != "E3"
    gone = place.checks()["marks"]
    assert gone.health is Health.BROKEN
    assert gone.seen == f"11 of 12 marks arrived at the meter; {place.faults[0]}"
    assert "a common ground" in gone.advice


@pytest.mark.parametrize(("gain", "health"), [(0.004, "ok"), (-0.02, "doubtful"), (0.2, "broken")])
def test_a_board_whose_clock_is_wrong_is_found(place: _Place, gain: float, health: str) -> None:
    place.clock_gain = gain
    assert str(place.checks()["clock"].health) == health


def test_the_meters_clock_and_its_rate_are_judged(place: _Place) -> None:
    place.drift = Drift(-9000.0, 50.0, 8.0, 16)
    assert "the meter's clock loses" in place.checks()["clock"].seen
    place.drift = None
    place.board.board_facts = replace(FACTS, tick_hz=100)
    assert INFO.rate_hz == 1000
    assert "in step with the kernel's tick" in place.checks()["clock"].seen


def test_a_slow_boot_is_doubted(place: _Place, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = place.board.shell

    def boots() -> FakeShell:
        place.clock.sleep(80.0)
        return shell

    monkeypatch.setattr(place.board, "boot", boots)
    check = place.checks()["boot"]
    assert (check.health, "login after 80.0 s; the limit is 100 s" in check.seen) == (Health.DOUBTFUL, True)


def test_in_guest_time_clocks_do_not_apply_and_power_is_the_outlets(place: _Place) -> None:
    place.profile = replace(PROFILE, guest_time=True)
    checks = place.checks()
    assert checks["clock"].health is Health.NOT_HERE
    assert checks["power"].seen == "the outlet says off, on, off; no meter saw it"
    assert "12 of 12 arrived" in checks["marks"].seen


def test_a_board_that_measures_itself_is_asked_once_it_has_booted(place: _Place) -> None:
    place.profile = replace(PROFILE, mark_device="/sys/class/powercap/intel-rapl:0/energy_uj")
    place.meter = FakeMeter(now=lambda: place.trace() if place.board.powered else None)
    checks = place.checks()
    assert list(checks) == ["power", "flasher", "boot", "meter", "card", "marks", "clock"]
    assert overall(checks.values()) is Health.OK
    assert "no meter saw it" in checks["power"].seen
    assert "W by its own counter" in checks["meter"].seen
    assert checks["marks"].seen == "12 of 12 came; each is a reading of the board's own counter"
    place.meter = FakeMeter()
    assert [name for name, check in place.checks().items() if check.health is Health.BROKEN] == ["meter"]
    place.board.faults = [BoardError("fake did not boot")]
    assert {check.because for check in place.checks().values()} == {"", "boot"}


def test_a_place_that_is_lost_ends_the_examination(place: _Place) -> None:
    place.board.lost = PlaceLostError("fake", "ci/ada has it")
    with pytest.raises(PlaceLostError):
        place.checks()


def test_a_broken_board_that_cannot_be_switched_off_is_told_with_its_checks(place: _Place, said: list[str]) -> None:
    def stuck() -> None:
        raise LabError("the outlet does not answer")

    place.board.off = stuck
    switch_off(place.board, [Check("power", Health.BROKEN, "it does not switch")])
    assert said == ["warning: the board could not be switched off: the outlet does not answer"]
    with pytest.raises(LabError, match="the outlet does not answer"):
        switch_off(place.board, [Check("power", Health.OK, "it switches")])
    assert len(said) == 1
