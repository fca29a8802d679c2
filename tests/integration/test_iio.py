"""Power monitors of the kernel's IIO: through the real libiio, from an emulated iiod over a socket, to joules."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import pytest
from command_line import CommandLine

from fsjoule.errors import ConfigError, MeterError
from fsjoule.meter.energy import energy, instrument_of, validity
from fsjoule.meter.energy.chips import OHM
from fsjoule.meter.energy.stated import AMPERES_STEP
from fsjoule.meter.instrument_files import write_instrument_file
from fsjoule.meter.links.iio import IIO, IioMeter, find, ohms
from fsjoule.model import MarkSource, PlainTrace, Window
from fsjoule.model.instrument_file import Accuracy, InstrumentFile, Shunt
from fsjoule.model.meter import READ_S, TURN_S
from fsjoule.store.traces import read_trace
from fsjoule.virtual.instruments.iio import Iiod, IioDevice, iiod, ina226, ina228

SENSOR = IioDevice("iio:device7", "bmp280", {"temp": {"input": "25000"}})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FSJOULE_METERS_DIR", str(tmp_path / "meters"))
    return tmp_path / "meters"


def _recorded(server: Iiod, device: str, seconds: float = 1.0) -> PlainTrace:
    with IioMeter(f"{server.uri}/{device}") as meter:
        meter.arm()
        time.sleep(0.3)
        meter.mark_now("begin")()
        time.sleep(seconds)
        meter.mark_now("end")()
        return meter.disarm()


def _window(trace: PlainTrace) -> Window:
    begin, end = trace.marks
    return Window(float(begin.time_us), float(end.time_us))


def test_an_ina226_is_its_shunt_times_its_bus() -> None:
    """Power and current of the chip are registers of coarser steps: 25 mW here, and 0.31 W of a load of 1.5 W."""
    with iiod(SENSOR, ina226(lambda _: 0.30072, ohm=0.01)) as server:
        trace = _recorded(server, "ina226")
        asked = {command.rsplit(" ", 2)[1] for command in server.commands if command.endswith(" raw")}
    assert asked == {"voltage0", "voltage1"}
    assert trace.power_w.mean() == pytest.approx(5 * 0.30072, abs=5 * 2.5e-6 / 0.01 / 2)
    assert trace.info.settings[OHM] == 0.01
    assert trace.info.settings[AMPERES_STEP] == pytest.approx(2.5e-4)
    assert trace.info.settings[TURN_S] == pytest.approx(8.8e-3, rel=0.01)
    assert trace.info.simulated
    assert trace.current_a.mean() == pytest.approx(0.30072, abs=2e-4)


def test_joules_are_those_of_the_load_where_it_was() -> None:
    """A reading is a turn old on average: without that, a window across a step from 0.5 W to 2.5 W is 70 mJ off."""
    step_s = time.monotonic() + 1.2

    def load(now_s: float) -> float:
        return 0.1 if now_s < step_s else 0.5

    with iiod(ina226(load, turn_s=0.0352)) as server:
        trace = _recorded(server, "ina226", 1.8)
    window = _window(trace)
    high_s = window.stop_us * 1e-6 - max(step_s, window.start_us * 1e-6)
    true_mj = 5e3 * (0.5 * high_s + 0.1 * (window.duration_s - high_s))
    found = energy(trace, window, window, instrument_of(trace.info, MarkSource.HOST))
    assert abs(found.gross_mj.value - true_mj) < 2 * found.gross_mj.uncertainty
    assert found.gross_mj.value == pytest.approx(true_mj, abs=40)
    assert found.gross_budget.shunt_mj > found.gross_budget.gain_mj > 0


def test_an_ina228_of_hwmon_has_its_own_power() -> None:
    with iiod(ina228(lambda _: 2.000012)) as server:
        trace = _recorded(server, "hwmon0", 0.3)
    assert trace.power_w.mean() == pytest.approx(2.000012, abs=2e-6)
    assert trace.voltage_v.mean() == pytest.approx(5.0)
    assert trace.info.settings[OHM] == 0.015


def test_a_reading_at_the_end_of_the_range_is_flagged() -> None:
    with iiod(ina226(lambda _: 0.9)) as server:  # 90 mV at 0.1 Ohm; the chip ends at 81.92 mV
        trace = _recorded(server, "ina226", 0.3)
    (complaint,) = validity.clipping_complaints(trace, _window(trace), "the window")
    assert "reached the end of the range of the iio" in complaint


def test_the_resistor_comes_in_two_units() -> None:
    assert ohms("0.010000\n") == ohms("10000\n") == 0.01


def test_the_data_sheets_limits_become_the_uncertainty() -> None:
    """INA226, 0.1 Ohm, 5 V, 0.25 A, by hand: 10 uV, 0.1 uV/K over 10 K, 126 dB over 7 V; 0.1 % and 50 ppm/K, twice."""
    with iiod(ina226(lambda _: 0.25)) as server, IioMeter(server.uri) as meter:
        errors = instrument_of(meter.info(), MarkSource.HOST).steady(5.0, 0.25)
    assert errors.offset_w == pytest.approx(5 * math.hypot(10e-6, 1e-6, 3.5e-6) / 0.1 / math.sqrt(3))
    assert errors.gain == pytest.approx(math.hypot(1e-3, 5e-4, 1e-3, 5e-4) / math.sqrt(3))
    assert errors.shunt == pytest.approx(math.hypot(0.01, 75e-6 * 10) / math.sqrt(3))


def test_an_instrument_file_knows_better() -> None:
    serial = "ina226 iio:device0 SIM-IIO-1"
    write_instrument_file(InstrumentFile(serial_number=serial, shunt=Shunt(ohm=0.1, tolerance_percent=0.1)))
    with iiod(ina226(lambda _: 0.25)) as server:
        with IioMeter(server.uri) as meter:
            assert instrument_of(meter.info()).steady(5.0, 0.25).shunt == pytest.approx(7.2e-4, rel=0.01)
        write_instrument_file(InstrumentFile(serial_number=serial, shunt=Shunt(ohm=0.2)))
        with pytest.raises(ConfigError, match=r"the kernel counts with 0\.1 Ohm, the instrument file says 0\.2"):
            IioMeter(server.uri)


def test_without_its_accuracy_nothing_is_measured() -> None:
    channels = {"voltage0": {"raw": "5000", "scale": "1"}, "current0": {"raw": "250", "offset": "10", "scale": "1"}}
    with iiod(IioDevice("iio:device0", "heliometer", channels, {"sampling_frequency": "200"})) as server:
        with pytest.raises(ConfigError, match="nothing is known of the accuracy of heliometer iio:device0") as caught:
            IioMeter(server.uri)
        assert "heliometer_iio_device0_SIM-IIO-1.toml" in (caught.value.hint or "")
        known = Accuracy(volts_percent=0.1, volts_offset=0.01, amperes_percent=0.2, amperes_offset=0.001)
        write_instrument_file(InstrumentFile(serial_number="heliometer iio:device0 SIM-IIO-1", accuracy=known))
        trace = _recorded(server, "heliometer", 0.3)
    assert trace.power_w.mean() == pytest.approx(5 * 0.26)
    assert trace.info.settings[TURN_S] == 0.005


@pytest.mark.parametrize(
    ("device", "error", "said"),
    [
        ("", ConfigError, "more than one power monitor"),
        ("/bmp280", MeterError, "bmp280 at .* measures no power"),
        ("/ina999", MeterError, "no power monitor 'ina999'"),
    ],
)
def test_another_device_is_named(device: str, error: type[Exception], said: str) -> None:
    with iiod(SENSOR, ina226(lambda _: 0.1), ina226(lambda _: 0.2, number=1)) as server:
        with pytest.raises(error, match=said) as caught:
            IioMeter(f"{server.uri}{device}")
        assert f"iio:{server.uri}/iio:device1 (ina226)" in str(caught.value)
        assert _recorded(server, "iio:device1", 0.1).current_a.mean() == pytest.approx(0.2, rel=0.01)


def test_a_server_that_is_none_or_goes_is_said_to() -> None:
    with iiod(ina226(lambda _: 0.1)) as server, IioMeter(server.uri) as meter:
        meter.arm()
        server.gone.set()
        with pytest.raises(MeterError, match=r"the IIO context ip:127\.0\.0\.1:\d+ does not answer|was not read"):
            meter.disarm()
    with pytest.raises(MeterError, match="there is no IIO context at ip:"):
        IioMeter(server.uri)
    with iiod(ina226(lambda _: 0.1)) as server:
        server.answers = dict.fromkeys(("PRINT", "ZPRINT"), b"HTTP/1.1 400 Bad Request\n")
        with pytest.raises(MeterError, match="there is no IIO context at ip:"):
            IioMeter(server.uri)


def test_what_came_before_it_went_can_be_taken() -> None:
    with iiod(ina226(lambda _: 0.1)) as server, IioMeter(server.uri) as meter:
        meter.arm()
        time.sleep(0.3)
        server.gone.set()
        assert len(meter.take(whole=True).ticks) > 5
        with pytest.raises(MeterError, match="does not answer"):
            meter.take(whole=True)


def test_a_busy_device_is_said_to_be() -> None:
    with iiod(ina226(lambda _: 0.1)) as server:
        server.answers["READ iio:device0 INPUT voltage0 raw"] = b"-16\n"
        with pytest.raises(MeterError, match="does not answer: Device or resource busy"):
            IioMeter(server.uri)


def test_the_search_names_power_monitors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with iiod(SENSOR, ina226(lambda _: 0.1), ina228(lambda _: 2.0)) as server:
        gone = "ip:127.0.0.1:1"
        monkeypatch.setenv("FSJOULE_IIO", f"{server.uri}, {gone}")
        here, there, none = (each for each in find() if "127.0.0.1" in each.address)
        assert not [command for command in server.commands if "INPUT" in command]
    assert (here.address, here.name) == (f"iio:{server.uri}/iio:device0", "ina226 SIM-IIO-1")
    assert there.name == "ina228 SIM-IIO-1"
    assert (none.address, none.name) == (f"iio:{gone}", "")
    assert "there is no IIO context" in none.why_not


def test_the_commands_take_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsjoule: CommandLine) -> None:
    with iiod(ina226(lambda _: 0.4)) as server:
        address = ("--meter", f"iio:{server.uri}/ina226")
        watched = fsjoule("meter", "watch", *address, "--seconds", "1", "--json").out.splitlines()
        assert json.loads(watched[-1])["volts"] == pytest.approx(5.0)
        kept = tmp_path / "trace.parquet"
        recorded = fsjoule("meter", "record", *address, "--seconds", "0.5", "-o", str(kept), "--json").document
        assert recorded["mean_watts"] == pytest.approx(2.0, rel=0.01)
        assert read_trace(kept).info.kind == IIO
        ran = fsjoule("meter", "run", *address, "--idle", "0.3", "--json", "--", "sleep", "0.5")
        (run,) = json.loads(ran.err.strip().split("\n")[-1])["runs"]
        assert abs(run["joules"]["value"] - 2.0 * run["window_seconds"]) < 2 * run["joules"]["uncertainty"]
        told = fsjoule("meter", "info", *address).out
        assert "ina226 iio:device0 SIM-IIO-1" in told
        assert "at 5 V, 0.25 A (k=1)" in told
        assert "simulated" in told
        monkeypatch.setenv("FSJOULE_IIO", server.uri)
        listed = {each["address"]: each["name"] for each in fsjoule("meter", "list", "--json").document}
        assert listed[f"iio:{server.uri}/iio:device0"] == "ina226 SIM-IIO-1"


def test_what_was_recorded_before_it_went_is_kept(tmp_path: Path, fsjoule: CommandLine) -> None:
    begin_s = time.monotonic()

    def load(now_s: float) -> float:
        if now_s > begin_s + 3:
            server.gone.set()
        return 0.4

    kept = tmp_path / "trace.parquet"
    with iiod(ina226(load)) as server:
        done = fsjoule("meter", "record", "--meter", f"iio:{server.uri}", "--seconds", "30", "-o", str(kept))
    assert done.code == 4
    assert "the recording ends after" in done.err
    trace = read_trace(kept)
    assert len(trace.ticks) > 20
    assert trace.power_w.mean() == pytest.approx(2.0, rel=0.01)
    assert isinstance(trace, PlainTrace)
    assert trace.info.settings[READ_S] >= 0.01


@pytest.mark.parametrize(
    ("broken", "advice"), [(None, "--extra iio"), (AttributeError("undefined symbol"), "apt-get install libiio0")]
)
def test_without_a_library_the_advice_is_what_to_install(
    broken: Exception | None, advice: str, fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        """A module whose import fails, as pylibiio's does without libiio."""

        def find_spec(self, name: str, *_: object) -> None:
            if name == "iio":
                raise broken or ImportError

    monkeypatch.delitem(sys.modules, "iio", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    done = fsjoule("meter", "run", "--meter", "iio:ip:127.0.0.1", "--", "true")
    assert done.code == 2
    assert advice in done.err
