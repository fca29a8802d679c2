"""The emulated x86-64 board: a bench on it, and zfs, whose module is built for its kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench_runs import PROJECT, complete_run, patient_environment
from lab_leftovers import assert_nothing_left

from fsjoule.model import FioWorkload
from fsjoule.store.reader import LoadedRun

pytestmark = pytest.mark.slow

ENVIRONMENT = PROJECT / "env" / "virtual-x86.yaml"


def bench(results: Path, *options: str, file: Path = ENVIRONMENT) -> LoadedRun:
    return complete_run(results, patient_environment(results, file), *options)


def assert_all_is_measured(run: LoadedRun, filesystems: set[str]) -> None:
    assert {m.series.filesystem for m in run.measurements} == filesystems
    for measurement in run.measurements:
        assert measurement.invalid_reasons == ()
        assert measurement.energy is not None
        if isinstance(measurement.workload, FioWorkload):
            assert measurement.counters is not None
            # It came from the card, and went there: no cache has answered in its stead.
            operation = measurement.workload.operation
            moved = measurement.counters.written_bytes if operation.writes else measurement.counters.read_bytes
            assert moved > 0.5 * measurement.workload.size_bytes


def test_a_bench_on_the_board(state: Path, tmp_path: Path) -> None:
    run = bench(tmp_path / "results", "--fs", "ext4", "-k", "ext4-mkfs or ext4-write or ext4-read")
    assert run.run.board is not None
    assert run.run.board.kernel_release.endswith("-amd64")
    assert_all_is_measured(run, {"ext4"})
    assert_nothing_left(state, state / "devices")


def test_a_board_measures_itself_with_its_own_counter(state: Path, tmp_path: Path) -> None:
    """A simulated counter of 5 W, read over the board's shell."""
    own = ENVIRONMENT.with_name("virtual-x86-counter.yaml")
    run = bench(tmp_path / "results", "--fs", "ext4", "-k", "ext4-mkfs or ext4-write or ext4-read", file=own)
    assert_all_is_measured(run, {"ext4"})
    assert run.run.meter is not None
    assert run.run.meter.serial_number == "virtual-x86-counter simulated:0 simulated"
    for measurement in run.measurements:
        energy = measurement.energy
        assert energy is not None
        assert measurement.window_s is not None
        assert abs(energy.gross_mj.value - 5000 * measurement.window_s) <= 3 * energy.gross_mj.uncertainty
    assert_nothing_left(state, state / "devices")


@pytest.mark.skipif(
    "FSJOULE_TEST_ZFS" not in os.environ,
    reason="building zfs's module takes minutes of CPU time; FSJOULE_TEST_ZFS=1 does, if it is not in the cache",
)
def test_zfs_is_measured_as_any_other(state: Path, tmp_path: Path) -> None:
    run = bench(tmp_path / "results", "--fs", "ext4,zfs", "-k", "ext4-mkfs or zfs-m or zfs-umount or zfs-read")
    assert_all_is_measured(run, {"ext4", "zfs"})
    [kernel] = run.run.kernels
    assert any(name.startswith("zfs-dkms_") for name in kernel.checksums)
    assert_nothing_left(state, state / "devices")
