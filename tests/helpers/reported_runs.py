"""A folder of results with something of everything that a report shows: builds with a step, faults, a gate, damage."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from nights import Nights
from results_factory import make_run
from whole_runs import write_whole

from fsjoule.model import Fault, IoPattern, LabStep, Measurement, Run, RunStatus
from fsjoule.model.metrics import Figure, Metric
from fsjoule.report.gate import headline
from fsjoule.statistics.gate import SequentialState
from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.policy import Policy
from fsjoule.statistics.ratios import Interval
from fsjoule.store.finding import Finding, Subject
from fsjoule.store.gate import Gated, GateSide, GateVerdict, keep_gate
from fsjoule.store.schemas import STEPS_FILE, encode_steps

BUILDS = 12
STEP_AT = 8
STEP = 0.9

LAB_STEPS = (
    LabStep("transition", "BoardStrategy", 1, 1_772_000_000_000, 5200, {"status": "Status.booted"}),
    LabStep("off", "NetworkPowerDriver", 2, 1_772_000_000_100, 300),
    LabStep("on", "NetworkPowerDriver", 2, 1_772_000_000_500, 310),
    LabStep("run", "ShellDriver", 1, 1_772_000_006_000, 80, {"cmd": "sync"}, "TIMEOUT: no prompt"),
)


def step(night: int, fs: str, pattern: IoPattern, _kernel: str) -> Figure:
    """Random writes on btrfs become slower by a tenth from one night on, reads on ext4 in the last night."""
    slower = {("btrfs", IoPattern.RANDWRITE): STEP_AT, ("ext4", IoPattern.READ): BUILDS - 1}
    return STEP if night >= slower.get((fs, pattern), BUILDS) else 1.0


def write_nights(results: Path) -> None:
    """Two boards, one of them simulated, whose nights are builds; in one series of it a step is planted."""
    Nights(speed=step, board="nightly").write(results, BUILDS)
    Nights(board="colibri", simulated=False, filesystems=("ext4",), prefix="c").write(results, 6)


@dataclass(frozen=True)
class Written:
    """A run that was written, and which of its measurements came to what."""

    path: Path
    run: Run
    invalid: int
    damaged: int
    missing: int
    retried: int
    failed: int
    buggy: int


def _attachments(measurement: Measurement) -> dict[str, bytes]:
    console = b"# sync\n\n# mount -t ext4 /dev/mmcblk1p3 /mnt\n"
    fio = {"fio.json": json.dumps({"fio version": "fio-3.33"}).encode()} if measurement.fio else {}
    return {"console.log": console, STEPS_FILE: encode_steps(LAB_STEPS), **fio}


def write_run(results: Path) -> Written:
    """A run with traces, attachments and labgrid's steps, in which one thing of each kind went wrong."""
    made = make_run(repeat=1)
    invalid, _, damaged, missing, retried, failed, buggy = 2, 3, 4, 5, 6, 7, 8
    lab = Fault(
        number=retried,
        started_utc="2026-03-09T10:00:02Z",
        ended_utc="2026-03-09T10:00:05Z",
        what="virtual did not boot: no login within 180 s of power-on\n  console| Kernel panic",
        transient=True,
        hint="look at its supply",
        steps=LAB_STEPS,
    )
    faults = (
        lab,
        replace(lab, number=failed, what="the outlet does not answer", transient=False, steps=()),
        replace(lab, number=buggy, what="ValueError: no\n  line 1", transient=False, bug=True, steps=()),
    )
    run = replace(made.run, status=RunStatus.ABORTED, abort_reason="interrupted", faults=faults)
    measured = [each for each in made.measurements if each.number not in (missing, failed, buggy)]
    folder = write_whole(results, run, measured, trace=made.traces.get, attachments=_attachments)
    name = next(path for path in (folder / "measurements").iterdir() if path.name.startswith(f"{damaged:02d}-"))
    (name / "measurement.json").write_text("{", encoding="utf-8")
    return Written(folder, made.run, invalid, damaged, missing, retried, failed, buggy)


def write_gate(run_folder: Path, subjects: tuple[Subject, ...]) -> None:
    """Keep a gate as `fsjoule gate` does.

    The first series has regressed, the second has not, the third is not decided.
    """
    outcomes = (Outcome.REGRESSED, Outcome.NOT_REGRESSED, Outcome.UNDECIDED)
    findings = tuple(
        Finding(
            subject=subject,
            metric=Metric.THROUGHPUT,
            outcome=outcome,
            ratio=(ratio := 0.9 if outcome is Outcome.REGRESSED else 1.0),
            interval=Interval(0.88, 0.92) if outcome is Outcome.REGRESSED else None,
            matters=0.02,
            baseline=10.0,
            candidate=10.0 * ratio,
            boots=(4, 4),
            basis=SequentialState(outcome, more=False, pairs=4, ratio=ratio),
        )
        for subject, outcome in zip(subjects, outcomes, strict=True)
    )
    gated = Gated(
        GateVerdict.REGRESSED,
        GateSide("main", "main: kernel 6.1"),
        GateSide("HEAD", "HEAD: kernel 6.1+"),
        Policy(),
        "decided",
        pairs=4,
        findings=findings,
        command=("fsjoule", "gate", "--baseline", "main", "--candidate", "HEAD"),
    )
    keep_gate(gated, headline(gated), run_folder)
