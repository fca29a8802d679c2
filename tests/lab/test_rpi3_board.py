"""The emulated Raspberry Pi 3, a 64-bit ARM that starts the real U-Boot on its card."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_runs import PROJECT, all_valid, only_run, patient_environment, run_bench
from lab_leftovers import assert_nothing_left

from fsjoule.model import MarkSource

pytestmark = pytest.mark.slow


def test_u_boot_starts_from_the_card_and_the_board_is_measured(state: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    environment = patient_environment(results, PROJECT / "env" / "virtual-rpi3.yaml")
    options = ("--fs", "ext4", "--kernel", "6.1", "--repeat", "1", "-k", "ext4-boot")
    done = run_bench(results, *options, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    run = only_run(results)
    assert all_valid(run)
    [measurement], [card] = run.measurements, run.run.images
    assert measurement.energy is not None
    assert run.run.board is not None
    assert run.run.board.kernel_release.endswith("-arm64")
    assert card.packages["u-boot-rpi"]
    assert card.has_boot_loader
    console = "".join(path.read_text(errors="replace") for path in state.rglob("console.log"))
    assert "with extlinux" in console
    assert_nothing_left(state, state / "devices")


def test_a_boot_and_an_operation_are_measured_by_the_edges_of_a_gpio(state: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    environment = patient_environment(results, PROJECT / "env" / "virtual-rpi3-gpio.yaml")
    options = ("--fs", "ext4", "--kernel", "6.1", "--repeat", "1", "-k", "ext4-boot or ext4-mount")
    done = run_bench(results, *options, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    run = only_run(results)
    assert all_valid(run)
    for measurement in run.measurements:
        trace = run.trace(measurement.number)
        assert trace is not None
        rising, falling = trace.marks
        assert (rising.source, falling.source) == (MarkSource.RISING, MarkSource.FALLING)
        assert measurement.window_s == pytest.approx((falling.time_us - rising.time_us) / 1e6)
        assert measurement.energy is not None
    assert len(run.measurements) == 2
    assert_nothing_left(state, state / "devices")
