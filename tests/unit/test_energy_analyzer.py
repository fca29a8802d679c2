"""labgrid's protocol of energy analyzers: another's driver as a meter, and fsjoule's meters as analyzers."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from plain_traces import PLAIN

from fsjoule.errors import MeterError
from fsjoule.lab.energy_analyzer import Analyzer, AnalyzerMeter
from fsjoule.meter.energy import energy
from fsjoule.meter.protocol.polled import PolledTrace
from fsjoule.model import MarkSource, Window


class Joulescope:
    """Another's driver, whose windows last and use what the test says."""

    def __init__(self, *windows: tuple[float, float]) -> None:
        self.windows = list(windows)
        self.open = False

    def start(self) -> None:
        assert not self.open
        self.open = True

    def stop(self) -> dict[str, Any]:
        assert self.open
        self.open = False
        joules, seconds = self.windows.pop(0)
        return {"energy_J": joules, "charge_C": 0.0, "duration_s": seconds}


def test_windows_become_a_trace_with_marks() -> None:
    meter = AnalyzerMeter(Joulescope((1.0, 1.0), (3.0, 2.0), (0.2, 0.2)), 1.0, "JS320", simulated=False)
    meter.arm()
    meter.mark_now("S1")()
    meter.mark_now("E1")()
    trace = meter.disarm()
    assert [(mark.time_us, mark.text, mark.source) for mark in trace.marks] == [
        (1_000_000, "S1", MarkSource.HOST),
        (3_000_000, "E1", MarkSource.HOST),
    ]
    found = energy(trace, Window(1e6, 3e6), Window(0.15e6, 0.85e6))
    assert found.gross_mj.value == pytest.approx(3000)
    assert found.net_mj.value == pytest.approx(1000)
    # One per cent of a reading, rectangular, and the delay of two marks.
    assert found.gross_mj.uncertainty == pytest.approx(3000 * 0.01 / 3**0.5, rel=0.2)


@pytest.mark.parametrize(
    "told",
    [None, {}, {"energy_J": 1.0}, {"energy_J": float("nan"), "duration_s": 1.0}, {"energy_J": 1, "duration_s": -1}],
)
def test_an_analyzer_that_tells_nonsense_is_named(told: Any) -> None:
    driver = Joulescope()
    driver.stop = lambda: told
    meter = AnalyzerMeter(driver, 1.0, "JS320", simulated=False)
    meter.arm()
    with pytest.raises(MeterError, match=r"Joulescope.stop\(\) returned"):
        meter.disarm()


class Ours(Analyzer):
    """A meter's driver that always records the same second of 2 W at 5 V."""

    def arm(self) -> None:
        pass

    def disarm(self) -> Any:
        trace = PolledTrace(PLAIN, gaps=False)
        trace.read(0, 0.0, 5.0)
        trace.read(1_000_000, 2e9, 5.0)
        return trace.take()


def test_our_meters_tell_energy_charge_and_time() -> None:
    ours = Ours()
    ours.start()
    told = ours.stop()
    assert told["energy_J"] == pytest.approx(2.0)
    assert told["charge_C"] == pytest.approx(0.4)
    assert told["duration_s"] == pytest.approx(1.0)
    statistics = ours.get_statistics()
    assert statistics["power"] == pytest.approx({"avg": 2.0, "std": 0.0, "min": 2.0, "max": 2.0})
    assert statistics["current"]["avg"] == pytest.approx(0.4)


def test_our_meters_capture_to_a_file(tmp_path: Path) -> None:
    Ours().capture(str(tmp_path / "samples.csv"), signals=["power"], duration=0.01)
    with (tmp_path / "samples.csv").open(newline="") as file:
        head, first, *_ = csv.reader(file)
    assert head == ["time_s", "power"]
    assert float(first[1]) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="capture takes a duration"):
        Ours().capture(str(tmp_path / "samples.csv"))
