"""A bench that gets one to five signals at random moments, with gaps of nothing to seconds, ends whole each time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from bench_runs import PROJECT, command
from interruptible import interruptible

from fsjoule.host.interrupts import SIGNALS
from fsjoule.lab import variables
from fsjoule.model import RunStatus
from fsjoule.store.reader import load_run
from fsjoule.virtual.lab import lab

_ENDED_WITHIN_S = 120.0
_GAPS_S = (0.0, 0.0, 0.01, 0.1, 0.4, 1.0, 3.0)


@pytest.fixture(scope="module")
def running(module_state: Path) -> Generator[Path]:
    """A lab that stays up: what a bench leaves in it is seen there."""
    handle = lab.up("virtual", owner_pid=os.getpid())
    with variables(handle.environment):
        yield module_state
    lab.down("virtual")


# Of 1 to 6, 2, 4 and 6 send one signal each, all three kinds, to a bench that has begun.
# The quick ones: Ctrl-C while it measures, and all three kinds while it starts.
_SEEDS = range(1, 1 + int(os.environ.get("FSJOULE_SIGNALS", "6")))
_QUICK = (2, 3)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed in _QUICK else pytest.mark.slow) for seed in _SEEDS]
)
def test_signals_at_any_moment_leave_the_board_off_the_place_free_and_the_run_final(
    running: Path, tmp_path: Path, seed: int
) -> None:
    drawn = random.Random(seed)
    # The first ones come while it starts; a bench takes half a minute.
    after_s = drawn.uniform(1.0, 8.0) if seed % 2 else drawn.uniform(8.0, 30.0)
    numbers = drawn.choices(SIGNALS, k=drawn.randint(1, 5))
    gaps_s = [drawn.choice(_GAPS_S) for _ in numbers]
    told = f"seed {seed}: after {after_s:.2f} s {[each.name for each in numbers]}, gaps {gaps_s}"
    said = "interrupted" if numbers[0] is signal.SIGINT else f"interrupted by {numbers[0].name}"
    results = tmp_path / "results"
    with subprocess.Popen(
        interruptible(*command(results, "--fs", "ext4", "--repeat", "2")),
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as bench:
        time.sleep(after_s)
        handles = _handles(bench.pid)
        for number, gap_s in zip(numbers, gaps_s, strict=True):
            if bench.poll() is None:
                os.kill(bench.pid, number)
            time.sleep(gap_s)
        output, _ = bench.communicate(timeout=_ENDED_WITHIN_S)
    if handles:
        assert bench.returncode == 128 + numbers[0], f"{told}\n{output}"
    status = lab.status("virtual")
    assert status.holder is None, f"{told}\n{output}"
    assert status.board is not None
    assert status.board["power"] == "off", f"{told}\n{output}"
    assert not list((running / "places").glob("*")), told
    for folder in results.glob("*"):
        run = load_run(folder)
        assert run.run.status is RunStatus.ABORTED, f"{told}\n{output}"
        assert run.run.abort_reason == said, told
        assert (folder / "report.html").exists(), told
    assert "Traceback" not in output or not handles, f"{told}\n{output}"


def _handles(pid: int) -> bool:
    """Whether the process has come so far that it handles the signals: Python alone does not handle SIGTERM."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) & 1 << (signal.SIGTERM - 1))
    return False


def test_a_bench_that_ignores_ctrl_c_from_its_start_goes_on(running: Path, tmp_path: Path) -> None:
    assert running
    results = tmp_path / "results"
    bench = command(results, "--fs", "ext4", "--repeat", "1", "-k", "boot")
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *bench]
    with subprocess.Popen(ignoring, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        for _ in range(5):
            time.sleep(3)
            os.kill(job.pid, signal.SIGINT)
        output, _ = job.communicate(timeout=600)
    assert job.returncode == 0, output


def test_lab_up_that_is_ended_leaves_no_lab(state: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        up = interruptible(Path(sys.executable).with_name("fsjoule"), "lab", "up", "--name", "brief")
        with subprocess.Popen(up, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as started:
            assert started.stdout is not None
            for line in started.stdout:
                if "starting exporter" in line:
                    break
            os.kill(started.pid, number)
            os.kill(started.pid, number)
            output = started.stdout.read()
        assert started.returncode == 128 + number, output
        assert lab.status("brief").state == "down"
    assert state.is_dir()
