"""Whole run folders to begin with, small ones: each command is run on thousands of their mutants."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from profiles import profile_of, symbols_of
from reported_runs import LAB_STEPS, write_gate, write_run
from results_factory import MadeRun, make_measurement, make_run

from fsjoule.model import (
    DamageOutcome,
    FileFate,
    FlakeyModel,
    FlakeyWorkload,
    Measurement,
    Plan,
    Planned,
    PowerLossWorkload,
    Provision,
    RunStatus,
    TimedKind,
    TimedWorkload,
)
from fsjoule.model.series import Series
from fsjoule.store.folder import RunFolder
from fsjoule.store.profiles import (
    PROFILE_FILE,
    PROGRAMS_FILE,
    encode_profile,
    encode_programs,
    encode_symbols,
    symbols_file,
)
from fsjoule.store.reader import load_run
from fsjoule.store.schemas import STEPS_FILE, encode_steps
from fsjoule.verdicts.comparison import Subject

_GOLDEN: Final = Path(__file__).parents[1] / "unit" / "data" / "real-run"


def write_sources(into: Path, further: Sequence[Path] = ()) -> None:
    """A folder for each kind of run, and the `further` ones."""
    _store(_two_kernels(), into / "kernels", 4, profiled=True)
    suite = make_run(block_sizes_kib=(16, 32, 64), size_mib=1, repeat=1)
    _store(_of_suite(suite, "energy-emmc-2025"), into / "suite", 4)
    _store(_hazards(), into / "hazards", 8)
    _with_faults(into / "faults")
    shutil.copytree(_GOLDEN, into / "golden" / "20250101T000000Z-virtual-golden")
    for path in further:
        shutil.copytree(path, into / f"further-{path.name}" / path.name)


def _store(made: MadeRun, into: Path, most: int, *, profiled: bool = False) -> None:
    """Some of its measurements, with attachments; the run is aborted, so that it can be gone on with."""
    profile = profile_of({0xBF000004: 7, 0xC0000008: 5, 0x8000: 3}, pages={0x8000: 77})
    symbols = symbols_of({0xBF000000: "btrfs:btrfs_read.isra.0", 0xC0000000: "vfs_read", 0xC0000004: "between"})
    folder = RunFolder(into)
    folder.begin(replace(made.run, status=RunStatus.RUNNING))
    for measurement in made.measurements[:most]:
        attachments = {"console.log": b"# sync\n", "fio.json": b"{}", STEPS_FILE: encode_steps(LAB_STEPS)}
        if profiled:
            attachments[PROFILE_FILE] = encode_profile(profile)
            folder.keep(symbols_file(measurement.boot), encode_symbols(symbols))
            folder.keep(PROGRAMS_FILE, encode_programs({77: "fio"}))
        folder.add(measurement, made.traces.get(measurement.number), attachments)
    folder.finish(replace(made.run, status=RunStatus.ABORTED, abort_reason="interrupted"))
    # What they refuse, no reader behind them sees.
    for checksums in sorted(folder.path.glob("measurements/*/SHA256SUMS"))[1:]:
        checksums.unlink()


def _two_kernels() -> MadeRun:
    """Of each series a measurement on either kernel first."""
    made = make_run(kernels=("6.1", "6.12"), repeat=1, filesystems=("ext4",), size_mib=2)
    board = made.run.boards["6.12"]
    newer = replace(board, kernel_release="6.12.1-armmp", kernel_version="6.12.1-1")
    ordered = sorted(made.measurements, key=lambda m: (m.workload.kind, m.slug, m.kernel))
    return MadeRun(replace(made.run, boards={**made.run.boards, "6.12": newer}), tuple(ordered), made.traces)


def _of_suite(made: MadeRun, suite: str) -> MadeRun:
    plan = made.run.plan
    entries = tuple(replace(entry, suite=suite) for entry in plan.entries)
    run = replace(made.run, plan=replace(plan, suite=suite, size_factors={suite: 0.0625}, entries=entries))
    measurements = tuple(replace(m, series=replace(m.series, suite=suite)) for m in made.measurements)
    return MadeRun(run, measurements, made.traces)


def _hazards() -> MadeRun:
    """What filesystems keep: after a loss of power, and on a device that damages what is written."""
    made = make_run(repeat=1)
    entries: list[Planned] = []
    measurements: list[Measurement] = []
    for number in range(1, 9):
        workload = FlakeyWorkload(FlakeyModel.AFTER_10S) if number % 2 else PowerLossWorkload(sync=number > 4)
        suite = f"elc2015/{'dm-flakey' if number % 2 else 'power-loss'}"
        filesystem = ("ext4", "btrfs")[number // 2 % 2]
        entry = Planned(number, 1 + number // 4, "6.1", filesystem, workload, suite, Provision.SCRATCH)
        measured, _ = make_measurement(replace(entry, workload=TimedWorkload(TimedKind.MOUNT)))
        files = {FileFate.INTACT: number, FileFate.SILENT: number // 3}
        outcome = DamageOutcome(files, mounts=True, read_only=False, check_exit=0, check_clean=True, damaged=("f1",))
        series = replace(measured.series, suite=suite, workload=workload.slug)
        entries.append(entry)
        measurements.append(replace(measured, workload=workload, series=series, outcome=outcome))
    suites = dict.fromkeys((entry.suite for entry in entries), 1.0)
    plan = Plan("elc2015", ("ext4", "btrfs"), ("6.1",), 2, 7, suites, tuple(entries))
    return MadeRun(replace(made.run, plan=plan), tuple(measurements), {})


def _with_faults(into: Path) -> None:
    """Faults, labgrid's steps and a gate's answer; most of its measurements taken away again."""
    path = write_run(into).path
    loaded = load_run(path)
    series = {Series(m.series, m.simulated): None for m in loaded.measurements}
    write_gate(path, tuple(Subject(each.key, each.series, each.simulated, each.label) for each in list(series)[:3]))
    kept = sorted((path / "measurements").iterdir())[:4]
    for measurement in (path / "measurements").iterdir():
        if measurement not in kept:
            shutil.rmtree(measurement)
    document = json.loads((path / "run.json").read_text())
    document["measurements"] = [each.name for each in kept]
    (path / "run.json").write_text(json.dumps(document, indent=2))
