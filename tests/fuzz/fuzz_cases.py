"""A mutated run in a folder of its own, beside a whole one, and what is to stay unread outside of it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz_mutations import mutate


@dataclass(frozen=True)
class Case:
    """A mutated run in a folder of its own. `run` is beside a whole one in `results`; `outside` is to stay unread."""

    folder: Path
    run: Path
    token: str

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def out(self) -> Path:
        return self.folder / "out"


def make_case(work: Path, sources: Sequence[Path], seed: int, number: int) -> tuple[Case, list[str], random.Random]:
    """The mutated run of that number: the same for the same seed and sources."""
    rng = random.Random(f"{seed}-{number}")
    folder = work / f"case-{number}"
    case = Case(folder, folder / "results" / "20260309T100000Z-virtual-mutant", f"canary{rng.getrandbits(64):016x}")
    for name in ("results", "outside", "out", "cwd", "tmp"):
        (folder / name).mkdir(parents=True)
    source = rng.choice(sources)
    whole = next(source.iterdir())
    shutil.copytree(whole, case.run)
    outside = folder / "outside"
    (outside / "secret").write_text(f"{case.token}\n" * 3)
    shutil.copytree(whole, outside / "run")
    for file in outside.rglob("*.json"):
        file.write_text(file.read_text().replace('"ext4"', json.dumps(case.token)))
    for file in outside.rglob("console.log"):
        file.write_text(f"# {case.token}\n")
    measurement = min((outside / "run" / "measurements").iterdir())
    shutil.copytree(measurement, outside / "measurement")
    (case.run / "confirmations").mkdir()
    (case.run / "confirmations" / "a.json").write_text(json.dumps(_confirmation()))
    done = mutate(rng, case.run, outside)
    shutil.copytree(whole, case.results / "whole")
    run_file = case.results / "whole" / "run.json"
    run_file.write_text(json.dumps({**json.loads(run_file.read_text()), "run_id": "whole"}))
    return case, [source.name, *done], rng


def _confirmation() -> dict[str, Any]:
    side = {"run_id": "a", "started_utc": "2026-03-09T10:00:00Z", "kernel_release": "6.1", "kernel_version": "1"}
    figures = {"nominated_ratio": 0.9, "ratio": 0.9, "pairs": 4, "smallest_effect": 0.02, "alpha": 0.05, "beta": 0.1}
    names = {"made_utc": "2026-03-09T10:00:00Z", "series": "0" * 16, "metric": "throughput", "outcome": "confirmed"}
    return {**names, **figures, "before": side, "after": side, "run_id": "b", "schema": "fsjoule.confirmation/1"}
