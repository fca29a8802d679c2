"""What the benchmarks of boards in guest time share: what is measured, and a turn in a process of its own."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Final

from fsjoule.host import process
from fsjoule.host.paths import project_dir
from fsjoule.lab import EnvironmentFile, read_environment
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.request import RunRequest, choose

_TURN_LIMIT_S: Final = 3 * 3600.0


def quick_ext4(
    results: Path, kernels: str | tuple[str, str], *, repeat: int = 1, boards: int = 1
) -> tuple[RunRequest, EnvironmentFile]:
    """Suite quick of ext4, with one seed."""
    environment = read_environment(project_dir() / "env" / "deterministic.yaml")
    choice = choose(
        BenchOptions(
            suite="quick",
            fs="ext4",
            kernel=kernels if isinstance(kernels, str) else None,
            repeat=repeat,
            provision="scratch",
            results=results,
            seed=3,
            boards=boards,
        ),
        environment,
        pair=None if isinstance(kernels, str) else kernels,
    )
    return choice, environment


def options(description: str) -> argparse.ArgumentParser:
    """A benchmark's options: how many boards, and how to tell the result. `turn_s` gives `--turn FOLDER`."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--boards", type=int, default=len(os.sched_getaffinity(0)), help="(default: the cores)")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--turn", type=Path, help=argparse.SUPPRESS)
    return parser


def turn_s(*words: str | Path) -> float:
    """Run the benchmark itself with these words, and return its seconds."""
    started_s = time.monotonic()
    process.run([sys.executable, sys.argv[0], *words], timeout_s=_TURN_LIMIT_S)
    return time.monotonic() - started_s


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)
