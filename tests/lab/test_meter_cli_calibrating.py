"""`fsjoule meter calibrate` on the real simulator, whose chip is wrong in every way."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pexpect
import pytest
from command_line import PROGRAM, CommandLine
from meter_desk import LIMIT_S, Desk

from fsjoule.virtual.board.power import FeedWriter

OFFSET_UV, GAIN_PPM, BUS_PPM = 42.0, 7000, -4000


class Bench:
    """A supply and a load that can be changed, as the emulated meter's feed."""

    def __init__(self, path: Path) -> None:
        self.volts, self.amperes = 5.0, 0.0
        self._feed = FeedWriter(path)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def draw(self, volts: float, amperes: float) -> None:
        self.volts, self.amperes = volts, amperes
        time.sleep(0.3)  # the meter is behind the feed

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._feed.close()

    def _run(self) -> None:
        while not self._ended.wait(0.002):
            self._feed.append(time.monotonic_ns(), self.volts, self.amperes)


@pytest.fixture
def load(desk: Desk) -> Generator[Bench]:
    """A meter that is off in every way, and what is connected to it."""
    feed = desk.devices / "feed"
    connected = Bench(feed)
    errors = ("--chip-offset-uv", str(OFFSET_UV), "--chip-gain-ppm", str(GAIN_PPM), "--chip-bus-gain-ppm", str(BUS_PPM))
    desk.start_meter("--feed", str(feed), "--storage", str(desk.devices / "flash"), "--chip-noise-uv", "15", *errors)
    yield connected
    connected.close()


@pytest.fixture(autouse=True)
def instrument_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FSJOULE_METERS_DIR", str(tmp_path / "meters"))
    return tmp_path / "meters"


def _reads(fsjoule: CommandLine) -> float:
    done = fsjoule("meter", "watch", "--seconds", "1", "--json")
    return json.loads(done.out.splitlines()[-1])["mean_watts"]


def test_calibration_in_three_calls_makes_the_meter_right(
    load: Bench, fsjoule: CommandLine, instrument_files: Path
) -> None:
    load.draw(5.0, 0.25)
    assert _reads(fsjoule) == pytest.approx(1.25 * (1 + (GAIN_PPM + BUS_PPM) * 1e-6) + 0.0021, rel=0.003)
    load.draw(5.0, 0.0)
    zeroed = fsjoule("meter", "calibrate", "--zero", "--json").document
    assert zeroed["measured"][0]["offset_uv"] == pytest.approx(OFFSET_UV, abs=2)
    assert (
        zeroed["after"]["expected_uncertainty"]["offset_w"] < zeroed["before"]["expected_uncertainty"]["offset_w"] / 10
    )
    load.draw(5.0, 0.05)
    low = fsjoule("meter", "calibrate", "--low-ua", 50_000, "--low-uv", 5_000_000, "--reference-uncertainty", 200)
    assert "the low point is taken" in low.err
    load.draw(4.95, 0.7)
    options = ("--high-ua", 700_000, "--high-uv", 4_950_000, "--reference-uncertainty", 200, "--save")
    told = ("--celsius", 22, "--certificate", "DE-4711", "--expires", "2026-01-31")
    assert not instrument_files.exists()
    done = fsjoule("meter", "calibrate", *options, *told, "--json").document
    assert done["instrument_file"] == str(instrument_files / f"{done['meter']}.toml")
    described = fsjoule("meter", "info", "--json").document
    assert described["file"]["calibration"]["celsius"] == 22.0
    assert any("certificate DE-4711 expired on 2026-01-31" in each for each in described["notices"])
    calibration = done["after"]["calibration"]
    assert calibration["current_gain_ppm"] == pytest.approx(-GAIN_PPM, abs=150)
    assert calibration["bus_gain_ppm"] == pytest.approx(-BUS_PPM, abs=1000)  # the bus has steps of 8 mV
    assert done["saved"] is True
    assert done["after"]["expected_uncertainty"]["total_w"] < done["before"]["expected_uncertainty"]["total_w"] / 3
    load.draw(5.0, 0.25)
    assert _reads(fsjoule) == pytest.approx(1.25, rel=0.002)
    forgotten = fsjoule("meter", "calibrate", "--forget", "--json").document
    assert forgotten["after"]["calibration"]["gain_date"] is None


def test_calibration_by_hand_asks_for_everything(load: Bench, desk: Desk, instrument_files: Path) -> None:
    walk = pexpect.spawn(
        str(PROGRAM),
        ["meter", "calibrate", "--meter", str(desk.stream)],
        dimensions=(40, 160),
        timeout=LIMIT_S,
        encoding="utf-8",
    )
    walk.expect("before: .*expected uncertainty")
    walk.expect("Zero: disconnect the load.*Ready")
    walk.sendline("y")
    walk.expect(r"offset \+4\d\.\d+ uV")
    walk.expect("Gain: do you have a reference")
    walk.sendline("y")
    walk.expect("in ppm")
    walk.sendline("300")
    for name, volts, amperes in (("low", 5.0, 0.05), ("high", 4.95, 0.7)):
        walk.expect(f"Connect the {name} load.*current, in A")
        load.draw(volts, amperes)
        walk.sendline(str(amperes))
        walk.expect("voltage, in V")
        walk.sendline(str(volts))
        walk.expect("the meter reads")
    walk.expect("Is the room's temperature known")
    walk.sendline("y")
    walk.expect("in degrees Celsius")
    walk.sendline("22.5")
    walk.expect(r"after: .*current -6\d\d\d ppm")
    walk.expect("Save it on the meter")
    walk.sendline("y")
    walk.expect("instrument file  ")
    walk.expect(pexpect.EOF)
    walk.close()
    assert walk.exitstatus == 0
    [kept] = instrument_files.iterdir()
    assert "celsius = 22.5" in kept.read_text()


def test_a_calibration_with_the_wrong_load_says_what_it_saw(load: Bench, fsjoule: CommandLine) -> None:
    load.draw(5.0, 0.25)
    zero = fsjoule("meter", "calibrate", "--zero")
    assert zero.code == 4
    assert re.search(r"the shunt reads 252\d\d uV, .*\n  hint: disconnect the load", zero.err), zero.err
    point = ("--low-ua", 50_000, "--low-uv", 5_000_000, "--reference-uncertainty", 200)
    assert fsjoule("meter", "calibrate", *point).code == 0
    point = ("--high-ua", 700_000, "--high-uv", 5_000_000, "--reference-uncertainty", 200)
    high = fsjoule("meter", "calibrate", *point)
    assert high.code == 4
    assert re.search(r"by the reference it should read 70000 uV\n  hint: two points at least 0.2 A apart", high.err), (
        high.err
    )
    assert fsjoule("meter", "info", "--json").document["calibration"]["gain_date"] is None


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ((), "no calibration step is given"),
        (("--low-ua", "1000"), "the low point is incomplete"),
        (("--high-ua", "1000", "--high-uv", "1000"), "the reference's uncertainty is missing"),
        (
            ("--zero", "--low-ua", "1000", "--low-uv", "1000", "--reference-uncertainty", "9"),
            "zero and the two points need different loads",
        ),
    ],
)
def test_calibration_options_that_do_not_fit(fsjoule: CommandLine, options: tuple[str, ...], complaint: str) -> None:
    done = fsjoule("meter", "calibrate", *options)
    assert done.code == 2
    assert complaint in done.err


# ---------------------------------------------------------------------------------------------------------- self-test
