"""A bench as its user starts it: pytest on tests/bench in a process of its own, with a virtual lab."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fsjoule.model import Measurement, RunStatus
from fsjoule.store.reader import LoadedRun, load_run

PROJECT = Path(__file__).parents[2]
ENVIRONMENT = PROJECT / "env" / "virtual.yaml"
# Generous: a busy machine, and perhaps card images to build first.
TIMEOUT_S = 1200.0
# The same for a board of its own kernel and user land.
BUILD_TIMEOUT_S = 3600.0
# Options of the smallest figure with throughput and energy: a file of 5 MiB, where the quick suite's has 32.
SMALL = ("--suite", "energy-emmc-2025", "--size-factor", "0.01", "--fs", "ext4", "-k", "ext4-read-16k")
_INVALID = 1
_MARK_LATE = re.compile(r"^the window .* and the board's own time .* differ by ")


def patient_environment(beside: Path, environment: Path = ENVIRONMENT, **changed: object) -> Path:
    """The virtual lab's, but a window may be much longer than its work: these tests share the machine with others.

    `changed` are further arguments by name; each is there once.
    """
    text = environment.read_text()
    for name, value in {"window_excess": 10, **changed}.items():
        text, count = re.subn(rf"\b{name}: [\w.]+", f"{name}: {value}", text)
        assert count == 1, name
    path = beside.with_name(f"{beside.name}.yaml")
    path.write_text(text)
    return path


def command(results: Path, *options: str, environment: Path | None = None) -> list[str]:
    environment = environment or patient_environment(results)
    bench = [sys.executable, "-m", "pytest", "tests/bench", "--lg-env", str(environment), "--results", str(results)]
    return [*bench, "-p", "no:cacheprovider", *options]


def run_bench(
    results: Path, *options: str, environment: Path | None = None, timeout_s: float = TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(results, *options, environment=environment),
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def only_run(results: Path) -> LoadedRun:
    [folder] = results.iterdir()
    return load_run(folder)


def told(measurement: Measurement) -> dict[str, Any]:
    """All of a measurement but when it was taken: by the time of day, and by the clock of the meter."""
    own = asdict(measurement)
    return {name: value for name, value in own.items() if name not in ("started_utc", "window", "idle_window")}


def complete_run(results: Path, environment: Path, *options: str) -> LoadedRun:
    """What a bench of one boot has measured, which ended with 0."""
    boot = ("--kernel", "6.1", "--repeat", "1", *options)
    done = run_bench(results, *boot, environment=environment, timeout_s=BUILD_TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    run = only_run(results)
    assert run.run.status is RunStatus.COMPLETE
    return run


def all_valid(run: LoadedRun | None) -> bool:
    """Whether the run is complete and all of it can be believed."""
    return run is not None and run.run.status is RunStatus.COMPLETE and all(each.valid for each in run.measurements)


def as_good_as_can_be(exit_code: int | None, run: LoadedRun | None) -> bool:
    """Whether everything was measured. On a busy host the emulated board's marks may come late; a bench says so."""
    if exit_code == 0:
        return all_valid(run)
    return (
        exit_code == _INVALID
        and run is not None
        and run.run.status is RunStatus.COMPLETE
        and all(only_late_marks(each) for each in run.measurements)
    )


def only_late_marks(measurement: Measurement) -> bool:
    """Whether it is valid, or invalid for a late mark only: `fsjoule.meter.energy.validity` says so."""
    return all(_MARK_LATE.search(reason) for reason in measurement.invalid_reasons)
