"""Suite quick on the emulated boards that start Debian's U-Boot from their card: 32-bit and 64-bit ARM.

A run takes four to seven minutes, so it is not among the tests of `make test`; `make test-boards` runs them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_runs import BUILD_TIMEOUT_S, PROJECT, all_valid, only_run, patient_environment, run_bench


@pytest.mark.parametrize("board", ["orangepi", "rpi3"])
def test_all_of_suite_quick_is_valid(board: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSJOULE_STATE_DIR", str(tmp_path / "state"))
    results = tmp_path / "results"
    environment = patient_environment(results, PROJECT / "env" / f"virtual-{board}.yaml")
    options = ("--fs", "ext4", "--kernel", "6.1", "--suite", "quick", "--repeat", "1")
    done = run_bench(results, *options, environment=environment, timeout_s=BUILD_TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    run = only_run(results)
    assert all_valid(run)
    assert len(run.measurements) == 8
