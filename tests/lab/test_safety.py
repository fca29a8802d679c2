"""Filesystems whose device damages or loses what was written to it: what they keep, and what they notice."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_runs import ENVIRONMENT, only_run, patient_environment, run_bench
from lab_leftovers import assert_nothing_left

from fsjoule.model import DamageOutcome, FileFate

UNNOTICED = (FileFate.SILENT, FileFate.ZEROED, FileFate.MISSING)
LOSSY = ENVIRONMENT.with_name("virtual-lossy.yaml")
# The power is cut 3.8 s after the first file was begun, on both filesystems: time enough for some on a busy machine.
SEED = "72"


def outcomes(results: Path, *options: str, environment: Path) -> dict[str, DamageOutcome]:
    """What a run of one repetition has found, by filesystem."""
    done = run_bench(results, "--repeat", "1", "--seed", SEED, *options, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    measurements = only_run(results).measurements
    assert all(m.valid for m in measurements)
    return {m.series.filesystem: m.outcome for m in measurements if m.outcome is not None}


def unnoticed(outcome: DamageOutcome) -> int:
    return sum(outcome.files.get(fate, 0) for fate in UNNOTICED)


@pytest.mark.slow
def test_btrfs_notices_damaged_data_and_ext4_does_not(state: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    options = ("--suite", "elc2015/dm-flakey", "--fs", "ext4,btrfs", "-k", "after-10s")
    found = outcomes(results, *options, environment=patient_environment(results))
    assert found["btrfs"].promised == found["ext4"].promised == 9
    assert found["btrfs"].failed
    assert unnoticed(found["btrfs"]) == 0
    assert found["ext4"].failed
    assert unnoticed(found["ext4"]) > 0
    assert_nothing_left(state, state / "devices")


def test_a_filesystem_without_barriers_is_caught_on_a_disk_that_loses_its_cache(state: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    options = ("--suite", "elc2015/power-loss", "--fs", "ext4,ext4:nobarrier", "--storage", "stick", "-k", "async")
    found = outcomes(results, *options, environment=patient_environment(results, LOSSY))
    safe, unsafe = found["ext4"], found["ext4:nobarrier"]
    assert safe.promised > 0
    assert not safe.failed
    assert safe.files == {FileFate.INTACT: safe.promised}
    assert unsafe.promised > 0
    assert unsafe.failed
    assert unsafe.cut_s == pytest.approx(3.8, abs=0.1)
    assert_nothing_left(state, state / "devices")
