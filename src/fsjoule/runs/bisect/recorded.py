"""The runs of an index that measured a bisection's kernels: looked up when a kernel has been built."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from fsjoule.errors import ResultError
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Where
from fsjoule.store.bisection import Recorded, RecordedBoot
from fsjoule.store.index.database import open_index
from fsjoule.store.index.queries import points, run_folders
from fsjoule.store.reader import load_run, load_run_file
from fsjoule.verdicts.bisection.recorded import boots_of_kernel, series_of

# Looking through more run folders takes longer than the boots that it saves.
_MOST_RUNS: Final = 500


@dataclass
class EarlierRuns:
    """The runs of an index with a suite and these filesystems, of whatever board: of another one they are named."""

    index: str
    suite: str
    filesystems: tuple[str, ...]

    def of(self, image: str, like: Path, figures: Sequence[str], without: Collection[str]) -> Recorded:
        """The index's runs of the kernel with that image.

        `like` is a run of this bisection, whose series the others must have; `without` are the ids of its runs.
        """
        series = series_of(load_run(like).measurements, figures)
        recorded: list[RecordedBoot] = []
        mismatches: list[str] = []
        for run_id, folder, kernels in self._runs:
            labels = tuple(label for label, digest in kernels if digest == image)
            if not labels or run_id in without:
                continue
            try:
                measured = [each for each in load_run(folder).measurements if each.kernel in labels]
            except ResultError as error:
                mismatches.append(f"run {run_id}: {error.what}")
                continue
            boots, why = boots_of_kernel(run_id, measured, series, figures)
            recorded += boots
            if why:
                mismatches.append(f"run {run_id}: {why}")
        return Recorded(image, tuple(recorded), tuple(mismatches))

    @cached_property
    def _runs(self) -> list[tuple[str, Path, tuple[tuple[str, str], ...]]]:
        """The newest runs whose folders are here: id, folder, and the label and digest of each kernel."""
        where = Where(suites=(self.suite,), filesystems=self.filesystems)
        with open_index(self.index) as opened:
            by_series = points(opened, where, metrics=(Metric.THROUGHPUT,))
            started = {point.run_id: point.started_utc for group in by_series.values() for point in group}
            newest = sorted(started, key=started.__getitem__, reverse=True)[:_MOST_RUNS]
            folders = run_folders(opened, newest)
        runs: list[tuple[str, Path, tuple[tuple[str, str], ...]]] = []
        for run_id in newest:
            try:
                run = load_run_file(folders[run_id])
            except ResultError:  # on another machine, or removed
                continue
            kernels = tuple((facts.label, facts.digest) for facts in run.kernels if facts.digest)
            runs.append((run_id, folders[run_id], kernels))
        return runs
