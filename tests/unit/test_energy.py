"""Energy of windows, and what its uncertainty is made of."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import INFO, trace_of

from fsjoule.errors import MeasurementInvalid
from fsjoule.meter.energy import energy, per_mib
from fsjoule.meter.energy.ina219 import Ina219
from fsjoule.meter.energy.validity import ValidityLimits
from fsjoule.model import (
    MIB,
    Energy,
    MarkSource,
    MeterCalibration,
    Trace,
    Value,
    Window,
)

IDLE = Window(1_000_000, 1_400_000)
WORK = Window(1_600_000, 2_600_000)
PERFECT = Ina219(
    shunt_rounding_v=0,
    bus_rounding_v=0,
    offset_v=0,
    offset_bus_v=None,
    offset_per_volt=0,
    gain=0,
    shunt=0,
    reference=0,
    mark_s=0,
    sample_s=0,
    shift_s=0,
    ohm=0.1,
)
REAL = dataclasses.replace(INFO, simulated=False)
# At 1000 samples a second: where in its tick, in the chip's turn, and in the shunt's conversion a moment lies.
DISPLACED_S = math.hypot(1e-3, 808e-6, 532e-6) / 2
SQRT3 = math.sqrt(3)
Load = npt.NDArray[np.int64]


def busy(random: np.random.Generator, ticks: int = 2000) -> Load:
    """A load that changes from tick to tick and in bursts, about 1.25 W."""
    bursts = np.repeat(random.integers(0, 600, ticks // 50), 50)
    return 2200 + bursts + random.integers(-40, 40, ticks)


def inexact(trace: Trace, window: Window | None = None) -> Energy:
    """With an instrument that has no error, so that what is left comes from the load and the gaps."""
    return energy(trace, window or WORK, IDLE, PERFECT)


# ---------------------------------------------------------------------------------------------------------- integral


def test_constant_power_times_time() -> None:
    trace = trace_of(np.full(2000, 2500))  # 25 mV over 0.1 Ohm at 5 V: 1.25 W
    result = energy(trace, Window(1_500_250.0, 2_500_750.0), IDLE)
    assert result.mean_power_w.value == pytest.approx(1.25)
    assert result.gross_mj.value == pytest.approx(1.25 * 1.0005 * 1e3)
    assert result.net_mj.value == pytest.approx(0, abs=1e-9)
    assert result.power_sd_w == pytest.approx(0)
    assert (result.lost_ticks, result.missed_ticks) == (0, 0)


def test_idle_power_is_taken_off() -> None:
    trace = trace_of(np.concatenate([np.full(500, 2200), np.full(1500, 2600)]))
    result = energy(trace, Window(1_600_000, 2_600_000), IDLE)
    assert result.idle_power_w.value == pytest.approx(1.1)
    assert result.gross_mj.value == pytest.approx(1300)
    assert result.net_mj.value == pytest.approx(200)


def test_the_calibration_is_applied() -> None:
    calibration = MeterCalibration(shunt_offset_nv=500_000, current_gain_ppm=10_000, bus_gain_ppm=-2000)
    info = dataclasses.replace(INFO, calibration=calibration)
    result = energy(trace_of(np.full(2000, 2550), info=info), Window(1_500_000, 2_500_000), IDLE)
    assert result.gross_mj.value == pytest.approx(1250 * 1.01 * 0.998)
    assert result.check_mj == pytest.approx(result.gross_mj.value)
    # A lost frame is bridged with the calibration applied, too.
    holed = energy(trace_of(np.full(2000, 2550), info=info, lost=[40, 41]), Window(1_500_000, 2_500_000), IDLE)
    assert holed.gross_mj.value == pytest.approx(result.gross_mj.value)


def loads(length: int, least: int, largest: int) -> st.SearchStrategy[Load]:
    """Noise, and a few samples of any value. To draw each of a thousand samples takes seconds."""

    def load(seed: int, chosen: dict[int, int]) -> Load:
        made = np.random.default_rng(seed).integers(least, largest + 1, length)
        made[list(chosen)] = list(chosen.values())
        return made

    places, values = st.integers(0, length - 1), st.integers(least, largest)
    return st.builds(load, st.integers(0, 2**32), st.dictionaries(places, values, max_size=20))


@given(loads(1200, -4000, 7999), st.floats(0, 999.9), st.floats(1, 600))
def test_windows_add_up(shunt: Load, offset_us: float, length_ms: float) -> None:
    """The energy of a window is that of its two halves, wherever in a tick they meet."""
    trace = trace_of(shunt)
    start = 1_450_000 + offset_us
    middle, stop = start + length_ms * 300, start + length_ms * 1000
    whole, first, second = (
        energy(trace, Window(a, b), IDLE).gross_mj.value for a, b in ((start, stop), (start, middle), (middle, stop))
    )
    assert whole == pytest.approx(first + second, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("rate_hz", [100, 800, 2000])
def test_any_rate(rate_hz: int) -> None:
    info = dataclasses.replace(INFO, rate_hz=rate_hz)
    trace = trace_of(np.full(4 * rate_hz, 2500), start_tick=rate_hz, info=info)
    result = energy(trace, Window(1_500_250.0, 3_500_750.0), IDLE)
    assert result.gross_mj.value == pytest.approx(1.25 * 2.0005 * 1e3)


@pytest.mark.parametrize(
    "window", [Window(500_000, 1_600_000), Window(1_600_000, 9_000_000), Window(1_700_000, 1_700_000)]
)
def test_a_window_outside_of_the_trace_is_refused(window: Window) -> None:
    with pytest.raises(MeasurementInvalid):
        energy(trace_of(np.full(1000, 2500)), window, IDLE)


def test_a_trace_without_samples_is_refused() -> None:
    with pytest.raises(MeasurementInvalid, match="no samples"):
        energy(trace_of([]), Window(1_500_000, 1_600_000), IDLE)


def test_energy_per_mib() -> None:
    assert per_mib(Value(200, 2), 4 * MIB) == Value(50, 0.5)
    assert per_mib(Value(200, 2), 0) is None


# -------------------------------------------------------------------------------------------------- gaps and the check


@given(
    seed=st.integers(0, 2**32),
    lost=st.sets(st.integers(1, 98), max_size=60),
    start_ms=st.floats(1410, 1800),
    length_ms=st.floats(100, 1100),
)
def test_lost_frames_cost_no_joules(seed: int, lost: set[int], start_ms: float, length_ms: float) -> None:
    """Exact where a gap lies in the window; within the stated limits where a mark lies in a gap."""
    load = busy(np.random.default_rng(seed))
    window = Window(start_ms * 1e3, (start_ms + length_ms) * 1e3)
    whole, holed = inexact(trace_of(load), window), inexact(trace_of(load, lost=lost), window)
    # The standard uncertainty of a rectangular distribution is its limit / sqrt 3; two marks may lie in gaps.
    limit = SQRT3 * math.sqrt(2) * holed.gross_budget.gaps_mj
    assert abs(holed.gross_mj.value - whole.gross_mj.value) <= limit + 1e-6
    assert (holed.check_mj is None) or holed.check_mj == pytest.approx(holed.check_sum_mj, rel=1e-12)


def test_a_gap_within_the_window_is_exact() -> None:
    load = busy(np.random.default_rng(1))
    whole, holed = inexact(trace_of(load)), inexact(trace_of(load, lost=range(35, 70)))
    assert holed.gross_mj.value == pytest.approx(whole.gross_mj.value, rel=1e-12)
    assert holed.gross_budget.gaps_mj == 0
    assert (holed.lost_ticks, holed.missed_ticks) == (700, 0)


def test_a_mark_within_a_gap_widens_the_uncertainty() -> None:
    """Half of the energy of a gap of 40 ms between 1.0 W and 1.5 W may be off by 40 ms * 0.5 W / 4."""
    load = np.concatenate([np.full(600, 2000), np.full(1400, 3000)])
    holed = inexact(trace_of(load, lost=[29, 30]), Window(1_600_000, 2_600_000))  # the gap is 1.58 to 1.62 s
    assert holed.gross_budget.gaps_mj == pytest.approx(40 * 0.5 / 4 / SQRT3)
    assert holed.gross_mj.value == pytest.approx(1500 - 20 * 0.25)


def test_a_gap_at_the_end_of_the_trace_is_not_bridged() -> None:
    load = np.full(1000, 2500)
    with pytest.raises(MeasurementInvalid, match="does not reach over the window"):
        energy(trace_of(load, lost=[49]), Window(1_500_000, 1_990_000), IDLE)


def test_missed_ticks_are_filled_with_their_neighbours() -> None:
    load = np.full(2000, 2000)
    load[800:] = 3000
    result = inexact(trace_of(load, missed=[800, 801, 1200]))
    # 2000 and 3000 are the neighbours of the first two: half a watt less than what was drawn, for two ticks of 1 ms.
    assert result.gross_mj.value == pytest.approx(1000 * 0.2 + 1500 * 0.8 - 2 * 0.25)
    assert (result.lost_ticks, result.missed_ticks) == (0, 3)
    assert result.gross_budget.gaps_mj == pytest.approx(0.5 * math.hypot(2, 1) / SQRT3)
    assert result.check_mj == pytest.approx(result.check_sum_mj)


@given(
    seed=st.integers(0, 2**32),
    missed=st.sets(st.integers(20, 1979), max_size=4),
    lost=st.sets(st.integers(1, 90), max_size=30),
)
def test_missed_and_lost_together_stay_within_the_limits(seed: int, missed: set[int], lost: set[int]) -> None:
    load = busy(np.random.default_rng(seed))
    whole, holed = inexact(trace_of(load)), inexact(trace_of(load, missed=missed, lost=lost))
    difference_w = (load.max() - load.min()) * INFO.power_lsb_w * 1250
    limit_mj = (holed.missed_ticks + 1) * difference_w + 2 * SQRT3 * holed.gross_budget.gaps_mj
    assert abs(holed.gross_mj.value - whole.gross_mj.value) <= limit_mj + 1e-6


def test_too_many_missed_ticks_are_refused() -> None:
    load = np.full(2000, 2500)
    window = Window(1_600_000, 2_600_000)
    assert energy(trace_of(load, missed=range(700, 710)), window, IDLE).missed_ticks == 10
    with pytest.raises(MeasurementInvalid, match=r"missed 11 of the 1000 ticks of the window; allowed are 1\.0%"):
        energy(trace_of(load, missed=range(700, 711)), window, IDLE)
    with pytest.raises(MeasurementInvalid, match=r"missed 5 of the 400 ticks of the idle window"):
        energy(trace_of(load, missed=range(100, 105)), window, IDLE)
    assert energy(trace_of(load, missed=range(700, 720)), window, IDLE, limits=ValidityLimits(missed_fraction=0.02))


@given(loads(1000, 0, 7999), st.integers(0, 300), st.integers(30, 300))
def test_samples_equal_the_cumulative_energy(shunt: Load, start_ms: int, length_ms: int) -> None:
    trace = trace_of(shunt)
    begin = 1_400_000 + start_ms * 1000 + 400
    result = energy(trace, Window(begin, begin + min(length_ms, 250) * 1000), IDLE)
    assert result.check_mj == pytest.approx(result.check_sum_mj, rel=1e-12, abs=1e-12)
    tick_mj = int(shunt.max()) * 1250 * trace.info.power_lsb_w
    assert abs(result.check_sum_mj - result.gross_mj.value) <= 2 * tick_mj + 1e-9


def test_a_sample_that_arrives_wrong_shows_in_the_cumulative_energy() -> None:
    trace = trace_of(np.full(2000, 2500))
    wrong = trace.shunt_raw.copy()
    wrong[800] += 100
    result = energy(dataclasses.replace(trace, shunt_raw=wrong), Window(1_500_000, 2_500_000), IDLE)
    assert result.check_mj is not None
    assert result.check_sum_mj - result.check_mj == pytest.approx(0.05)


# ---------------------------------------------------------------------------------------------------------- uncertainty


def test_uncertainty_of_a_meter_without_calibration() -> None:
    """25 mV at 0.1 Ohm and 5 V for 2 s, by hand from the data sheet."""
    trace = trace_of(np.full(3000, 2500), info=REAL)
    result = energy(trace, Window(1_500_000, 3_500_000), IDLE)
    budget = result.gross_budget
    drift = 0.005 / 6
    offset_v = math.hypot(125e-6, 1e-6, 10e-6 * 7)
    assert budget.shunt_mj == pytest.approx(2500 * 0.01 / SQRT3)
    assert budget.gain_mj == pytest.approx(2500 * math.hypot(0.005, 0.005, drift, drift) / SQRT3)
    assert budget.offset_mj == pytest.approx(2500 * offset_v / 25e-3 / SQRT3)
    assert budget.shunt_rounding_mj == pytest.approx(2500 * 5e-6 / 25e-3 / SQRT3)
    assert budget.bus_rounding_mj == pytest.approx(2500 * 4e-3 / 5 / SQRT3)
    assert budget.marks_mj == pytest.approx(1250 * math.sqrt(2) * 50e-6 / SQRT3)
    assert (budget.slack_mj, budget.gaps_mj, budget.idle_mj, budget.sampling_mj) == (0, 0, 0, 0)
    assert result.gross_mj.uncertainty == pytest.approx(
        math.hypot(*(getattr(budget, field.name) for field in dataclasses.fields(budget)))
    )
    without_marks = math.sqrt(budget.total_mj**2 - budget.marks_mj**2)
    assert result.mean_power_w.uncertainty == pytest.approx(without_marks / 2000)


def test_the_net_energy_knows_no_offset() -> None:
    trace = trace_of(np.concatenate([np.full(500, 2200), np.full(2500, 2600)]))
    result = energy(trace, Window(1_600_000, 3_600_000), IDLE)
    gross, net = result.gross_budget, result.net_budget
    assert net.offset_mj == 0
    assert net.shunt_mj == pytest.approx(gross.shunt_mj * 0.2 / 1.3)
    assert net.gain_mj == pytest.approx(gross.gain_mj * 0.2 / 1.3)
    assert net.shunt_rounding_mj == pytest.approx(gross.shunt_rounding_mj * math.sqrt(2))
    assert result.net_mj.uncertainty == net.total_mj < gross.total_mj


def test_a_calibration_narrows_the_uncertainty() -> None:
    load = np.full(3000, 2500)
    totals: list[float] = []
    for calibration in (
        MeterCalibration(),
        MeterCalibration(zero_date=1),
        MeterCalibration(zero_date=1, gain_date=1, gain_uncertainty_ppm=500),
    ):
        info = dataclasses.replace(REAL, calibration=calibration)
        budget = energy(trace_of(load, info=info), Window(1_500_000, 3_500_000), IDLE).gross_budget
        totals.append(budget.total_mj / 2500)
    uncalibrated, zeroed, gained = totals
    assert uncalibrated == pytest.approx(0.0079, abs=0.0001)
    assert zeroed == pytest.approx(0.0072, abs=0.0001)
    assert gained == pytest.approx(0.0012, abs=0.00005)


@pytest.mark.parametrize(
    ("range_mv", "limit_v"), [(40, 100e-6), (80, 125e-6), (160, 150e-6), (320, 200e-6), (77, 200e-6)]
)
def test_the_offset_depends_on_the_range(range_mv: int, limit_v: float) -> None:
    instrument = Ina219.of(dataclasses.replace(INFO, shunt_range_mv=range_mv))
    assert instrument.offset_at(12.0) == pytest.approx(math.hypot(limit_v, 1e-6))
    assert instrument.offset_at(5.0) == pytest.approx(math.hypot(limit_v, 1e-6, 70e-6))


@pytest.mark.parametrize(
    ("adc_config", "shunt_v", "bus_v"),
    [
        (0x019F, 5e-6, 2e-3),  # both 12 bits
        (0x091F, 5e-6, 4e-3),  # shunt 12 bits, bus 11
        (0x089F, 5e-6, 8e-3),  # bus 10 bits
        (0x0897, 10e-6, 8e-3),  # shunt 11 bits
        (0x0D6F, 5e-6, 2e-3),  # averages of 4 and 32
    ],
)
def test_rounding_follows_the_converters(adc_config: int, shunt_v: float, bus_v: float) -> None:
    instrument = Ina219.of(dataclasses.replace(INFO, adc_config=adc_config))
    assert (instrument.shunt_rounding_v, instrument.bus_rounding_v) == pytest.approx((shunt_v, bus_v))


def test_a_mark_is_as_late_as_its_way_is_long() -> None:
    sources = (MarkSource.RISING, MarkSource.FALLING, MarkSource.LINE, MarkSource.HOST)
    assert [Ina219.of(REAL, source).mark_s for source in sources] == [50e-6, 50e-6, 50e-6, 5e-3]
    assert [Ina219.of(INFO, source).mark_s for source in sources] == [2e-3, 2e-3, 2e-3, 5e-3]


def test_the_load_at_the_marks_says_what_they_may_be_off() -> None:
    """From 0 W to 1.25 W at the start: late by 50 us at most at either end, and displaced at the start."""
    load = np.concatenate([np.full(600, 0), np.full(1400, 2500)])
    budget = energy(trace_of(load, info=REAL), WORK, IDLE).gross_budget
    late, displaced = 1250 * 50e-6, 1250 * DISPLACED_S
    assert budget.marks_mj == pytest.approx(math.hypot(late, late, displaced, displaced) / SQRT3)
    later = energy(trace_of(load, info=REAL), Window(1_610_000, 2_610_000), IDLE).gross_budget
    assert later.marks_mj == pytest.approx(math.hypot(late, late) / SQRT3)


def test_a_window_between_two_levels_may_be_displaced() -> None:
    load = np.concatenate([np.full(1500, 1000), np.full(1500, 2000)])
    budget = energy(trace_of(load, info=REAL), Window(1_600_000, 3_600_000), IDLE).net_budget
    assert budget.marks_mj == pytest.approx(math.hypot(500 * 50e-6, 500 * DISPLACED_S) / SQRT3)


def test_noise_counts_as_it_averages() -> None:
    """White noise of SD s on n samples of one tick each: s / sqrt n of the mean."""
    random = np.random.default_rng(5)
    load = 2500 + np.round(random.normal(0, 100, 6000))
    result = inexact(trace_of(load), Window(1_500_000, 6_500_000))
    assert result.gross_budget.sampling_mj == pytest.approx(0.05 * math.sqrt(5000), rel=0.05)


def test_a_slow_change_of_the_load_is_no_noise() -> None:
    load = np.linspace(1000, 3000, 6000).astype(np.int64)
    result = inexact(trace_of(load), Window(1_500_000, 6_500_000))
    assert result.power_sd_w > 0.2
    assert result.gross_budget.sampling_mj < 0.05


def test_a_window_longer_than_its_work_is_less_certain() -> None:
    trace = trace_of(np.concatenate([np.full(500, 2200), np.full(2500, 2600)]))
    window = Window(1_600_000, 3_600_000)
    tight, loose = (energy(trace, window, IDLE, PERFECT, slack_s=s) for s in (0.0, 0.2))
    assert loose.gross_mj.value == tight.gross_mj.value
    assert loose.gross_mj.uncertainty == pytest.approx(1.3e3 * 0.2 / SQRT3, rel=1e-2)
    assert loose.net_mj.uncertainty == pytest.approx(0.2e3 * 0.2 / SQRT3, rel=2e-2)


def test_a_board_without_current_has_an_uncertainty_all_the_same() -> None:
    result = energy(trace_of(np.zeros(3000)), Window(1_500_000, 3_500_000), IDLE)
    assert result.gross_mj.value == 0
    assert result.gross_mj.uncertainty > 0
    off = energy(trace_of(np.zeros(3000), bus_raw=0), Window(1_500_000, 3_500_000), IDLE)
    assert (off.gross_mj.value, off.gross_mj.uncertainty) == (0, 0)
