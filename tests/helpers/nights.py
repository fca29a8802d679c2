"""Run folders of many nights, with figures that change when they are told to; written without flushing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from results_factory import BOARD, KERNEL, make_measurement

from fsjoule.host.json_text import json_text
from fsjoule.model import (
    KIB,
    MIB,
    FioWorkload,
    IoPattern,
    KernelFacts,
    Measurement,
    Plan,
    Planned,
    Provision,
    Run,
    RunStatus,
    SeriesKey,
    Value,
)
from fsjoule.model.metrics import Figure
from fsjoule.store.schemas import MEASUREMENT, RUN

BEGIN = datetime(2026, 1, 1, 2, tzinfo=UTC)
PATTERNS = (IoPattern.READ, IoPattern.RANDWRITE)
# Of tests that share their nights: how many they are, and the first one with a loss.
NIGHTS, STEP_AT = 36, 21

# What becomes of the throughput of one boot: by night, filesystem, operation and kernel's label.
Speed = Callable[[int, str, IoPattern, str], Figure]


def steady(_night: int, _filesystem: str, _pattern: IoPattern, _kernel: str) -> Figure:
    return 1.0


def slower_at(start: int, factor: float = 0.93) -> Speed:
    """Random writes of btrfs are slower from that night on."""

    def speed(night: int, filesystem: str, pattern: IoPattern, _kernel: str) -> Figure:
        return factor if night >= start and (filesystem, pattern) == ("btrfs", IoPattern.RANDWRITE) else 1.0

    return speed


def stable(night: int) -> tuple[str, ...]:
    """A new point release every third night."""
    return (f"6.1.{100 + night // 3}",)


def debian(label: str, release: str) -> KernelFacts:
    """One of Debian's kernels."""
    package = f"linux-image-{release}-armmp {release}-1"
    return replace(KERNEL, label=label, asked=label, release=f"{release}-armmp", package=package)


def same(series: SeriesKey) -> SeriesKey:
    return series


@dataclass(frozen=True)
class Nights:
    """One run a night, `boots` boots of each of the night's kernels: labels, which `release` gives a release.

    `facts` are of a kernel by label and release; `series` is what a measurement's series becomes.
    """

    speed: Speed = steady
    kernels: Callable[[int], Sequence[str]] = stable
    release: Callable[[int, str], str] = lambda _, label: label
    board: str = "virtual"
    filesystems: Sequence[str] = ("ext4", "btrfs")
    patterns: Sequence[IoPattern] = PATTERNS
    boots: int = 3
    noise: float = 0.01
    seed: int = 1
    simulated: bool = True
    prefix: str = "n"
    versions: Callable[[int], Mapping[str, str]] = lambda _: {}
    facts: Callable[[str, str], KernelFacts] = debian
    series: Callable[[SeriesKey], SeriesKey] = same

    def write(self, results: Path, nights: int) -> list[Path]:
        """Write the runs; gives their folders. Run ids are the prefix and the number of the night: n00012."""
        rng = np.random.default_rng(self.seed)
        return [self._write(results, night, rng) for night in range(nights)]

    def _write(self, results: Path, night: int, rng: np.random.Generator) -> Path:
        labels = self.kernels(night)
        started = BEGIN + timedelta(days=night)
        run_id = f"{self.prefix}{night:05d}"
        folder = results / f"{started:%Y%m%dT%H%M%SZ}-{self.board}-{run_id}"
        cells = list(product(range(self.boots), labels, self.filesystems, self.patterns))
        entries: list[Planned] = []
        for number, (boot, label, fs, pattern) in enumerate(cells, start=1):
            template = _template(fs, pattern, self.board, self.simulated)
            template = replace(template, series=self.series(template.series))
            factor = self.speed(night, fs, pattern, label)
            if factor is not None:
                factor *= float(np.exp(rng.normal(0, self.noise)))
            measurement = replace(
                _with(template, factor),
                number=number,
                kernel=label,
                repetition=boot + 1,
                boot=1 + boot * len(labels) + labels.index(label),
                started_utc=_iso(started + timedelta(minutes=number)),
            )
            into = folder / "measurements" / f"{number:02d}-{fs}-{pattern.value}"
            into.mkdir(parents=True)
            (into / "measurement.json").write_bytes(json_text(MEASUREMENT.adapter, measurement, indent=2))
            entries.append(Planned(number, boot + 1, label, fs, template.workload, "quick", Provision.SCRATCH))
        run = self._run(night, run_id, started, tuple(entries))
        (folder / "run.json").write_bytes(json_text(RUN.adapter, run, indent=2))
        return folder

    def _run(self, night: int, run_id: str, started: datetime, entries: tuple[Planned, ...]) -> Run:
        releases = {label: self.release(night, label) for label in self.kernels(night)}
        return Run(
            run_id=run_id,
            started_utc=_iso(started),
            status=RunStatus.COMPLETE,
            simulated=self.simulated,
            plan=Plan("quick", tuple(self.filesystems), tuple(releases), self.boots, night, {}, entries),
            kernels=tuple(self.facts(label, release) for label, release in releases.items()),
            boards={
                label: replace(BOARD, name=self.board, kernel_release=f"{release}-armmp")
                for label, release in releases.items()
            },
            versions={"fsjoule": "0.1.0", "branch": "main", "commit": f"{night:012x}{0:028x}", **self.versions(night)},
            finished_utc=_iso(started + timedelta(hours=1)),
        )


@cache
def _template(filesystem: str, pattern: IoPattern, board: str, simulated: bool) -> Measurement:
    planned = Planned(1, 1, "6.1", filesystem, FioWorkload(pattern, 16 * KIB, 4 * MIB), "quick", Provision.SCRATCH)
    measurement, _ = make_measurement(planned, simulated=simulated)
    return replace(measurement, series=replace(measurement.series, board=board))


def _with(template: Measurement, factor: Figure) -> Measurement:
    """So much faster, and with the less energy for it."""
    mib_per_s, energy = template.throughput_mib_per_s, template.energy_mj_per_mib
    assert mib_per_s is not None
    assert energy is not None
    return replace(
        template,
        throughput_mib_per_s=None if factor is None else mib_per_s * factor,
        energy_mj_per_mib=Value(energy.value / factor**0.7, energy.uncertainty) if factor else None,
    )


def _iso(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
