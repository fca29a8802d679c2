"""The simulator with an INA228: the same core, wide samples, joules within a smaller uncertainty."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from meter_process import LIMIT_S, check_energy

from fsjoule.host import process
from fsjoule.meter.energy import energy
from fsjoule.meter.protocol.frames import FrameDecoder
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.model import CurrentMonitor, Ina219Trace, Window
from fsjoule.model.instrument_file import InstrumentFile, Shunt
from fsjoule.virtual.board.power import FEED_RECORD

_MS = 1_000_000
_VOLTS = 5.0
# A resistor that is known well, so that the chip's own errors are what is tested.
_FILE = InstrumentFile(serial_number="SIM0", shunt=Shunt(ohm=0.1, tolerance_percent=1e-3, drift_ppm_per_kelvin=0.0))


def _replay(program: Path, amperes: list[float], *options: str) -> Ina219Trace:
    """What the meter makes of a load, in A by the millisecond."""
    records = [FEED_RECORD.pack(number * _MS, _VOLTS, value) for number, value in enumerate([0.0, *amperes])]
    command = [program, "--replay", "/dev/stdin", "--chip", "ina228", *options]
    done = process.run(command, timeout_s=LIMIT_S, input_bytes=b"".join(records))
    decoder = FrameDecoder()
    builder = TraceBuilder()
    builder.add(decoder.feed(done.stdout))
    assert (decoder.counters.damaged, decoder.counters.lost) == (0, 0)
    return builder.build()


@pytest.mark.parametrize(("options", "unit_uv", "range_mv"), [((), 0.3125, 163), (("--range-mv", "40"), 0.078125, 40)])
def test_each_sample_has_the_chips_resolution(
    program: Path, options: tuple[str, ...], unit_uv: float, range_mv: int
) -> None:
    """271.9 uA at 0.1 Ohm, of which an INA219 would see three units or two."""
    trace = _replay(program, [271.875e-6] * 5000, *options)
    assert (trace.info.chip, trace.info.shunt_range_mv) == (CurrentMonitor.INA228, range_mv)
    assert (trace.info.shunt_lsb_uv, trace.info.bus_lsb_mv) == (unit_uv, 0.1953125)
    assert set(trace.shunt_raw.tolist()) == {round(27.1875 / unit_uv)}
    assert set(trace.bus_raw.tolist()) == {25_600}
    assert (trace.missed, trace.lost) == (0, 0)
    check_energy(trace)


@pytest.mark.parametrize("rate_hz", [100, 400, 625, 1000, 2000])
def test_no_tick_is_missed_at_any_rate(program: Path, rate_hz: int) -> None:
    trace = _replay(program, [0.25] * 3000, "--rate-hz", str(rate_hz))
    assert (trace.info.rate_hz, trace.missed, len(trace.ticks)) == (rate_hz, 0, 3 * rate_hz)


@pytest.mark.parametrize(("rate_hz", "widest"), [(200, 8e-3), (625, 2.5e-3), (1000, 2.5e-3)])
def test_the_truth_is_within_the_stated_uncertainty(program: Path, rate_hz: int, widest: float) -> None:
    """Forty chips that err as the data sheet allows, each with bursts that begin anywhere in a tick."""
    random = np.random.default_rng(228)
    off, widths = [], []
    for _ in range(40):
        errors = {
            "--chip-offset-uv": random.uniform(-1, 1),
            "--chip-gain-ppm": random.uniform(-500, 500),
            "--chip-bus-gain-ppm": random.uniform(-1000, 1000),
            "--chip-noise-uv": 2.0,
        }
        options = [text for name, value in errors.items() for text in (name, f"{value:.3f}")]
        amperes = [float(value) for value in np.repeat(random.uniform(0.05, 1.0, 40), 100)]
        trace = _replay(program, amperes, "--rate-hz", str(rate_hz), "--chip-seed", str(len(off)), *options)
        trace = dataclasses.replace(trace, info=dataclasses.replace(trace.info, file=_FILE))
        # From burst to burst, where the power steps.
        found = energy(trace, Window(1_500_000.0, 3_500_000.0), Window(100_000.0, 900_000.0)).gross_mj
        true_mj = sum(amperes[1500:3500]) * _VOLTS
        off.append(abs(found.value - true_mj) / found.uncertainty)
        widths.append(found.uncertainty / true_mj)
    assert sum(each <= 2 for each in off) >= 38
    assert float(np.median(widths)) < widest


def test_a_chip_of_another_name_is_refused(program: Path) -> None:
    done = process.run([program, "--replay", "/dev/null", "--chip", "ina226"], timeout_s=LIMIT_S, check=False)
    assert done.returncode == 2
    assert "--chip ina226: must be ina219 or ina228" in done.stderr.decode()
