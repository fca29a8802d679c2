"""A meter with an INA228: wide samples, its own units, and its own uncertainty."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import meter_wire as wire
import numpy as np
import pytest
from traces import INFO, trace_of

from fsjoule.errors import MeasurementInvalid
from fsjoule.meter.energy import energy
from fsjoule.meter.energy.ina219 import Ina219
from fsjoule.meter.protocol.frames import Frame, FrameDecoder, InfoFrame, SamplesFrame
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.meter.tools.words import adc_text
from fsjoule.model import CurrentMonitor, Ina219Info, Ina219Trace, MarkSource, MeterCalibration, Window
from fsjoule.store.traces import decode_trace, encode_trace

# 20 bits at 163.84 mV and 1 kHz: 540 us the shunt, 280 us the bus.
_INA228 = dataclasses.replace(
    INFO,
    protocol=3,
    chip=CurrentMonitor.INA228,
    adc_config=0xB700,
    shunt_range_mv=163,
    shunt_lsb_uv=0.3125,
    bus_lsb_mv=0.1953125,
)
_CHIP: dict[str, Any] = {"chip": wire.INA228, "shunt_unit_pv": 312_500, "bus_unit_pv": 195_312_500}


def _decode(data: bytes) -> list[Frame]:
    return FrameDecoder().feed(data)


def _samples(seq: int, tick: int, *, wide: bool = True, energy_raw: int = 0, bus_total: int = 0) -> bytes:
    return wire.samples(
        seq,
        first_tick=tick,
        first_time_us=tick * 1000,
        energy_raw=energy_raw,
        bus_total=bus_total,
        missed_total=0,
        flags=2,
        values=[[-80_001 if wide else -2500, (0x800000 | 25_601) if wide else (0x8000 | 1250)]] * 20,
        wide=wide,
    )


def _info_of(data: bytes) -> InfoFrame:
    (frame,) = _decode(data)
    assert isinstance(frame, InfoFrame)
    return frame


def test_an_info_frame_tells_chip_and_units() -> None:
    info = _info_of(wire.info(0, adc_config=0xB700, **_CHIP)).info
    assert (info.chip, info.shunt_lsb_uv, info.bus_lsb_mv) == (CurrentMonitor.INA228, 0.3125, 0.1953125)
    assert info.bus_range_v == 85
    assert adc_text(info) == "INA228, 20 bits: shunt 1 x 540 us, bus 1 x 280 us"
    assert (
        adc_text(dataclasses.replace(info, adc_config=0xBB41)) == "INA228, 20 bits: shunt 4 x 1052 us, bus 4 x 1052 us"
    )


@pytest.mark.parametrize("unit", ["shunt_unit_pv", "bus_unit_pv"])
def test_a_unit_of_nothing_is_damage(unit: str) -> None:
    decoder = FrameDecoder()
    fields: dict[str, Any] = {**_CHIP, unit: 0}
    assert decoder.feed(b"\0" + wire.info(0, **fields)) == []
    assert decoder.counters.damaged == 1


def test_a_chip_of_a_later_firmware_has_no_known_errors() -> None:
    info = _info_of(wire.info(0, chip=7)).info
    assert info.chip is CurrentMonitor.UNKNOWN
    with pytest.raises(MeasurementInvalid, match=r"does not know the meter's chip.*: update fsjoule"):
        Ina219.of(info)


def test_wide_samples_become_a_trace() -> None:
    builder = TraceBuilder()
    frames = _decode(wire.info(0, **_CHIP) + _samples(1, 0) + _samples(2, 20, energy_raw=-5, bus_total=7))
    assert isinstance(frames[1], SamplesFrame)
    assert (frames[1].count, frames[1].wide) == (20, True)
    builder.add(frames)
    trace = builder.build()
    assert (len(trace.ticks), trace.lost) == (40, 0)
    assert set(trace.shunt_raw.tolist()) == {-80_001}
    assert set(trace.bus_raw.tolist()) == {25_601}
    assert trace.current_a[0] == pytest.approx(-80_001 * 0.3125e-6 / 0.1)
    assert trace.voltage_v[0] == pytest.approx(25_601 * 195.3125e-6)
    assert trace.power_w[0] == pytest.approx(trace.current_a[0] * trace.voltage_v[0])


@pytest.mark.parametrize("chip", [CurrentMonitor.INA219, CurrentMonitor.INA228])
@pytest.mark.parametrize("first_is_wide", [True, False])
@pytest.mark.parametrize("info_at", [0, 1, 2])
def test_a_stream_has_samples_of_its_chips_type(chip: CurrentMonitor, first_is_wide: bool, info_at: int) -> None:
    """And so it can be stored: 20 bits do not fit into an INA219's column."""
    data = [_samples(1, 0, wide=first_is_wide), _samples(2, 20, wide=not first_is_wide)]
    data.insert(info_at, wire.info(0, **(_CHIP if chip is CurrentMonitor.INA228 else {})))
    builder = TraceBuilder()
    builder.add(_decode(b"".join(data)))
    trace = builder.build()
    if info_at < 2:
        assert set(trace.shunt_raw.tolist()) == {-80_001 if chip is CurrentMonitor.INA228 else -2500}
    assert len(trace.ticks) in ({20} if info_at < 2 else {0, 20})  # without info the first type is taken for its own
    assert any(each.startswith("samples that its chip does not make were left out (") for each in trace.faults)
    stored = decode_trace(encode_trace(trace), Path("trace"))
    assert isinstance(stored, Ina219Trace)
    assert stored.shunt_raw.tolist() == trace.shunt_raw.tolist()


def test_samples_of_an_unknown_chip_are_of_the_type_that_comes_first() -> None:
    builder = TraceBuilder()
    builder.add(_decode(wire.info(0, chip=7) + _samples(1, 0) + _samples(2, 20, wide=False)))
    assert set(builder.build().shunt_raw.tolist()) == {-80_001}


def test_the_ends_of_its_ranges_are_clipped() -> None:
    ends = [524_286, 524_287, -524_286, -524_287, -524_288]
    shunt, bus = trace_of(ends, bus_raw=25_600, info=_INA228).clipped
    assert shunt.samples.tolist() == [False, True, False, True, True]
    assert not bus.samples.any()
    _, bus = trace_of([1, 1], bus_raw=[435_199, 435_200], info=_INA228).clipped
    assert bus.samples.tolist() == [False, True]
    assert bus.limit == "the end of the bus voltage's range of 85 V"
    assert "--bus-range" not in bus.advice


# --------------------------------------------------------------------------------------------------- uncertainty


def test_the_limits_of_its_data_sheet() -> None:
    """By hand, at 25 mV and 5 V: 1 uV and 154 dB of 43 V, 0.05 % and 20 ppm/K, 0.1 % and 25 ppm/K, 5 mV and 40 uV/K."""
    meter = Ina219.of(_INA228)
    steady, watts = meter.steady(5.0, 0.25), 1.25
    offset_v = math.hypot(1e-6, 10 * 0.01e-6, 0.02e-6 * 43)
    assert steady.offset_w == pytest.approx(offset_v / 0.1 * 5.0 / math.sqrt(3))
    gain = math.hypot(5e-4, 1e-3, 10 * 20e-6, 10 * 25e-6)
    assert steady.gain == pytest.approx(gain / math.sqrt(3))
    bus_v = math.hypot(5e-3, 10 * 40e-6, 195.3125e-6 / 2)
    assert steady.bus_rounding_w == pytest.approx(bus_v * 0.25 / math.sqrt(3))
    assert steady.shunt_rounding_w / watts < 5e-6
    # All without the resistor, which is the same: a fifth of an INA219's.
    ours, theirs = (
        math.hypot(each.offset_w / watts, each.gain, each.bus_rounding_w / watts, each.shunt_rounding_w / watts)
        for each in (steady, Ina219.of(INFO).steady(5.0, 0.25))
    )
    assert ours < theirs / 4


def test_what_is_left_after_a_calibration() -> None:
    calibrated = MeterCalibration(zero_date=1, gain_date=1, gain_uncertainty_ppm=100)
    meter = Ina219.of(dataclasses.replace(_INA228, calibration=calibrated))
    steady = meter.steady(5.0, 0.25)
    # Half a step of 312.5 nV, the noise of 2 s, the drift, and the common mode of a tenth of the bus voltage.
    noise_v = math.sqrt(3) * 2e-6 / math.sqrt(2 * _INA228.rate_hz)
    assert meter.offset_at(5.0) == pytest.approx(math.hypot(0.15625e-6, noise_v, 0.1e-6, 0.02e-6 * 0.5), rel=1e-9)
    gain = math.hypot(math.sqrt(2) * 0.15625e-6 / (0.163 / 4), 10 * 20e-6, 10 * 25e-6) / math.sqrt(3)
    assert steady.gain == pytest.approx(math.hypot(gain, 1e-4))
    # The bus's offset was taken for gain: what a tenth of the voltage changes of it.
    bus_v = math.hypot(math.sqrt(2) * 195.3125e-6 / 2, 0.1 * 5e-3, 10 * 40e-6)
    assert steady.bus_rounding_w == pytest.approx(bus_v * 0.25 / math.sqrt(3))


@pytest.mark.parametrize(
    ("rate_hz", "adc_config", "late_us"),
    [
        (1000, 0xB700, 820 / 2 + 540 / 2 - 500),  # each register at once
        (625, 0xB900, 1080 / 2 + 540 / 2 - 800),
        (200, 0xB901, 4320 / 2 + (4320 + 540) / 2 - 2500),  # a mean of four: when all have ended
    ],
)
def test_what_is_known_of_the_times_of_its_samples(rate_hz: int, adc_config: int, late_us: float) -> None:
    info = dataclasses.replace(_INA228, rate_hz=rate_hz, adc_config=adc_config, simulated=True)
    assert Ina219.of(info, MarkSource.HOST).shift_s * 1e6 == pytest.approx(late_us)


@pytest.mark.parametrize(("info", "read_us"), [(_INA228, 120 + 140 / 2), (INFO, 120 + 120 + 120 / 2)])
def test_a_real_meter_reads_the_shunt_after_the_registers_before_it(info: Ina219Info, read_us: float) -> None:
    real, simulated = (
        Ina219.of(dataclasses.replace(info, simulated=each), MarkSource.HOST).shift_s for each in (False, True)
    )
    assert (simulated - real) * 1e6 == pytest.approx(read_us)


def test_the_same_load_has_the_same_joules_with_both_chips() -> None:
    """An INA219's 2500 and 1250 are 80000 and 25600."""
    steps = 2500 + 7 * (np.arange(3000) % 13)
    window, idle = Window(1_500_250.0, 3_100_750.0), Window(1_050_000.0, 1_300_000.0)

    def gross(trace: Ina219Trace) -> tuple[float, float]:
        as_before = dataclasses.replace(Ina219.of(trace.info), shift_s=0.0, sharpening=0.0)
        found = energy(trace, window, idle, as_before).gross_mj
        return found.value, found.uncertainty

    narrow, wide = gross(trace_of(steps)), gross(trace_of(steps * 32, bus_raw=25_600, info=_INA228))
    assert wide[0] == pytest.approx(narrow[0], rel=1e-12)
    assert wide[1] < narrow[1]
