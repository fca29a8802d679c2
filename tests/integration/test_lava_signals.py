"""The signals of a LAVA job: measurements, the end, the answer of a gate; tests/lab/test_lava.py has LAVA itself."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from results_factory import make_run

from fsjoule.ci.lava.signals import Signals, signals_of
from fsjoule.host.messages import lines_to
from fsjoule.model import INSTRUCTIONS, RunStatus
from fsjoule.model.metrics import Metric, figure_of, metrics_told
from fsjoule.statistics.gate import SequentialState
from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.policy import Policy
from fsjoule.store.finding import Finding, Subject
from fsjoule.store.gate import Gated, GateSide, GateVerdict

FOLDER = Path("/srv/runs/a-run")
# Like LAVA's own programs: they print what they are told as one line. The real ones are in tests/lab/test_lava.py.
PROGRAM = '#!/bin/sh\necho "<$(basename "$0") $*>"\nfor last; do :; done\n[ -f "$last" ] && cat "$last" || true\n'


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[list[str]]:
    """Lines of a job in which LAVA's programs are on the PATH."""
    for name in ("lava-test-case", "lava-test-set"):
        (tmp_path / name).write_text(PROGRAM)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    lines: list[str] = []
    with lines_to(lambda line: None if line.startswith("fsjoule-kept ") else lines.append(line)):
        yield lines


@pytest.mark.usefixtures("said")
def test_only_a_job_has_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    assert signals_of({}) is None
    assert signals_of({"LAVA_JOB_ID": "7"}) is not None
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert signals_of({"LAVA_JOB_ID": "7"}) is None


def test_every_measurement_is_told_with_its_figures_or_its_reasons(said: list[str]) -> None:
    made = make_run()
    signals = Signals()
    signals.opened(made.run, FOLDER)
    assert said == ["<lava-test-case run-k3v9q2 --result pass>", "<lava-test-set start quick-simulated>"]
    for measurement in made.measurements:
        said.clear()
        signals.stored(measurement)
        metrics = metrics_told(measurement)
        told = [re.findall(r"<lava-test-case (\S+) --result (\w+)", line) for line in said]
        cases = dict(pair for pairs in told for pair in pairs)
        assert list(cases) == [f"{measurement.slug}.{metric.value}" for metric in metrics]
        if measurement.number == 2:
            assert set(cases.values()) == {"fail"}
            assert any("window 2.314 s and fio's runtime 2.101 s differ" in line for line in said)
            assert not any("--measurement" in line for line in said)
            continue
        for metric, line in zip(metrics, said, strict=True):
            figure = figure_of(measurement, metric)
            wanted = "--result skip>" if figure is None else f"--result pass --measurement {figure!r}"
            assert wanted in line
            assert figure is None or not metric.unit or line.endswith(f"--units {metric.unit}>")


def test_instructions_are_told_only_with_a_profile(said: list[str]) -> None:
    measurement = make_run(repeat=1).measurements[0]
    signals = Signals()
    signals.stored(replace(measurement, counts={}))
    assert said
    assert not any("instructions" in line for line in said)
    signals.stored(replace(measurement, counts={INSTRUCTIONS: 5_000_000_000}))
    told = [line for line in said if "instructions" in line]
    assert len(told) == 1
    assert "--result pass --measurement " in told[0]


def test_the_end_tells_whether_the_run_is_complete(said: list[str]) -> None:
    run = make_run(simulated=False).run
    signals = Signals()
    signals.opened(run, FOLDER)
    assert said.pop() == "<lava-test-set start quick>"
    signals.closed(run)
    assert said[-2:] == ["<lava-test-set stop>", "<lava-test-case run-complete --result pass>"]
    signals.closed(replace(run, status=RunStatus.ABORTED, abort_reason="interrupted by SIGTERM"))
    assert said[-2:] == [
        "the run was aborted: interrupted by SIGTERM",
        "<lava-test-case run-complete --result fail>",
    ]


def test_several_kernels_are_told_apart(said: list[str]) -> None:
    made = make_run(kernels=("6.1", "next/20261120"), repeat=1)
    signals = Signals()
    signals.opened(made.run, FOLDER)
    said.clear()
    for measurement in made.measurements:
        signals.stored(measurement)
    assert {line.split()[1].partition("-ext4")[0].partition("-btrfs")[0] for line in said if "<" in line} == {
        "6.1",
        "next_20261120",
    }


def test_a_signal_that_cannot_be_written_loses_no_measurement(
    said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/none")
    Signals().opened(make_run().run, FOLDER)
    assert all(line.startswith("warning: LAVA was not told: ") for line in said)
    assert len(said) == 2


def test_a_gates_answer_is_told_by_figure(said: list[str]) -> None:
    subject = Subject("k", make_run().measurements[0].series, simulated=True, label="ext4 read-16k")
    shown = [(Outcome.REGRESSED, 0.9), (Outcome.UNDECIDED, None), (Outcome.UNCHANGED, 1.0)]
    findings = tuple(
        Finding(
            subject,
            Metric.THROUGHPUT,
            outcome,
            ratio,
            None,
            0.05,
            1.0,
            1.0,
            (4, 4),
            SequentialState(outcome, more=False, pairs=4),
        )
        for outcome, ratio in shown
    )
    sides = (GateSide("a", "a"), GateSide("b", "b"))
    gated = Gated(GateVerdict.REGRESSED, *sides, Policy(), "clear after 4 pairs", findings=findings)
    Signals().judged(gated)
    name = "ext4_read-16k.throughput"
    assert said == [
        "<lava-test-set start gate>",
        f"<lava-test-case {name} --result fail --measurement {(0.9 - 1) * 100!r} --units %>",
        f"<lava-test-case {name} --result unknown>",
        f"<lava-test-case {name} --result pass --measurement 0.0 --units %>",
        "<lava-test-set stop>",
        "gate: regressed; clear after 4 pairs",
    ]
