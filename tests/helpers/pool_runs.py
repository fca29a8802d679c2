"""Runs on several boards at once: what is planned, and what a user asks."""

from __future__ import annotations

from pathlib import Path

from fsjoule.lab import EnvironmentFile
from fsjoule.model import Plan, Run, RunStatus
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.request import RunRequest, choose
from fsjoule.suites import Planning, plan_entries, suite

KERNELS = ("6.1", "6.12")


def run_of(repeat: int, kernels: tuple[str, ...] = KERNELS) -> Run:
    entries = plan_entries(suite("quick"), Planning(("ext4",), kernels, repeat=repeat, seed=3)).entries
    plan = Plan("quick", ("ext4",), kernels, repeat, 3, {}, entries)
    return Run("id", "1970-01-01T00:00:00Z", RunStatus.RUNNING, simulated=True, plan=plan)


def choice_of(environment: EnvironmentFile, results: Path, boards: int) -> RunRequest:
    options = BenchOptions(
        suite="quick",
        fs="ext4",
        kernel="6.1",
        repeat=1,
        provision="scratch",
        results=results,
        seed=3,
        boards=boards,
    )
    return choose(options, environment)
