"""The emulated x86-64 board: a bench on it, and zfs, whose module is built for its kernel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lab_leftovers import assert_nothing_left

from fsjoule.model import FioWorkload, RunStatus
from fsjoule.store.reader import LoadedRun, load_run

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
ENVIRONMENT = PROJECT / "env" / "virtual-x86.yaml"
# Generous: a busy machine, and perhaps a module and card images to build first.
TIMEOUT_S = 3600.0


def bench(results: Path, *options: str) -> LoadedRun:
    # These tests share the machine with others: a window may be much longer than its work.
    text, count = re.subn(r"window_excess: [\d.]+", "window_excess: 10", ENVIRONMENT.read_text())
    assert count == 1
    environment = results.with_name("x86.yaml")
    environment.write_text(text)
    command = [sys.executable, "-m", "pytest", "tests/bench", "--lg-env", environment, "--results", results]
    options = ("-p", "no:cacheprovider", "--kernel", "6.1", "--repeat", "1", *options)
    done = subprocess.run(
        [*command, *options], cwd=PROJECT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [folder] = results.iterdir()
    return load_run(folder)


def assert_all_is_measured(run: LoadedRun, filesystems: set[str]) -> None:
    assert run.run.status is RunStatus.COMPLETE
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
