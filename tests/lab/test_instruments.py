"""Another instrument than fsjoule's own meter in a lab: the emulated PPK2 behind an exporter, and marks of the host."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from instrument_labs import InstrumentLab, instrument_lab, labgrid_of

from fsjoule.errors import ConfigError, MeterError
from fsjoule.host.paths import project_dir
from fsjoule.lab import board_meter, instrument, lab_facts, meter, read_environment
from fsjoule.model import MarkSource, PlainInfo


@dataclass(frozen=True, slots=True)
class _Bench:
    target: Any
    lab: InstrumentLab


@pytest.fixture(scope="module")
def bench(module_state: Path) -> Generator[_Bench]:  # noqa: ARG001 - the folder of its files
    """The lab of env/virtual-ppk2.yaml, whose board stays off."""
    with instrument_lab("ppk2") as held:
        labgrid = labgrid_of("virtual-ppk2")
        yield _Bench(labgrid.get_target(), held)
        labgrid.cleanup()


def test_the_meter_of_a_bench_is_the_ppk2_with_marks_of_the_host(bench: _Bench) -> None:
    metered = board_meter(bench.target)
    info = metered.info()
    assert isinstance(info, PlainInfo)
    assert (info.instrument, info.simulated) == ("ppk2", True)
    for _ in range(2):  # armed again, it records again
        metered.arm()
        time.sleep(0.5)
        bench.lab.board_says("S1")
        time.sleep(0.5)
        bench.lab.board_says("E1")
        time.sleep(0.5)
        trace = metered.disarm()
        assert [(mark.text, mark.source, mark.checked) for mark in trace.marks] == [
            ("S1", MarkSource.LINE, True),
            ("E1", MarkSource.LINE, True),
        ]
        assert (trace.marks[1].time_us - trace.marks[0].time_us) * 1e-6 == pytest.approx(0.5, abs=0.3)
        assert len(trace.ticks) > 1000
        assert abs(trace.power_w.mean()) < 1e-4


def test_an_instrument_comes_back_after_its_port_was_away(bench: _Bench) -> None:
    """Labgrid deactivates the drivers of a port that is not available, as here."""
    metered = board_meter(bench.target)
    metered.arm()
    for name in ("Ppk2Driver", "MarkLineDriver"):
        driver = next(each for each in bench.target.drivers if type(each).__name__ == name)
        bench.target.deactivate(driver)
    with pytest.raises(MeterError, match="not armed"):
        metered.disarm()
    metered.arm()
    time.sleep(0.5)
    assert len(metered.disarm().ticks) > 100


def test_a_bench_refuses_a_ppk2_that_would_supply_its_board(tmp_path: Path) -> None:
    text = (project_dir() / "env" / "virtual-ppk2.yaml").read_text()
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text.replace("volts: 5.0", "volts: 5.0\n        mode: source"))
    with pytest.raises(ConfigError, match="Ppk2Driver: mode: 'source' is wrong"):
        read_environment(wrong)


def test_a_run_notes_where_the_instrument_is(bench: _Bench) -> None:
    facts = lab_facts(bench.target)
    assert facts is not None
    assert facts.meter is not None
    assert facts.meter.resource == "NetworkSerialPort"
    assert facts.meter.address.startswith("127.0.0.1:")


def test_what_only_fsjoules_own_meter_can_do_is_refused(bench: _Bench) -> None:
    assert instrument(bench.target) is not None
    with pytest.raises(ConfigError, match="an instrument behind Ppk2Driver, without settings"):
        meter(bench.target)
