"""Figures that others have published, to be shown beside measured ones."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from fsjoule.metrics import Metric
from fsjoule.model import KIB, FioWorkload, IoPattern
from fsjoule.suites.energy_emmc import SOURCE

# What a reader must know before comparing with a source. That they are misprints is our reading.
REMARKS: Final[dict[str, tuple[str, ...]]] = {
    SOURCE: (
        "One run each, 500 MiB, on a Colibri i.MX6ULL with eMMC, kernel 6.1.42; energy is gross.",
        "It does not state ioengine, queue depth, direct, fsync and idle power.",
        "Its standard deviations of 0.6 W (ext4 read, 16 KiB) and 0.9 W (btrfs read, 16 KiB) look like misprints.",
    ),
}

# A workload of one buffered job as a series names it: its slug, and perhaps a size.
_SLUG: Final = re.compile(r"([a-z]+)-(\d+)k(?: .*)?")


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """One row of a published table. `power_sd_w` is over the samples of one run."""

    filesystem: str
    operation: IoPattern
    block_size_bytes: int
    throughput_mib_per_s: float
    power_mean_w: float
    power_sd_w: float
    energy_mj_per_mib: float
    source: str


@cache
def energy_emmc_2025() -> tuple[PublishedFigure, ...]:
    """Tables I-VI of Jacomelli and Bruschi, 2025: ext4 and btrfs, four patterns, 16, 32 and 64 KiB."""
    text = files(__name__).joinpath("energy_emmc_2025.csv").read_text(encoding="utf-8")
    return tuple(
        PublishedFigure(
            filesystem=row["filesystem"],
            operation=IoPattern(row["operation"]),
            block_size_bytes=int(row["block_size_kib"]) * KIB,
            throughput_mib_per_s=float(row["throughput_mib_per_s"]),
            power_mean_w=float(row["power_mean_w"]),
            power_sd_w=float(row["power_sd_w"]),
            energy_mj_per_mib=float(row["energy_mj_per_mib"]),
            source=SOURCE,
        )
        for row in csv.DictReader(text.splitlines())
    )


def figure_for(filesystem: str, workload: FioWorkload) -> PublishedFigure | None:
    """The published figure of the same filesystem, operation and block size with one job, if there is one."""
    if workload.jobs != 1:
        return None
    key = (filesystem, workload.operation, workload.block_size_bytes)
    for figure in energy_emmc_2025():
        if (figure.filesystem, figure.operation, figure.block_size_bytes) == key:
            return figure
    return None


def figure_of_slug(filesystem: str, workload: str, metric: Metric) -> float | None:
    """The published figure for a workload by the name that a series has it under, in the metric's unit."""
    named = _SLUG.fullmatch(workload)
    if named is None or named[1] not in {pattern.value for pattern in IoPattern}:
        return None
    found = figure_for(filesystem, FioWorkload(IoPattern(named[1]), int(named[2]) * KIB, 0))
    if found is None:
        return None
    figures = {
        Metric.THROUGHPUT: found.throughput_mib_per_s,
        Metric.ENERGY: found.energy_mj_per_mib,
        Metric.POWER: found.power_mean_w,
    }
    return figures.get(metric)
