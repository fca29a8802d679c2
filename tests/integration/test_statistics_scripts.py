"""The scripts that measure error rates run, on a few trials, and the rules they compare are what they say."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from change_points import follow, recorded
from detectors import detectors
from meter_rates import CONVERSIONS_US, HZ, Load, covered, sampled_w
from output import Share, told
from rules import otava, threshold, verdict, welch
from scipy import stats
from simulation import PLAIN, Scenario, trials
from traces import INFO

from fsjoule.meter.energy.validity import tick_notes

FOLDER = Path(__file__).parents[1] / "statistics"
LIMIT_S = 300.0
SCRIPTS = [
    *("compare_rules", "gate_rates", "intervals", "detectable_effect"),
    *("change_points", "trend", "bisection_rates", "meter_rates", "meter_line", "meter_faults"),
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_print_what_they_measured(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module(script)
    monkeypatch.setattr(sys, "argv", [script, "--trials", "2", "--seed", "5", "--json"])
    module.main()
    document = json.loads(capsys.readouterr().out)
    assert document["settings"]["seed"] == 5
    assert document["rows"]
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    with pytest.raises(SystemExit, match="0"):
        module.main()
    assert "--trials" in capsys.readouterr().out


def test_a_table_is_shown_without_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module("detectable_effect")
    monkeypatch.setattr(sys, "argv", ["detectable_effect", "--trials", "5"])
    module.main()
    assert "Power at the minimum detectable effect" in capsys.readouterr().out


def test_drift_costs_one_side_when_boots_are_not_interleaved() -> None:
    rng = np.random.default_rng(1)
    fair = Scenario(noise=1e-6, drift="linear", drift_size=0.01)
    before, after = trials(rng, fair, 4, 10)
    assert before.mean(axis=1) == pytest.approx(after.mean(axis=1), abs=1e-4)
    unfair = Scenario(noise=1e-6, drift="linear", drift_size=0.01, one_after_the_other=True)
    before, after = trials(rng, unfair, 4, 10)
    assert (before - after).mean(axis=1) == pytest.approx(np.full(4, 0.1), abs=1e-4)


def test_rules_see_a_large_loss_and_not_a_gain() -> None:
    rng = np.random.default_rng(2)
    lossy, better = trials(rng, PLAIN, 6, 10, loss=0.2), trials(rng, PLAIN, 6, 10, loss=-0.2)
    for rule in (threshold(10), welch(10), otava(10), verdict(10)):
        assert rule(*lossy).regressed.all()
        assert not rule(*better).regressed.any()


def test_welch_is_scipys() -> None:
    before, after = trials(np.random.default_rng(3), PLAIN, 20, 10, loss=0.03)
    p = [stats.ttest_ind(np.exp(a), np.exp(b), equal_var=False).pvalue for a, b in zip(before, after, strict=True)]
    assert welch(10)(before, after).regressed.tolist() == [value <= 0.01 for value in p]


def test_shares_have_an_upper_bound() -> None:
    assert Share(0, 2000).at_most_percent == pytest.approx(100 * (1 - 0.05 ** (1 / 2000)))
    assert Share(7, 7).at_most_percent == 100


def test_recorded_series_are_whole_and_all_detectors_take_them() -> None:
    series = list(recorded())
    assert len(series) == 32
    for name, finder in detectors().items():
        for _, values in series[:3]:
            told = follow(finder, values)
            assert all(0 < place < len(values) for place in told.places), name


def test_a_script_that_is_interrupted_shows_the_trials_that_it_has_and_leaves_no_process(tmp_path: Path) -> None:
    asked = ["--trials", "4000", "--jobs", "2", "--case", "gain of 5 %", "--method", "fsjoule", "--json"]
    program = [sys.executable, FOLDER / "bisection_rates.py", *asked]
    with (tmp_path / "err").open("w") as errors:
        script = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
    try:
        deadline = time.monotonic() + LIMIT_S
        while " of 4000" not in (tmp_path / "err").read_text():
            assert script.poll() is None, (tmp_path / "err").read_text()
            assert time.monotonic() < deadline, "no trial has ended"
            time.sleep(0.1)
        os.killpg(script.pid, signal.SIGINT)  # as a terminal does
        out, _ = script.communicate(timeout=LIMIT_S)
        assert script.returncode == 0, (tmp_path / "err").read_text()
        with pytest.raises(ProcessLookupError):
            os.killpg(script.pid, 0)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGKILL)
    (row,) = json.loads(out)["rows"]
    assert 0 < row["trials"] < 4000


def test_long_scripts_tell_how_far_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(told(range(3), 3, "a case", every_s=0)) == [0, 1, 2]
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(", ")[0] for line in lines] == ["a case: 1 of 3", "a case: 2 of 3", "a case: 3 of 3"]
    assert lines[0].endswith(" left")
    assert "took" in lines[-1]


def test_a_rate_in_step_with_the_kernel_is_wrong_and_another_is_not() -> None:
    """The mean over whole ticks of both is exact; 1000 samples/s see one part of a tick of HZ 1000 too often."""
    load = Load(period_us=1000.0, pulse_us=100.0, low_w=1.0, height_w=1.0)
    assert load.mean_w == pytest.approx(1.1)
    assert float(load.energy_uj(np.array([5000.0]))[0]) == pytest.approx(5500.0)

    def errors(rate_hz: int) -> list[float]:
        rng = np.random.default_rng(4)
        return [abs(float(sampled_w(load, rate_hz, 5.0, rng).mean()) / load.mean_w - 1) for _ in range(40)]

    assert np.median(errors(1000)) > 5 * np.median(errors(625))
    assert np.quantile(errors(320), 0.9) < 0.002


def test_the_rates_that_are_said_to_be_in_step_are_those_that_are_not_covered() -> None:
    """With 1,000 windows each: below 94 %, and all others at least 95 %. The 100 of this test leave some room."""
    for rate_hz in CONVERSIONS_US:
        for hz in HZ:
            share = covered(rate_hz, hz, trials=100, seconds=5.0, seed=1)
            if tick_notes(dataclasses.replace(INFO, rate_hz=rate_hz), hz):
                assert share < 0.97, (rate_hz, hz)
            else:
                assert share > 0.92, (rate_hz, hz)
