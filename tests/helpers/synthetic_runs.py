"""Run folders by the thousand, with made-up figures, as fast as files can be written.

They are what `RunFolder` writes, without traces and attachments, which no import reads, and without flushing every file
to the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
from results_factory import BOARD, KERNEL, make_measurement

from fsjoule.model import (
    KIB,
    MIB,
    PURE_PATTERNS,
    FioWorkload,
    Measurement,
    Plan,
    Planned,
    Provision,
    Run,
    RunStatus,
    TimedKind,
    TimedWorkload,
    Workload,
)
from fsjoule.store.schemas import MEASUREMENT, RUN, encode

REPETITIONS: Final = 3
_SIZE_BYTES: Final = 4 * MIB
_KERNELS: Final = 60
_BEGIN: Final = datetime(2024, 1, 1, tzinfo=UTC)
# Numbers that stand nowhere else in a measurement; each place of them gets another figure.
_NUMBER, _REPETITION, _SPEED, _ENERGY, _SECONDS = 987_001, 987_002, 987_003.5, 987_004.5, 987_005.5
_STARTED: Final = "2000-01-01T00:00:00Z"

Cell = tuple[str, Workload]


class SyntheticLab:
    """Boards that take turns, each with runs of all cells in three repetitions."""

    def __init__(self, boards: int, seed: int) -> None:
        self._boards = boards
        self._rng = np.random.default_rng(seed)
        workloads: list[Workload] = [FioWorkload(pattern, 16 * KIB, _SIZE_BYTES) for pattern in PURE_PATTERNS]
        workloads += [TimedWorkload(kind) for kind in (TimedKind.MKFS, TimedKind.MOUNT, TimedKind.UMOUNT)]
        self._cells: list[Cell] = [(fs, workload) for fs in ("ext4", "btrfs") for workload in workloads]
        self._cells.append(("ext4", TimedWorkload(TimedKind.BOOT)))
        made = [_template(cell) for cell in self._cells]
        self._texts = {(b, i): _text(b, measurement) for b in range(boards) for i, measurement in enumerate(made)}

    @property
    def measurements_per_run(self) -> int:
        return len(self._cells) * REPETITIONS

    @property
    def series(self) -> int:
        return len(self._cells) * self._boards

    def write(self, into: Path, first: int, runs: int) -> Iterator[Path]:
        """Write the runs number `first` and following, all of them different; gives each folder when it is written."""
        for number in range(first, first + runs):
            yield self._write_run(into, number)

    def _write_run(self, into: Path, number: int) -> Path:
        board = number % self._boards
        started = _BEGIN + timedelta(minutes=number)
        run = self._run(number, board, _iso(started))
        folder = into / f"{started:%Y%m%dT%H%M%SZ}-{_board(board)}-{run.run_id}"
        parent = folder / "measurements"
        parent.mkdir(parents=True)
        for entry, cell in enumerate(map(int, self._rng.permutation(self.measurements_per_run)), start=1):
            index, repetition = cell % len(self._cells), cell // len(self._cells) + 1
            filesystem, workload = self._cells[index]
            into_folder = parent / f"{entry:02d}-{filesystem}-{workload.slug}"
            into_folder.mkdir()
            text = self._measurement(board, index, entry, repetition, _iso(started + timedelta(seconds=entry)))
            (into_folder / "measurement.json").write_text(text)
        (folder / "run.json").write_bytes(encode(RUN, run, "the run"))
        return folder

    def _measurement(self, board: int, cell: int, number: int, repetition: int, started_utc: str) -> str:
        noise = self._rng.normal(1.0, 0.02)
        return (
            self._texts[board, cell]
            .replace(str(_NUMBER), str(number))
            .replace(str(_REPETITION), str(repetition))
            .replace(str(_SPEED), repr(17.0 * noise))
            .replace(str(_ENERGY), repr(80.0 / noise))
            .replace(str(_SECONDS), repr(1.8 / noise))
            .replace(_STARTED, started_utc)
        )

    def _run(self, number: int, board: int, started_utc: str) -> Run:
        kernel = number * _KERNELS // 1_000_000 + number % 7
        entries = tuple(
            Planned(i, 1, "6.12", fs, workload, "quick", Provision.SCRATCH)
            for i, (fs, workload) in enumerate(self._cells, start=1)
        )
        return Run(
            run_id=f"{number:010x}",
            started_utc=started_utc,
            status=RunStatus.COMPLETE,
            simulated=True,
            plan=Plan("quick", ("ext4", "btrfs"), ("6.12",), REPETITIONS, number, {}, entries),
            kernels=(replace(KERNEL, label="6.12", package=f"linux-image-6.12.{kernel}-armmp 6.12.{kernel}-1"),),
            boards={"6.12": replace(BOARD, name=_board(board), kernel_release=f"6.12.{kernel}-armmp")},
            versions={"fsjoule": "0.1.0", "branch": "main" if number % 10 else f"topic-{number % 50}"},
            finished_utc=started_utc,
        )


def _template(cell: Cell) -> Measurement:
    """A measurement with marks where figures go."""
    filesystem, workload = cell
    measurement, _ = make_measurement(
        Planned(_NUMBER, _REPETITION, "6.12", filesystem, workload, "quick", Provision.SCRATCH)
    )
    energy = measurement.energy_mj_per_mib
    return replace(
        measurement,
        boot=_REPETITION,
        started_utc=_STARTED,
        duration_s=_SECONDS,
        throughput_mib_per_s=_SPEED if energy else None,
        energy_mj_per_mib=replace(energy, value=_ENERGY) if energy else None,
    )


def _text(board: int, measurement: Measurement) -> str:
    """A measurement of that board as it stands in its file."""
    named = replace(measurement, series=replace(measurement.series, board=_board(board)))
    return encode(MEASUREMENT, named, "the measurement").decode()


def _board(board: int) -> str:
    return f"board{board:02d}"


def _iso(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
