"""The worker processes of the web service, as its readers wait for them."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from fsjoule.report.service.asked import AskedRuns
from fsjoule.report.service.errors import UnmadeError
from fsjoule.report.service.jobs import Format, Task
from fsjoule.report.service.settings import Settings
from fsjoule.report.service.workers import Workers


def test_a_worker_that_starts_slowly_holds_no_reader_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A worker is this Python; a program in its place never becomes ready, however fast this computer is.
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 3600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    began_s = time.monotonic()
    with closing(Workers(Settings(str(tmp_path)), count=1, limit_s=0.2)) as workers:
        for _ in range(2):
            with pytest.raises(UnmadeError, match="is still starting"):
                asyncio.run(workers.make(Task(AskedRuns(), Format.HTML, "")))
        assert workers.counts["started"] == 1, "the same one goes on"
        assert workers.counts["late"] == 2, "a worker that was started ahead keeps nobody waiting"
    assert time.monotonic() - began_s < 60.0
