"""Runs as a release wrote them, with the figures that it read from them: tests/releases/VERSION/.

`python tests/helpers/released_runs.py VERSION RUN_FOLDER` adds one. tests/unit/test_releases.py reads them all.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fsjoule.store.archive import ARCHIVE_SUFFIX, digest_table, pack_run
from fsjoule.store.gate import gate_of
from fsjoule.store.reader import load_run

RELEASES = Path(__file__).parents[1] / "releases"
FIGURES = "figures.json"


def figures(folder: Path) -> dict[str, object]:
    """What a reader of a run most needs: its kernels, each figure with its energy, and the gate's verdicts."""
    run = load_run(folder)
    gated = gate_of(run)
    return {
        "damaged": {str(path): why for path, why in run.damaged.items()},
        "kernels": {kernel.label: kernel.release for kernel in run.run.kernels},
        "measurements": [
            {
                "kernel": each.kernel,
                "slug": each.slug,
                "valid": each.valid,
                "throughput_mib_per_s": each.throughput_mib_per_s,
                "duration_s": each.duration_s,
                "gross_mj": None if each.energy is None else each.energy.gross_mj.value,
                "uncertainty_mj": None if each.energy is None else each.energy.gross_mj.uncertainty,
                "samples": None if (trace := run.trace(each.number)) is None else len(trace.ticks),
            }
            for each in run.measurements
        ],
        "gate": None
        if gated is None
        else {
            "verdict": gated.verdict.value,
            "figures": {
                one.name: [one.outcome.value, one.ratio, one.baseline, one.candidate] for one in gated.findings
            },
        },
    }


def add(version: str, folder: Path) -> None:
    """Pack a run into tests/releases, with its figures. Raises ResultError if it cannot be read."""
    into = RELEASES / version
    into.mkdir(parents=True)
    pack_run(folder, digest_table(folder, []), into / f"{folder.name}{ARCHIVE_SUFFIX}")
    (into / FIGURES).write_text(json.dumps(figures(folder), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    add(sys.argv[1], Path(sys.argv[2]))
