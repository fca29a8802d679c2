"""How a bench ended, in KernelCI's words."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from results_factory import make_run

from fsjoule.ci.kernelci import poll as poller
from fsjoule.model import RunStatus


@pytest.mark.parametrize(
    ("code", "run", "output", "outcome"),
    [
        (0, {"status": RunStatus.COMPLETE}, "", poller.JobOutcome("pass")),
        (1, {"status": RunStatus.COMPLETE}, "", poller.JobOutcome("fail")),
        (
            4,
            {"status": RunStatus.COMPLETE},
            "ERROR: old\nERROR: the meter is silent\n  hint\n",
            poller.JobOutcome("incomplete", "Infrastructure", "the meter is silent"),
        ),
        (
            4,
            {"status": RunStatus.ABORTED, "abort_reason": "no board"},
            "ERROR: x\n",
            poller.JobOutcome("incomplete", "Infrastructure", "no board"),
        ),
        (
            4,
            {"status": RunStatus.ABORTED, "abort_reason": "it did not boot: Kernel panic - x"},
            "",
            poller.JobOutcome("fail"),
        ),
        (2, None, "ERROR: no f2fs\n", poller.JobOutcome("incomplete", "invalid_job_params", "no f2fs")),
        (70, None, "", poller.JobOutcome("incomplete", "Infrastructure", "the bench ended with exit code 70")),
        (None, None, "", poller.JobOutcome("incomplete", "Infrastructure", "the bench took too long")),
    ],
)
def test_a_benchs_end_in_kernelcis_words(
    code: int | None, run: dict[str, Any] | None, output: str, outcome: poller.JobOutcome, tmp_path: Path
) -> None:
    (tmp_path / "bench.log").write_text(output)
    found = None if run is None else dataclasses.replace(make_run().run, **run)
    assert poller.outcome_of(code, found, tmp_path / "bench.log") == outcome
