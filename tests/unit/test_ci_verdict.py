"""A gate's verdict as a job's reports: metrics for the merge request's widget, links beside the job."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import CommandLine
from compared_runs import write_kernels

from fsjoule.store.folder import GATE_FILE

JOB = "https://gitlab.example/group/linux/-/jobs/31"


@pytest.fixture
def run(fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    for name in ("FSJOULE_INDEX", "CI_JOB_URL", "CI_PROJECT_DIR", "CI_PAGES_URL"):
        monkeypatch.delenv(name, raising=False)
    return fsjoule


def gated(run: CommandLine, folder: Path, speed: float) -> Path:
    """A run folder with a gate's answer."""
    found = write_kernels(folder / "results", speeds={"6.1": 1.0, "6.12": speed})
    done = run("gate", "--baseline", f"6.1@{found}", "--candidate", f"6.12@{found}", "--json")
    (found / GATE_FILE).write_text(done.out)
    return found


def test_each_figure_is_a_metric_and_the_answer_too(run: CommandLine, tmp_path: Path) -> None:
    folder = gated(run, tmp_path, 0.8)
    done = run("ci", "verdict", "results")
    assert done.code == 0, done.err
    lines = (tmp_path / "metrics.txt").read_text().splitlines()
    assert (lines[0], lines[-1]) == ("fsjoule_gate_exit_code 1", "# EOF")
    change = re.compile(r'fsjoule_change_percent\{series="(.*)",metric="(.*)"\} (.*)')
    told = {(match[1], match[2]): float(match[3]) for line in lines if (match := change.fullmatch(line))}
    tests = json.loads((folder / GATE_FILE).read_text())["tests"]
    assert told == {
        (each["label"], each["metric"]): pytest.approx(100 * (each["ratio"] - 1), abs=0.001) for each in tests
    }
    assert max(map(abs, told.values())) > 20
    assert any(re.match(r'fsjoule_figure\{.*metric="throughput",unit="MiB/s"\} \d', line) for line in lines)
    assert not (tmp_path / "annotations.json").exists(), "outside a job there is nothing to link to"


def test_a_job_links_to_the_page_of_the_verdict_and_to_the_trends(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = gated(run, tmp_path, 1.0)
    monkeypatch.setenv("CI_JOB_URL", JOB)
    monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path))
    monkeypatch.setenv("CI_PAGES_URL", "https://group.pages.example/linux")
    (tmp_path / "out").mkdir()
    assert run("ci", "verdict", "results", "--output", "out").code == 0
    links = [
        each["external_link"]["url"] for each in json.loads((tmp_path / "out/annotations.json").read_text())["fsjoule"]
    ]
    page = f"{JOB}/artifacts/file/{folder.relative_to(tmp_path)}/report.html"
    assert links == [page, "https://group.pages.example/linux/trends.html"]


def test_what_has_no_answer_is_said(run: CommandLine, tmp_path: Path) -> None:
    folder = write_kernels(tmp_path / "results", speeds={"6.1": 1.0})
    done = run("ci", "verdict", "results")
    assert (done.code, done.err) == (0, "no gate has measured anything in results\n")
    (folder / GATE_FILE).write_text("{}")
    done = run("ci", "verdict", "results")
    assert (done.code, "gate.json names no schema" in done.err) == (2, True)
    assert run("ci", "verdict", "nowhere").code == 2
    assert not (tmp_path / "metrics.txt").exists()
