"""Joulescopes: their streams become joules, and the commands take them, through the driver's publish/subscribe port."""

from __future__ import annotations

import inspect
import json
import math
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyjoulescope_driver
import pytest
from command_line import CommandLine

from fsjoule.errors import ConfigError, MeterError
from fsjoule.meter.energy import energy, instrument_of
from fsjoule.meter.instrument_files import write_instrument_file
from fsjoule.meter.links.joulescope import JOULESCOPE, JoulescopeMeter, find
from fsjoule.meter.tools import recorder
from fsjoule.model import MarkSource, PlainTrace, Window
from fsjoule.model.instrument_file import Accuracy, InstrumentFile
from fsjoule.store.traces import read_trace
from fsjoule.virtual.instruments.joulescope import EmulatedDriver, Floats, Js220


@contextmanager
def joulescopes(monkeypatch: pytest.MonkeyPatch, *devices: Js220) -> Generator[None]:
    """The maker's driver with these devices at USB."""
    with monkeypatch.context() as patched:
        patched.setattr("pyjoulescope_driver.Driver", type("Driver", (EmulatedDriver,), {"devices": devices}))
        yield


NAME = "js220/SIM001"
ACCURACY = Accuracy(volts_percent=0.1, volts_offset=0.002, amperes_percent=0.1, amperes_offset=0.0002)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FSJOULE_METERS_DIR", str(tmp_path / "meters"))
    return tmp_path / "meters"


@pytest.fixture
def known() -> None:
    write_instrument_file(InstrumentFile(serial_number="SIM001", accuracy=ACCURACY))


def steady(seconds: Floats) -> Floats:
    return np.full(len(seconds), 1.5)


def _recorded(seconds: float = 0.8, armed: Callable[[], object] = lambda: None) -> PlainTrace:
    with JoulescopeMeter(NAME) as meter:
        meter.arm()
        armed()  # what is to happen, by the time at which it records
        time.sleep(0.2)
        meter.mark_now("begin")()
        time.sleep(seconds)
        meter.mark_now("end")()
        return meter.disarm()


def _window(trace: PlainTrace, source: MarkSource = MarkSource.HOST) -> Window:
    begin, end = (mark for mark in trace.marks if mark.source in (source, MarkSource.FALLING))
    return Window(float(begin.time_us), float(end.time_us))


def test_the_stand_in_has_the_drivers_own_signatures() -> None:
    for name in ("publish", "query", "subscribe", "unsubscribe", "open", "close", "device_paths", "finalize"):
        ours, real = (getattr(each, name) for each in (EmulatedDriver, pyjoulescope_driver.Driver))
        assert list(inspect.signature(ours).parameters) == list(inspect.signature(real).parameters), name


def test_the_real_driver_lists_what_is_connected() -> None:
    """Nothing, most likely; it must not fail."""
    assert all(each.address.startswith("joulescope:js") for each in find())


@pytest.mark.parametrize("module", ["nosuch", "nosuch.module"])
def test_another_module_that_is_not_there_is_named(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_JOULESCOPE", module)
    assert find() == []
    with pytest.raises(ConfigError, match=rf"{module} is not installed\n.*FSJOULE_JOULESCOPE names it"):
        JoulescopeMeter("js220/000415").info()


@pytest.mark.usefixtures("known")
def test_every_joule_of_a_full_rate_stream_is_in_the_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that changes each 3 ms, at 1 MHz; each tick is the mean of its thousand samples."""

    def load(seconds: Floats) -> Floats:
        return 1.0 + (np.floor(seconds / 0.003) % 7)

    device = Js220(load, decimate=2)
    with joulescopes(monkeypatch, device):
        trace = _recorded(0.5)
    counts = (trace.ticks[:, None] * 2000 + np.arange(0, 2000, 2)).astype(np.int64)
    true_w = load(device.seconds(counts.ravel())).reshape(counts.shape).mean(axis=1)
    assert len(trace.ticks) > 500
    assert trace.power_w == pytest.approx(true_w, rel=1e-6)
    assert trace.voltage_v == pytest.approx(5.0)
    assert (trace.missed, trace.lost, trace.faults) == (0, 0, ())


@pytest.mark.usefixtures("known")
def test_edges_of_input_0_are_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_s = math.inf

    def planned() -> None:
        nonlocal begin_s
        begin_s = time.monotonic() + 0.5

    def high(seconds: Floats) -> npt.NDArray[np.bool_]:
        return (seconds >= begin_s) & (seconds < begin_s + 0.3004)

    def load(seconds: Floats) -> Floats:
        return np.where(high(seconds), 2.5, 0.5)

    device = Js220(load, gpi=high)
    with joulescopes(monkeypatch, device):
        trace = _recorded(1.0, planned)
    edges = [mark for mark in trace.marks if mark.source is not MarkSource.HOST]
    assert [mark.source for mark in edges] == [MarkSource.RISING, MarkSource.FALLING]
    shown_s = [mark.time_us * 1e-6 + device.born_s for mark in edges]
    assert shown_s == pytest.approx([begin_s, begin_s + 0.3004], abs=2e-6)
    window = Window(float(edges[0].time_us), float(edges[1].time_us))
    found = energy(trace, window, window, instrument_of(trace.info, MarkSource.RISING))
    assert abs(found.gross_mj.value - 2.5e3 * 0.3004) < 2 * found.gross_mj.uncertainty
    assert found.gross_budget.gain_mj > 0


@pytest.mark.usefixtures("known")
def test_host_marks_are_put_into_the_instruments_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Js220(steady, drift=0.01)
    with joulescopes(monkeypatch, device), JoulescopeMeter(NAME) as meter:
        meter.arm()
        marked_s = time.monotonic()
        meter.mark_now("now")()
        (mark,) = meter.disarm().marks
    assert mark.time_us * 1e-6 / 1.01 + device.born_s == pytest.approx(marked_s, abs=0.02)


@pytest.mark.usefixtures("known")
def test_samples_that_did_not_arrive_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick with half of its samples is known by them; of the others nothing is, and a window may miss 1 %."""
    device = Js220(steady)

    def planned() -> None:
        now_s = time.monotonic()
        device.lost = [(now_s + 0.5, now_s + 0.5073), (now_s + 0.6, now_s + 0.6002)]

    with joulescopes(monkeypatch, device):
        trace = _recorded(0.8, planned)
    assert trace.missed in {7, 8}
    assert trace.faults[0].endswith("samples of the Joulescope did not arrive")
    found = energy(trace, _window(trace), _window(trace))
    assert found.gross_mj.value == pytest.approx(1.5e3 * _window(trace).duration_s, rel=1e-3)
    assert found.missed_ticks == trace.missed
    assert found.gross_budget.gaps_mj == 0  # the power is the same everywhere


@pytest.mark.usefixtures("known")
def test_pieces_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Js220(lambda seconds: 1 + np.sin(seconds * 20))
    pieces: list[PlainTrace] = []
    with joulescopes(monkeypatch, device), JoulescopeMeter(NAME) as meter:
        meter.arm()
        now_s = time.monotonic()
        device.lost = [(now_s + 0.3, now_s + 0.35)]
        for _ in range(6):
            time.sleep(0.13)
            pieces.append(meter.take())
        pieces.append(meter.disarm())
    ticks = np.concatenate([piece.ticks for piece in pieces])
    assert np.count_nonzero(np.diff(ticks) != 1) == 1
    assert sum(piece.missed for piece in pieces) in {49, 50, 51}
    sums = np.concatenate([piece.energy_nj for piece in pieces]).sum()
    assert pieces[-1].checkpoint_nj[-1] == sums
    assert pieces[-1].checkpoint_missed[-1] == sum(piece.missed for piece in pieces)


def test_without_its_accuracy_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    device = Js220(steady)
    with joulescopes(monkeypatch, device), pytest.raises(ConfigError, match="accuracy of the Joulescope") as caught:
        JoulescopeMeter(NAME)
    assert str(folder / "SIM001.toml") in (caught.value.hint or "")
    assert device.opened == 0


@pytest.mark.usefixtures("known")
def test_one_that_is_absent_busy_or_of_a_later_model_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with joulescopes(monkeypatch, Js220(steady), Js220(steady, "u/js999/1")):
        with pytest.raises(MeterError, match="there is no Joulescope 'js220/2'") as caught:
            JoulescopeMeter("js220/2")
        assert "joulescope:js220/SIM001, joulescope:js999/1" in (caught.value.hint or "")
        with pytest.raises(MeterError, match="js999/1 is a model that this version does not know"):
            JoulescopeMeter("js999/1")
    busy = joulescopes(monkeypatch, Js220(steady, busy=True))
    with busy, pytest.raises(MeterError, match=r"SIM001 cannot be opened: .*IN_USE"):
        JoulescopeMeter(NAME)


@pytest.mark.usefixtures("known")
def test_it_is_left_closed_and_its_streams_off(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Js220(steady)
    with joulescopes(monkeypatch, device):
        trace = _recorded(0.1)
    assert device.opened == 0
    assert device.settings == {
        "s/i/range/mode": "auto",
        **{f"{topic}/ctrl": "off" for topic in ("s/p", "s/v", "s/gpi/0")},
    }
    assert (trace.info.firmware, trace.info.simulated) == ("JS220 1.3.2", True)


@pytest.mark.usefixtures("known")
def test_one_that_falls_silent_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Js220(steady)
    with joulescopes(monkeypatch, device), JoulescopeMeter(NAME) as meter:
        meter.arm()
        device.silent.set()
        with pytest.raises(MeterError, match="sent nothing for 5 s"):
            meter.disarm()


@pytest.mark.usefixtures("known")
def test_the_commands_take_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fsjoule: CommandLine) -> None:
    address = ("--meter", f"joulescope:{NAME}")
    with joulescopes(monkeypatch, Js220(steady)):
        watched = fsjoule("meter", "watch", *address, "--seconds", "1", "--json").out.splitlines()
        assert json.loads(watched[-1])["volts"] == pytest.approx(5.0)
        kept = tmp_path / "trace.parquet"
        recorded = fsjoule("meter", "record", *address, "--seconds", "0.5", "-o", str(kept), "--json").document
        assert recorded["mean_watts"] == pytest.approx(1.5)
        assert read_trace(kept).info.kind == JOULESCOPE
        ran = fsjoule("meter", "run", *address, "--idle", "0.3", "--json", "--", "sleep", "0.5")
        (run,) = json.loads(ran.err.strip().split("\n")[-1])["runs"]
        assert abs(run["joules"]["value"] - 1.5 * run["window_seconds"]) < 2 * run["joules"]["uncertainty"]
        listed = {each["address"]: each for each in fsjoule("meter", "list", "--json").document}
    assert listed[f"joulescope:{NAME}"]["name"] == "SIM001"
    assert listed[f"joulescope:{NAME}"]["where"] == "Joulescope JS220 emulated"


@pytest.mark.usefixtures("known")
def test_a_recording_ends_and_tells_what_did_not_arrive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fsjoule: CommandLine
) -> None:
    """It would wait for a second of samples for ever if none arrives."""
    device = Js220(steady, lost=[(0.0, time.monotonic() + 1e9)])
    monkeypatch.setattr(recorder, "_LATE_S", 0.5)
    address = ("--meter", f"joulescope:{NAME}")
    with joulescopes(monkeypatch, device):
        done = fsjoule("meter", "record", *address, "--seconds", "1", "-o", str(tmp_path / "trace.csv"), "--json")
    assert done.document["received"] == 0
    assert "samples of the Joulescope did not arrive" in done.document["faults"][0]


@pytest.mark.usefixtures("known")
def test_what_was_recorded_before_it_went_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fsjoule: CommandLine
) -> None:
    begin_s = time.monotonic()

    def load(seconds: Floats) -> Floats:
        if time.monotonic() > begin_s + 2:
            device.unplugged.set()
        return steady(seconds)

    device = Js220(load)
    kept = tmp_path / "trace.parquet"
    with joulescopes(monkeypatch, device):
        done = fsjoule("meter", "record", "--meter", f"joulescope:{NAME}", "--seconds", "30", "-o", str(kept))
    assert done.code == 4
    assert "the recording ends after" in done.err
    assert f"the Joulescope {NAME} was unplugged" in done.err
    trace = read_trace(kept)
    assert len(trace.ticks) > 1000
    assert trace.power_w == pytest.approx(1.5)


def test_without_the_driver_the_advice_is_what_to_install(
    fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyjoulescope_driver", None)
    done = fsjoule("meter", "run", "--meter", f"joulescope:{NAME}", "--", "true")
    assert done.code == 2
    assert "--extra joulescope" in done.err
