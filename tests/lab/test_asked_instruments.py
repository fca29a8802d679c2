"""Instruments that a place offers by their addresses: each measures the virtual board, and marks are the host's."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path

import pytest
from bench_runs import PROJECT, SMALL, all_valid, only_run, patient_environment, run_bench
from instrument_labs import InstrumentLab, instrument_lab, labgrid_of
from lab_leftovers import assert_nothing_left

from fsjoule.lab import board_meter, lab_facts
from fsjoule.meter.energy import energy
from fsjoule.model import MarkSource, PlainInfo, Window
from fsjoule.runs.meter import find_meters
from fsjoule.virtual.board.config import BoardConfig
from fsjoule.virtual.instruments.emulator import instruments_of

KINDS = instruments_of(BoardConfig.from_toml(PROJECT / "labgrid" / "virtual" / "instruments.toml"))
# What the board draws when it is on and finds nothing to boot.
IDLE_W = 1.1


@pytest.fixture(scope="module")
def instruments(module_state: Path) -> Generator[InstrumentLab]:  # noqa: ARG001 - the folder of its files
    """The lab of these environment files."""
    with instrument_lab("instruments") as held:
        yield held


@pytest.mark.parametrize("kind", KINDS)
def test_each_measures_what_the_board_draws(
    instruments: InstrumentLab, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LG_INSTRUMENT", kind)
    labgrid = labgrid_of("virtual-instrument")
    target = labgrid.get_target()
    power = target.get_driver("NetworkPowerDriver")
    power.on()  # without a card it finds nothing to boot, and its power is known
    metered = board_meter(target)
    info = metered.info()
    assert isinstance(info, PlainInfo)
    assert (info.instrument, info.simulated) == (kind, True)
    metered.arm()
    time.sleep(1.5)
    instruments.board_says("S1")
    time.sleep(1.0)
    instruments.board_says("E1")
    time.sleep(0.5)
    trace = metered.disarm()
    power.off()
    begin, end = trace.marks
    assert [(each.text, each.source, each.checked) for each in (begin, end)] == [
        ("S1", MarkSource.LINE, True),
        ("E1", MarkSource.LINE, True),
    ]
    window = Window(float(begin.time_us), float(end.time_us))
    found = energy(trace, window, Window(window.start_us - 900_000, window.start_us - 200_000))
    assert abs(found.mean_power_w.value - IDLE_W) <= 2 * found.mean_power_w.uncertainty
    facts = lab_facts(target)
    assert facts is not None
    assert facts.meter is not None
    assert facts.meter.resource == "InstrumentDriver"
    labgrid.cleanup()


def test_what_the_board_said_before_anybody_listened_is_no_mark(
    instruments: InstrumentLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A doctor that listens after the boot must not hear the marks of the boot."""
    monkeypatch.setenv("LG_INSTRUMENT", "iio")
    labgrid = labgrid_of("virtual-instrument")
    target = labgrid.get_target()
    instruments.board_says("Sboot")
    time.sleep(0.5)
    metered = board_meter(target)
    metered.arm()
    time.sleep(0.5)
    assert metered.disarm().marks == ()
    labgrid.cleanup()


@pytest.mark.usefixtures("instruments")
def test_the_list_has_all_of_them() -> None:
    listed = {each.address.partition(":")[0]: each.address for each in find_meters() if each.name}
    assert {"iio", "powercap", "visa"} <= set(listed)
    assert listed["joulescope"] == "joulescope:js220/SIM001"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_bench_has_its_joules(state: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LG_INSTRUMENT", kind)
    results = tmp_path / "results"
    environment = patient_environment(results, PROJECT / "env" / "virtual-instrument.yaml")
    done = run_bench(results, *SMALL, "--kernel", "6.1", "--repeat", "1", environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    run = only_run(results)
    assert all_valid(run)
    [measurement] = run.measurements
    assert measurement.energy is not None
    assert measurement.energy.gross_mj.value > 0
    assert run.run.meter is not None
    assert run.run.meter.kind == kind
    assert_nothing_left(state, state / "devices")
