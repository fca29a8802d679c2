"""`fsjoule gate` as its user starts it, in the virtual lab: it ends cleanly, and measures no kernel against itself."""

from __future__ import annotations

import json
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from command_line import started
from lab_leftovers import assert_nothing_left

from fsjoule.model import RunStatus
from fsjoule.store.reader import load_run

PROJECT = Path(__file__).parents[2]
ENVIRONMENT = PROJECT / "env" / "deterministic.yaml"
# Generous: a busy machine, and perhaps card images to build first.
TIMEOUT_S = 1200.0
SIDES = ("--baseline", "6.1", "--candidate", "6.1", "--lg-env", ENVIRONMENT, "--fs", "ext4")


def test_the_same_kernel_passes_without_a_boot(state: Path, tmp_path: Path) -> None:
    with ExitStack() as closing:
        done = started(closing, "gate", *SIDES, "--results", tmp_path / "results", "--json")
        out, err = done.communicate(timeout=TIMEOUT_S)
    assert done.returncode == 0, err
    document = json.loads(out)
    assert document["verdict"] == "identical"
    assert document["baseline"]["digest"] == document["candidate"]["digest"]
    assert not (tmp_path / "results").exists()
    assert not (state / "labs").exists()


@pytest.mark.slow
def test_it_ends_cleanly_when_it_is_cancelled(state: Path, tmp_path: Path) -> None:
    """As a CI job is: the board is off, the place free, the lab down, and what was measured is kept.

    test_interrupted_runs.py ends benches, and test_lava.py a bench that is somebody's job.
    """
    results = tmp_path / "results"
    with ExitStack() as closing:
        gate = started(closing, "gate", *SIDES, "--allow-same", "--results", results, "--seed", "3")
        deadline = time.monotonic() + TIMEOUT_S
        while not list(results.glob("*/measurements/01-*/measurement.json")):
            assert gate.poll() is None, gate.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        gate.send_signal(signal.SIGTERM)
        out, err = gate.communicate(timeout=TIMEOUT_S)
    assert gate.returncode == 143, err
    assert not out
    assert "place 'virtual' released" in err
    [folder] = results.iterdir()
    run = load_run(folder)
    assert (run.run.status, run.run.abort_reason) == (RunStatus.ABORTED, "interrupted by SIGTERM")
    assert run.measurements
    assert [kernel.label for kernel in run.run.kernels] == ["6.1#1", "6.1#2"]
    assert_nothing_left(state, state / "devices")
