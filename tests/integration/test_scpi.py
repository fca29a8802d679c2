"""Instruments that speak SCPI: their readings, their errors, and the commands that take them, over a real socket."""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine

from fsjoule.errors import ConfigError, MeasurementInvalid, MeterError
from fsjoule.meter.energy import energy, instrument_of
from fsjoule.meter.energy.stated import AMPERES_OFFSET, stated_limits
from fsjoule.meter.instrument_files import read_instrument_file, write_instrument_file
from fsjoule.meter.links.scpi import ScpiMeter
from fsjoule.meter.protocol.polled import SampleTrace
from fsjoule.model import PlainInfo, Window
from fsjoule.model.instrument_file import Accuracy, InstrumentFile
from fsjoule.model.meter import READ_S
from fsjoule.store.traces import read_trace
from fsjoule.virtual.instruments.scpi import supply

ACCURACY = Accuracy(volts_percent=0.05, volts_offset=0.01, amperes_percent=0.1, amperes_offset=0.002)
INFO = PlainInfo(
    instrument="scpi",
    firmware="a maker",
    serial_number="1",
    rate_hz=10,
    measures_voltage=True,
    simulated=True,
    settings=stated_limits(ACCURACY) | {READ_S: 0.1},
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FSJOULE_METERS_DIR", str(tmp_path / "meters"))
    return tmp_path / "meters"


@pytest.fixture
def known() -> None:
    write_instrument_file(InstrumentFile(serial_number="SIM-4711", accuracy=ACCURACY))


def opened(address: str) -> ScpiMeter:
    return ScpiMeter(address.removeprefix("visa:"))


def test_every_joule_of_the_readings_is_in_the_trace() -> None:
    """A power that rises along a straight line, read at odd times."""
    random = np.random.default_rng(1)
    trace, now_us = SampleTrace(INFO), 1_000_000
    for _ in range(300):
        trace.add(now_us, 5.0, now_us * 1e-6 * 0.01)
        now_us += int(random.integers(60_000, 140_000))
    taken = trace.take()
    begin_s, end_s = taken.times_us[0] * 1e-6, (taken.times_us[-1] + 100_000) * 1e-6
    assert taken.power_w.sum() * 0.1 == pytest.approx(0.05 * (end_s**2 - begin_s**2) / 2, rel=1e-5)
    assert taken.lost == 0
    assert taken.voltage_v == pytest.approx(5.0)
    assert taken.current_a[10] == pytest.approx((taken.times_us[10] * 1e-6 + 0.05) * 0.01, rel=0.05)


def test_a_pause_of_the_instrument_is_a_gap_whose_energy_is_known() -> None:
    trace = SampleTrace(INFO)
    for time_us in (*range(0, 2_000_001, 100_000), *range(4_000_000, 6_000_001, 100_000)):
        trace.add(time_us, 5.0, 0.2)
    taken = trace.take()
    assert taken.lost == 20
    found = energy(taken, Window(0.5e6, 5.5e6), Window(0.5e6, 1.5e6))
    assert found.gross_mj.value == pytest.approx(5000.0)


def test_a_window_of_too_few_readings_has_no_energy() -> None:
    """A change of the power may lie between two of them, and nothing would show it."""
    trace = SampleTrace(INFO)
    for time_us in range(0, 3_000_001, 100_000):
        trace.add(time_us, 5.0, 0.2)
    taken, idle = trace.take(), Window(0.5e6, 1.5e6)
    assert energy(taken, Window(1.6e6, 1.91e6), idle).gross_mj.value == pytest.approx(310.0)
    with pytest.raises(
        MeasurementInvalid, match=r"lasts 290 ms, and this instrument has a new reading every 100 ms: 3"
    ):
        energy(taken, Window(1.6e6, 1.89e6), idle)


def test_the_data_sheets_limits_become_the_uncertainty() -> None:
    errors = instrument_of(INFO).steady(5.0, 0.25)
    assert errors.offset_w == pytest.approx(2e-3 * 5 / math.sqrt(3))
    assert errors.bus_rounding_w == pytest.approx(0.01 * 0.25 / math.sqrt(3))
    assert errors.gain == pytest.approx(math.hypot(5e-4, 1e-3) / math.sqrt(3))
    better = replace(INFO, settings={**INFO.settings, AMPERES_OFFSET: 0.0})
    assert instrument_of(better).steady(5.0, 0.25).offset_w == 0.0


@pytest.mark.usefixtures("known")
def test_a_supply_is_a_meter() -> None:
    with supply(amperes=0.3, delay_s=0.01) as emulated, opened(emulated.address) as meter:
        info = meter.info()
        assert (info.serial_number, info.simulated, info.measures_voltage) == ("SIM-4711", True, True)
        assert info.firmware == "fsjoule emulated supply 1.0"
        assert info.settings[READ_S] >= 0.02
        meter.arm()
        time.sleep(0.4)
        meter.mark_now("begin")()
        time.sleep(0.8)
        meter.mark_now("end")()
        trace = meter.disarm()
    begin, end = trace.marks
    window = Window(float(begin.time_us), float(end.time_us))
    found = energy(trace, window, window)
    assert found.mean_power_w.value == pytest.approx(1.5, rel=1e-3)
    assert found.gross_mj.uncertainty > 1e3 * (window.stop_us - window.start_us) * 1e-6 * 2e-3 * 5 / math.sqrt(3)


@pytest.mark.usefixtures("known")
def test_an_instrument_that_falls_silent_or_goes_is_said_to() -> None:
    with supply() as emulated, opened(emulated.address) as meter:
        meter.arm()
        emulated.answers["MEASure:CURRent?"] = "9.91E37"  # SCPI's "not a number"
        with pytest.raises(MeterError, match=r"answers MEASure:CURRent\? with '9.91E37'"):
            meter.disarm()
    with supply() as emulated, opened(emulated.address) as meter:
        meter.arm()
        emulated.silent = True
        with pytest.raises(MeterError, match=r"does not answer MEASure:|was not read for"):
            meter.disarm()


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        ("HTTP/1.1 400 Bad Request", "does not say what it is: 'HTTP/1.1 400 Bad Request'"),
        ("maker,model,,1.0", "does not say what it is"),
    ],
)
def test_another_device_is_named(identity: str, said: str) -> None:
    with supply(identity=identity) as emulated, pytest.raises(MeterError, match=said.replace(".", r"\.")):
        opened(emulated.address)


def test_an_instrument_that_is_not_there_is_said_to() -> None:
    with supply() as emulated:
        gone = emulated.address
    with pytest.raises(MeterError, match=r"cannot be opened|does not answer \*IDN\?.*refused"):
        opened(gone)
    with supply(silent=True) as busy, pytest.raises(MeterError, match=r"does not answer \*IDN\?.*imeout"):
        opened(busy.address)  # such a supply hears one client at a time
    with pytest.raises(MeterError, match=r"the instrument at nonsense cannot be opened"):
        opened("visa:nonsense")


def test_without_its_accuracy_nothing_is_measured(folder: Path) -> None:
    with supply() as emulated:
        with pytest.raises(ConfigError, match="nothing is known of the accuracy of fsjoule emulated supply") as caught:
            opened(emulated.address)
        assert str(folder / "SIM-4711.toml") in (caught.value.hint or "")
        folder.mkdir()
        (folder / "SIM-4711.toml").write_text('serial_number = "SIM-4711"\n[accuracy]\nvolts_percent = 0.05\n')
        with pytest.raises(ConfigError, match="volts_offset"):
            opened(emulated.address)


def test_the_file_keeps_an_accuracy() -> None:
    whole = InstrumentFile(serial_number="SIM-4711", accuracy=ACCURACY)
    write_instrument_file(whole)
    assert read_instrument_file("SIM-4711") == whole


@pytest.mark.usefixtures("known")
def test_the_commands_take_it(tmp_path: Path, fsjoule: CommandLine) -> None:
    with supply(amperes=0.4) as emulated:
        address = ("--meter", emulated.address)
        watched = fsjoule("meter", "watch", *address, "--seconds", "1", "--json").out.splitlines()
        assert json.loads(watched[-1])["volts"] == pytest.approx(5.0)
        kept = tmp_path / "trace.parquet"
        recorded = fsjoule("meter", "record", *address, "--seconds", "0.5", "-o", str(kept), "--json").document
        assert recorded["mean_watts"] == pytest.approx(2.0, rel=0.01)
        assert read_trace(kept).info.kind == "scpi"
        ran = fsjoule("meter", "run", *address, "--idle", "0.3", "--json", "--", "sleep", "0.5")
        (run,) = json.loads(ran.err.strip().split("\n")[-1])["runs"]
        assert run["joules"]["value"] == pytest.approx(2.0 * run["window_seconds"], rel=0.01)
        refused = fsjoule("meter", "set", *address, "--rate", "100")
        assert refused.code == 2
        assert "it has no settings here" in refused.err


def test_without_pyvisa_the_advice_is_what_to_install(fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyvisa", None)
    done = fsjoule("meter", "run", "--meter", "visa:TCPIP0::127.0.0.1::1::SOCKET", "--", "true")
    assert done.code == 2
    assert "pyvisa is not installed" in done.err
    assert "--extra visa" in done.err
