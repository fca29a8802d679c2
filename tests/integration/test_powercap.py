"""Counters of a processor: every joule once, wrap-arounds, late readings, and the truth within the uncertainty."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from command_line import CommandLine

from fsjoule.errors import MeterError
from fsjoule.meter.energy import energy
from fsjoule.meter.links.powercap import PowercapMeter, find
from fsjoule.meter.protocol.powercap import POWERCAP, RANGE_UJ, UPDATE_US, CounterTrace
from fsjoule.meter.tools.recorder import PieceFigures
from fsjoule.model import MarkSource, PlainInfo, Window
from fsjoule.store.traces import read_trace
from fsjoule.virtual.instruments.powercap import zone

RANGE = 20_000_000
INFO = PlainInfo(
    instrument=POWERCAP,
    firmware="6.1",
    serial_number="pc intel-rapl:0",
    rate_hz=100,
    measures_voltage=False,
    simulated=True,
    settings={UPDATE_US: 1000.0, RANGE_UJ: float(RANGE)},
)
UNIT_UJ = 61.03515625
Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Load:
    """Steps of power: `watts[i]` from `edges_s[i]` on."""

    edges_s: Floats
    watts: Floats

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Load:
        edges = np.concatenate([[0.0], np.sort(rng.uniform(0, 6, rng.integers(1, 40)))])
        return cls(edges, rng.uniform(3, 60, len(edges)))

    def joules(self, until_s: Floats) -> Floats:
        lengths = np.diff(np.concatenate([self.edges_s, [1e6]]))
        sums = np.concatenate([[0.0], np.cumsum(lengths * self.watts)])
        at = np.searchsorted(self.edges_s, until_s, side="right") - 1
        return sums[at] + (until_s - self.edges_s[at]) * self.watts[at]


def _readings(load: Load, rng: np.random.Generator, *, gain: float = 1.0, late: float = 0.02) -> list[tuple[int, int]]:
    """What a reader sees in six seconds: a counter in its units that moves each millisecond, modulo its range."""
    pauses = 0.01 + rng.exponential(0.0005, 600) + np.where(rng.random(600) < late, rng.uniform(0.005, 0.15, 600), 0)
    times_s = np.cumsum(pauses)
    times_s = times_s[times_s < 6]
    moved_s = np.floor((times_s - rng.uniform(0, 0.001)) * 1e3) / 1e3
    counts = np.floor(load.joules(np.maximum(moved_s, 0)) * gain * 1e6 / UNIT_UJ) * UNIT_UJ
    start = int(rng.integers(0, RANGE))
    return [(int(t * 1e6), (start + int(c)) % RANGE) for t, c in zip(times_s, counts, strict=True)]


def _trace(readings: list[tuple[int, int]]) -> CounterTrace:
    trace = CounterTrace(INFO)
    for time_us, energy_uj in readings:
        trace.add(time_us, energy_uj)
    return trace


@pytest.mark.parametrize("gain", [0.0, 0.05])
def test_the_truth_is_within_twice_the_uncertainty(gain: float) -> None:
    """Windows anywhere, steps anywhere, 2 % of the readings late by up to 150 ms; the gain anywhere in its limit."""
    rng = np.random.default_rng(20)
    inside: list[bool] = []
    for _ in range(300):
        load = Load.drawn(rng)
        trace = _trace(_readings(load, rng, gain=1 + rng.uniform(-gain, gain))).take()
        start_s = rng.uniform(1.2, 3)
        stop_s = start_s + rng.uniform(0.1, 2.5)
        found = energy(trace, Window(start_s * 1e6, stop_s * 1e6), Window(0.3e6, 1.1e6)).gross_mj
        begun, ended = (1e3 * float(joules) for joules in load.joules(np.array([start_s, stop_s])))
        inside.append(abs(found.value - (ended - begun)) <= 2 * found.uncertainty)
    assert np.mean(inside) >= 0.95


def test_every_joule_is_in_the_trace_once_however_it_is_taken() -> None:
    rng = np.random.default_rng(3)
    readings = _readings(Load.drawn(rng), rng)
    whole = _trace(readings)
    all_at_once = whole.take()
    assert whole.wraps > 1
    piecewise = CounterTrace(INFO)
    pieces = []
    for number, reading in enumerate(readings):
        piecewise.add(*reading)
        if number % 37 == 0:
            pieces.append(piecewise.take())
    pieces.append(piecewise.take())
    assert np.concatenate([piece.ticks for piece in pieces]).tolist() == all_at_once.ticks.tolist()
    assert np.concatenate([piece.energy_nj for piece in pieces]).tolist() == all_at_once.energy_nj.tolist()
    assert sum(piece.lost for piece in pieces) == all_at_once.lost > 0
    figures = PieceFigures(1.0)
    for piece in pieces:
        figures.take(piece)
    reading = figures.reading()
    edges = np.array([all_at_once.ticks[0], all_at_once.ticks[-1] + 1]) * 10_000
    times, counts = np.array(readings, dtype=np.int64).T
    unwrapped = np.cumsum(np.concatenate([[0], np.diff(counts) % RANGE]))
    begun, ended = np.interp(edges, times, unwrapped)
    assert reading.joules == pytest.approx((ended - begun) / 1e6, rel=1e-9)
    assert (reading.volts, reading.amperes) == (None, None)
    assert reading.lost == all_at_once.lost


def test_a_counter_that_begins_again_is_counted_on() -> None:
    trace = CounterTrace(INFO)
    for number in range(301):
        trace.add(1_000_000 + number * 10_000, (RANGE - 500_000 + number * 100_000) % RANGE)
    taken = trace.take()
    assert trace.wraps == 2
    assert taken.power_w == pytest.approx(np.full(300, 10.0))
    assert taken.lost == 0


def test_three_counters_of_three_ranges_are_one_sum() -> None:
    trace = CounterTrace(INFO, ranges := (1_000_000, 2_000_000, 262_143_328_850))
    for number in range(201):
        trace.add(number * 10_000, *((range_uj - 250_000 + number * 100_000) % range_uj for range_uj in ranges))
    taken = trace.take()
    assert trace.wraps == 20 + 10 + 1
    assert taken.power_w == pytest.approx(np.full(200, 30.0))
    assert not taken.clock_faults


def test_a_counter_beyond_its_range_is_told() -> None:
    trace = CounterTrace(INFO)
    for number, energy_uj in enumerate((RANGE + 300_000, 200_000, 300_000)):
        trace.add(number * 10_000, energy_uj)
    assert "a counter of 20 J moved by -0 J" in "".join(trace.take().clock_faults)


def test_late_readings_leave_a_gap_whose_energy_is_known() -> None:
    """5 W, and 25 W in the 100 ms without a reading."""
    trace = CounterTrace(INFO)
    for number in [*range(101), *range(110, 301)]:
        joules = 0.05 * number + (2.0 if number >= 110 else 0.0)
        trace.add(number * 10_000, round(joules * 1e6) % RANGE)
    taken = trace.take()
    assert taken.lost == 10
    found = energy(taken, Window(0.8e6, 1.3e6), Window(0.1e6, 0.7e6))
    assert found.gross_mj.value == pytest.approx(2500 + 2000)
    assert found.lost_ticks == 10
    assert found.idle_power_w.value == pytest.approx(5.0)


@pytest.mark.parametrize(("read", "lost"), [([0, *range(20, 300)], 20), ([*range(280), 300], 21)])
def test_a_gap_at_either_end_is_known_too(read: list[int], lost: int) -> None:
    trace = CounterTrace(INFO)
    for number in read:
        trace.add(number * 10_000, number * 50_000 % RANGE)
    taken = trace.take()
    assert taken.lost == lost
    found = energy(taken, Window(0.1e6, 2.9e6), Window(0.5e6, 0.9e6))
    assert found.gross_mj.value == pytest.approx(2.8 * 5000)


@pytest.mark.parametrize("read", [[0, *range(20, 300)], [*range(280), 300]])
def test_the_mean_is_over_the_time_of_all_joules(read: list[int]) -> None:
    trace = CounterTrace(INFO)
    for number in read:
        trace.add(number * 10_000, number * 50_000 % RANGE)
    figures = PieceFigures(1.0)
    figures.take(trace.take())
    reading = figures.reading()
    assert (reading.mean_watts, reading.lost) == (pytest.approx(5.0), 20 if read[1] == 20 else 21)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FSJOULE_POWERCAP", str(tmp_path / "powercap"))
    return tmp_path / "powercap"


def test_a_zone_is_a_meter(folder: Path) -> None:
    """Real time, on a busy computer: the emulator's counter may itself be late."""
    counter = zone(folder, "intel-rapl:0", lambda _: 12.0, range_uj=9_000_000, start_uj=8_000_000)
    with counter, PowercapMeter("intel-rapl:0") as meter:
        meter.arm()
        time.sleep(0.6)
        meter.mark_now("begin")()
        time.sleep(0.6)
        meter.mark_now("end")()
        trace = meter.disarm()
        with pytest.raises(MeterError, match="was not armed"):
            meter.disarm()
    begin, end = trace.marks
    assert (begin.text, end.text, begin.source) == ("begin", "end", MarkSource.HOST)
    window = Window(float(begin.time_us), float(end.time_us))
    idle = Window(window.start_us - 450_000, window.start_us - 50_000)
    assert energy(trace, window, idle).mean_power_w.value == pytest.approx(12.0, rel=0.15)
    assert meter.info().serial_number.endswith("intel-rapl:0 package-0")


def test_a_counter_that_stands_still_or_goes_is_said_to(folder: Path) -> None:
    still = zone(folder, "intel-rapl:0", lambda _: 0.0)
    with still, PowercapMeter("intel-rapl:0") as meter, pytest.raises(MeterError, match="stands still"):
        meter.arm()
    with zone(folder, "intel-rapl:1", lambda _: 12.0) as path, PowercapMeter("intel-rapl:1") as meter:
        meter.arm()
        (path / "energy_uj").unlink()
        with pytest.raises(MeterError, match=r"energy_uj cannot be read: No such file"):
            meter.disarm()
    for name in ("intel-rapl:7", "../intel-rapl:0"):
        with pytest.raises(MeterError, match="there is no energy counter"):
            PowercapMeter(name)


def test_a_zone_may_be_named_by_its_path(tmp_path: Path) -> None:
    with zone(tmp_path, "intel-rapl:0", lambda _: 12.0) as path, PowercapMeter(str(path)) as meter:
        assert meter.info().serial_number.endswith("intel-rapl:0 package-0")
    with pytest.raises(MeterError, match=f"there is no energy counter {tmp_path}/intel-rapl:1"):
        PowercapMeter(f"{tmp_path}/intel-rapl:1")


def test_a_zone_that_holds_no_count_is_listed_with_the_reason(folder: Path) -> None:
    (folder / "intel-rapl:0").mkdir(parents=True)
    (folder / "intel-rapl:0" / "energy_uj").write_text("none\n")
    (folder / "intel-rapl:0" / "max_energy_range_uj").write_text("1000\n")
    (folder / "intel-rapl:0" / "name").write_text("package-0\n")
    (folder / "dtpm").mkdir()
    (found,) = find()
    assert found.info is None
    assert "holds no count: 'none'" in found.why_not


def test_the_commands_take_a_zone(folder: Path, tmp_path: Path, fsjoule: CommandLine) -> None:
    address = ("--meter", "powercap:intel-rapl:0")
    with zone(folder, "intel-rapl:0", lambda _: 12.0):
        listed = fsjoule("meter", "list", "--json")
        assert listed.code == 0
        (found,) = (each for each in listed.document if each["address"] == address[1])
        assert found["meter"]["instrument"] == POWERCAP
        assert found["name"] == found["meter"]["serial_number"]
        watched = fsjoule("meter", "watch", *address, "--seconds", "1", "--json").out.splitlines()
        last = json.loads(watched[-1])
        assert last["joules"] > 5
        assert last["volts"] is None
        kept = tmp_path / "trace.parquet"
        recorded = fsjoule("meter", "record", *address, "--seconds", "0.5", "-o", str(kept), "--json")
        document = recorded.document
        assert document["mean_watts"] == pytest.approx(12.0, rel=0.2)
        assert len(read_trace(kept).ticks) == document["received"] > 20
        ran = fsjoule("meter", "run", *address, "--idle", "0.3", "--json", "--", "sleep", "0.5")
        assert ran.code == 0
        (run,) = json.loads(ran.err.strip().split("\n")[-1])["runs"]
        assert "joules" in run, run["remarks"]
        assert run["joules"]["value"] == pytest.approx(12 * run["window_seconds"], rel=0.2)
        assert run["joules"]["uncertainty"] > 0.02 * run["joules"]["value"]
        told = fsjoule("meter", "info", *address, "--json").document
        assert told["expected_uncertainty"]["total_w"] == pytest.approx(1.25 * 0.05 / 3**0.5)
        refused = fsjoule("meter", "calibrate", *address, "--zero")
        assert refused.code == 2
        assert "fsjoule meter info, watch, record and run take it" in refused.err


def test_several_processors_are_one_meter_and_each_says_that_it_is_a_part(folder: Path, fsjoule: CommandLine) -> None:
    """The same package through MMIO, and a part of it, are no further processors."""
    with zone(folder, "intel-rapl:0", lambda _: 12.0), zone(folder, "intel-rapl:1", lambda _: 30.0) as second:
        (second / "name").write_text("package-1\n")
        for name, label in (("intel-rapl-mmio:0", "package-0"), ("intel-rapl:0:0", "dram")):
            (folder / name).mkdir()
            for file, text in (("name", label), ("max_energy_range_uj", "9000000"), ("energy_uj", "5")):
                (folder / name / file).write_text(f"{text}\n")
        names = {each.address: (each.where, each.name) for each in find()}
        assert names["powercap:packages"][1].endswith("intel-rapl:0 package-0 + intel-rapl:1 package-1")
        assert names["powercap:intel-rapl:1"][0] == "this computer's processor, one of 2 processors"
        assert names["powercap:intel-rapl:0:0"][0] == "this computer's processor"
        address = ("meter", "record", "--seconds", "0.5", "--json", "-o", str(folder / "trace.csv"), "--meter")
        both = fsjoule(*address, "powercap:packages").document
        assert (both["mean_watts"], both["faults"]) == (pytest.approx(42.0, rel=0.2), [])
        one = fsjoule(*address, "powercap:intel-rapl:0").document
        assert one["faults"] == ["intel-rapl:0 is one of 2 processors: powercap:packages is their sum"]


@pytest.mark.parametrize(
    ("readings", "told"),
    [
        ([(0, 5), (10_000, 60_000)], False),
        ([(0, 200_000_000), (10_000, 3)], True),  # set back by a suspend
        ([(0, 5), (90_000_000, 100_000)], True),  # 90 s without a reading: a turn may have been missed
        ([(0, 5), (60_000_000, 100_000)], False),
    ],
)
def test_turns_of_a_counter_that_cannot_be_seen_are_told(readings: list[tuple[int, int]], *, told: bool) -> None:
    trace = CounterTrace(INFO, (65_532_610_987.0,))
    for time_us, energy_uj in readings:
        trace.add(time_us, energy_uj)
    assert bool(trace.take().clock_faults) is told
