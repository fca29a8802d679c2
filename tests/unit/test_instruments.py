"""Any instrument's trace gives joules, is stored and read, and is judged; one that is not known is said so."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from fake_bench import answer, bench_of, entry
from plain_traces import PLAIN, plain_trace_of
from results_factory import make_run
from traces import INFO, trace_of

from fsjoule.bench.instrument import check_meter
from fsjoule.errors import InstrumentError, MeasurementInvalid
from fsjoule.meter.energy import energy, validity
from fsjoule.meter.energy.ina219 import Ina219
from fsjoule.model import CurrentMonitor, Ina219Trace, Mark, MarkSource, PlainTrace, Value, Window
from fsjoule.model.meter import READ_S
from fsjoule.report.facts import run_facts
from fsjoule.store.schemas import RUN, decode, encode
from fsjoule.store.traces import encode_trace, read_trace
from fsjoule.testing import FakeMeter, FakeShell

WORK, IDLE = Window(1_500_250.0, 3_100_750.0), Window(1_050_000.0, 1_300_000.0)


def _load(bus_step: int = 5) -> Ina219Trace:
    """A load that changes in steps, with two frames lost and a tick missed."""
    steps = 2500 + 7 * (np.arange(3000) % 13)
    return trace_of(steps, bus_raw=1250 + bus_step * (np.arange(3000) % 3), lost={40, 77}, missed={1200})


def test_the_joules_of_our_own_meter_stay_the_same_to_the_digit() -> None:
    """As of before there were other instruments, but for what is known of the times of samples and marks."""
    trace = _load(bus_step=1)
    as_before = {"shift_s": 0.0, "sharpening": 0.0, "sample_s": 1e-3}
    result = energy(trace, WORK, IDLE, dataclasses.replace(Ina219.of(trace.info), **as_before))
    assert result.gross_mj == Value(2035.8670287999996, 16.077478121120276)
    assert result.net_mj == Value(-0.11429660000025066, 1.947185442621349)
    assert result.idle_power_w == Value(1.2720908, 0.010008221392520538)
    assert result.mean_power_w == Value(1.2720193869415806, 0.009959445264032658)
    assert (result.check_mj, result.check_sum_mj) == (1932.2480527999999, 1932.2480527999999)


def _shift_us(rate_hz: int, adc_config: int, source: MarkSource, *, simulated: bool = False) -> float:
    info = dataclasses.replace(INFO, rate_hz=rate_hz, adc_config=adc_config, simulated=simulated)
    return Ina219.of(info, source).shift_s * 1e6


def test_what_is_known_of_the_times_of_samples_and_marks() -> None:
    """By hand: half a turn and half a conversion of the shunt old, read 300 us after a tick, a mark of one byte."""
    byte_us = 10e6 / 115200
    assert _shift_us(625, 0x099F, MarkSource.LINE, simulated=True) == pytest.approx(532 + 266 - 800)
    assert _shift_us(625, 0x099F, MarkSource.RISING) == pytest.approx(532 + 266 - 800 - 300)
    assert _shift_us(625, 0x099F, MarkSource.LINE) == pytest.approx(532 + 266 - 800 - 300 - byte_us)
    assert _shift_us(1000, 0x091F, MarkSource.HOST, simulated=True) == pytest.approx(404 + 266 - 500)
    assert _shift_us(200, 0x0D57, MarkSource.RISING, simulated=True) == pytest.approx(2128 + 1064 - 2500)


@pytest.mark.parametrize(("rate_hz", "adc_config", "turn_us"), [(625, 0x099F, 1064), (1000, 0x091F, 808)])
def test_a_step_at_a_mark_costs_nothing_on_average(rate_hz: int, adc_config: int, turn_us: float) -> None:
    """By simulation: moments and the samples that show them are apart by x; a window a tick away by x + tick."""
    random, tick_us = np.random.default_rng(4), 1e6 / rate_hz
    apart_us = sum(random.uniform(-width / 2, width / 2, 1_000_000) for width in (tick_us, turn_us, 532.0))
    here, before, after = (np.abs(apart_us + by_us).mean() for by_us in (0.0, -tick_us, tick_us))
    instrument = Ina219.of(dataclasses.replace(INFO, rate_hz=rate_hz, adc_config=adc_config))
    lost_us = (1 + 2 * instrument.sharpening) * here - instrument.sharpening * (before + after)
    assert here > 250
    assert abs(lost_us) < 2
    assert instrument.sample_s * 1e6 / math.sqrt(3) == pytest.approx(np.std(apart_us), rel=0.01)


def test_sharper_ends_leave_a_steady_load_alone_and_need_a_tick_more() -> None:
    """The windows before and after have the same energy; at the end of the trace there is none after it."""
    steady = trace_of(np.full(3000, 2500))
    step = trace_of(np.where(np.arange(3000) < 1500, 2000, 4000))
    plain, sharp = dataclasses.replace(Ina219.of(INFO), sharpening=0.0, shift_s=0.0), Ina219.of(INFO)
    sharp = dataclasses.replace(sharp, shift_s=0.0)
    end_us = float(step.times_us[-1] + 1000)
    for trace, window, same in (
        (steady, WORK, True),
        (step, Window(1_500_000.0, 2_500_000.0), False),
        (step, Window(1_500_000.0, end_us), True),
    ):
        one, other = (energy(trace, window, IDLE, each).gross_mj.value for each in (plain, sharp))
        assert (one == pytest.approx(other, rel=1e-12)) is same


@pytest.mark.parametrize("source", [MarkSource.LINE, MarkSource.RISING, MarkSource.HOST])
def test_the_window_is_where_the_trace_shows_what_was_marked(source: MarkSource) -> None:
    """From 1 W to 2 W the energy tells where the window lies; an edge and a host's mark are no byte."""
    info = dataclasses.replace(INFO, simulated=False)
    shunt = np.where(np.arange(3000) < 1500, 2000, 4000)
    trace = trace_of(shunt, info=info, marks=[Mark(2_000_000, "S1", source)])
    window = Window(2_000_000.0, 3_000_000.0)
    plain, shifted = (
        energy(trace, window, IDLE, each).gross_mj.value
        for each in (dataclasses.replace(Ina219.of(info), shift_s=0.0), None)
    )
    assert shifted - plain == pytest.approx(_shift_us(1000, 0x091F, source) * 1e-3, rel=1e-3)


def test_another_instrument_gives_the_same_joules_of_the_same_load() -> None:
    """Gaps are bridged by its own sums, too; its errors are those that it is given."""
    ours, plain = _load(), plain_trace_of(_load())
    instrument = Ina219.of(ours.info)
    one, other = (energy(trace, WORK, IDLE, instrument) for trace in (ours, plain))
    assert other.gross_mj.value == pytest.approx(one.gross_mj.value, rel=1e-12)
    assert other.gross_mj.uncertainty == pytest.approx(one.gross_mj.uncertainty, rel=1e-5)
    assert other.lost_ticks == one.lost_ticks == 40
    assert validity.energy_complaints(other) == []
    wrong = plain.energy_nj.copy()
    wrong[1000] += 10
    (complaint,) = validity.energy_complaints(
        energy(dataclasses.replace(plain, energy_nj=wrong), WORK, IDLE, instrument)
    )
    assert "the samples add up to" in complaint


def test_without_a_voltage_there_is_no_current() -> None:
    plain = plain_trace_of(trace_of(np.full(100, 2500)))
    assert plain.current_a == pytest.approx(np.full(100, 0.25))
    silent = dataclasses.replace(plain, info=dataclasses.replace(PLAIN, measures_voltage=False))
    assert np.isnan(silent.voltage_v).all()
    assert np.isnan(silent.current_a).all()
    assert silent.power_w == pytest.approx(np.full(100, 1.25))


def test_an_instrument_that_is_not_known_costs_the_energy_and_nothing_else() -> None:
    with pytest.raises(MeasurementInvalid, match="does not know the instrument 'heliometer'"):
        energy(plain_trace_of(_load()), WORK, IDLE)
    bench = bench_of(shell=FakeShell(answer), meter=FakeMeter())
    wanted = entry(bench, "write-16k")
    marks = [Mark(2_500_000, f"S{wanted.number}"), Mark(2_530_000, f"E{wanted.number}")]
    trace = plain_trace_of(trace_of(np.full(3000, 2500), marks=marks))
    result = dataclasses.replace(bench, meter=FakeMeter(trace)).measure(wanted)
    assert "does not know the instrument 'heliometer'" in " ".join(result.invalid_reasons)
    assert result.energy is None
    assert result.throughput_mib_per_s


def test_a_plain_trace_comes_back_exactly(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    trace = dataclasses.replace(plain_trace_of(_load()), marks=(Mark(7, "fsjoule.trace/1"),), faults=("late",))
    path.write_bytes(encode_trace(trace))
    found = read_trace(path)
    assert isinstance(found, PlainTrace)
    for field in dataclasses.fields(trace):
        left, right = getattr(trace, field.name), getattr(found, field.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)
        else:
            assert left == right


def test_a_run_names_its_instrument() -> None:
    run = dataclasses.replace(make_run().run, meter=PLAIN)
    content = encode(RUN, run, "the run")
    assert decode(RUN, content, run.schema, Path("run.json")).meter == PLAIN
    told = {name: value for _, facts in run_facts(run) for name, value in facts}
    assert told["instrument"] == "heliometer"
    assert told["update us"] == "976.5"


@pytest.mark.parametrize("chip", [CurrentMonitor.INA219, CurrentMonitor.INA228])
def test_a_run_names_the_chip_of_its_meter(chip: CurrentMonitor) -> None:
    run = dataclasses.replace(make_run().run, meter=dataclasses.replace(INFO, chip=chip))
    told = {name: value for _, facts in run_facts(run) for name, value in facts}
    assert told["chip"] == chip.value


def test_another_instrument_is_not_the_meter_of_the_run() -> None:
    ours = trace_of([1]).info
    check_meter(PLAIN, PLAIN)
    with pytest.raises(InstrumentError, match=r"instrument was ina219, it is heliometer now; serial was t, it is H1"):
        check_meter(ours, PLAIN)
    other = dataclasses.replace(PLAIN, settings={"update_us": 1000.0})
    with pytest.raises(InstrumentError, match=r"update us was 976\.5, it is 1000\.0 now"):
        check_meter(PLAIN, other)


def test_a_meter_that_is_timed_anew_is_still_the_meter_of_the_run() -> None:
    """An instrument answers faster or slower each time that it is opened."""
    first, then = (
        dataclasses.replace(PLAIN, rate_hz=rate_hz, settings={"volts_share": 1e-3, READ_S: read_s})
        for rate_hz, read_s in ((9, 0.1042), (10, 0.0991))
    )
    check_meter(first, then)
    other = dataclasses.replace(then, settings=then.settings | {"volts_share": 2e-3})
    with pytest.raises(InstrumentError, match=r"volts share was 0\.001, it is 0\.002 now"):
        check_meter(first, other)
    with pytest.raises(InstrumentError, match="rate was 1000 samples/s, it is 500 samples/s now"):
        check_meter(PLAIN, dataclasses.replace(PLAIN, rate_hz=500))


@pytest.mark.parametrize(
    ("bus", "adc_config", "words"),
    [
        (3999, 0x091F, ""),
        (4000, 0x091F, "2 samples of the window reached the end of the bus voltage's range of 16 V"),
        (4000, 0x291F, ""),
        (8000, 0x291F, "2 samples of the window reached the end of the bus voltage's range of 32 V"),
    ],
)
def test_a_supply_above_the_bus_range_is_no_voltage(bus: int, adc_config: int, words: str) -> None:
    """20 V times 0.2 A used to read 3.200 W with an uncertainty of 26 mW: the chip goes on saying 16 V."""
    volts = np.full(1000, 1250)
    volts[500:502] = bus
    info = dataclasses.replace(trace_of([1]).info, adc_config=adc_config)
    trace = trace_of(np.full(1000, 2500), bus_raw=volts, info=info)
    complaints = validity.clipping_complaints(trace, Window(1_400_000, 1_600_000), "the window")
    assert len(complaints) == bool(words)
    assert words in "".join(complaints)
    assert validity.clipping_complaints(trace, Window(1_100_000, 1_200_000), "the window") == []


def test_clipped_samples_of_another_instrument() -> None:
    plain = plain_trace_of(trace_of(np.full(1000, 2500)))
    flags = plain.clipped_samples.copy()
    flags[500] = 1
    (complaint,) = validity.clipping_complaints(
        dataclasses.replace(plain, clipped_samples=flags), Window(1_400_000, 1_600_000), "the window"
    )
    assert complaint.startswith("1 sample of the window reached the end of the range of the heliometer")
