"""Runs as the index's import reads them, made in memory: for more measurements than there could be folders of."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from synthetic_runs import SyntheticLab

from fsjoule.model.kernel import Kernel
from fsjoule.store.index.run_rows import ReadMeasurement, ReadRun, read_run
from fsjoule.store.run_folders import FolderFault

_BEGIN: Final = datetime(2024, 1, 1, tzinfo=UTC)
_SPEED: Final = "throughput_mib_per_s"
_ENERGY: Final = "energy_mj_per_mib"
_SECONDS: Final = "duration_s"


class SyntheticRows:
    """The runs of a `SyntheticLab`: one a minute, the boards take turns. A number makes the same run everywhere.

    Each board's first run is written and read; the others are copies of its rows with other ids, times, kernels,
    branches, digests, and other figures of speed and energy.
    """

    def __init__(self, boards: int, seed: int = 1) -> None:
        self._seed = seed
        self.boards: Final = boards
        lab = SyntheticLab(boards, seed)
        self.measurements_per_run = lab.measurements_per_run
        with tempfile.TemporaryDirectory() as folder:
            self._templates = [_read(path) for path in lab.write(Path(folder), 0, boards)]

    def run(self, number: int) -> ReadRun:
        chance = random.Random(self._seed << 32 | number)  # noqa: S311 - rows for a benchmark
        template = self._templates[number % len(self._templates)]
        started = _BEGIN + timedelta(minutes=number)
        patch = number // 1000 * 7 + number % 7  # new kernels come, some at once
        kernel = Kernel(f"6.12.{patch % 60}-armmp", f"6.12.{patch % 60}-{patch // 60 + 1}")
        branch = "main" if number % 10 else f"topic-{number % 50}"
        run_id = f"{number:010x}"
        started_utc = _iso(started)
        return replace(
            template,
            path=Path("/runs") / f"{started:%Y%m%dT%H%M%SZ}-{run_id}",
            run_id=run_id,
            fixed_digest=chance.randbytes(16),
            final_digest=chance.randbytes(16),
            kernels={"6.12": kernel},
            columns={
                **template.columns,
                "run_id": run_id,
                "path": f"/runs/{run_id}",
                "started_utc": started_utc,
                "branch": branch,
                "commit_id": f"{number:040x}",
            },
            measurements=tuple(
                _another(each, kernel, chance, _iso(started + timedelta(seconds=each.number)))
                for each in template.measurements
            ),
        )


def _another(one: ReadMeasurement, kernel: Kernel, chance: random.Random, started_utc: str) -> ReadMeasurement:
    digest = chance.randbytes(16)
    noise = chance.gauss(1.0, 0.02)
    columns: dict[str, Any] = {**one.columns, "started_utc": started_utc, "digest": digest}
    columns[_SECONDS] = 1.8 / noise
    if columns[_SPEED] is not None:
        columns[_SPEED] = 17.0 * noise
        columns[_ENERGY] = 80.0 / noise
    return ReadMeasurement(one.series, kernel, one.number, digest, columns)


def _read(folder: Path) -> ReadRun:
    read = read_run(folder)
    assert not isinstance(read, FolderFault), read
    assert not read.damaged
    return read


def _iso(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
