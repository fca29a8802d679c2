"""The benchmarks that need no lab run to their end, on little: what they call is still there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
LIMIT_S = 600.0
LITTLE = {
    "coordinator_size": "--places 3 --watching 1 --times 1",
    "damaged_frames": "--frames 1000 --processes 1",
    "decode_memory": "--seconds 20",
    "decode_speed": "--seconds 20 --repeat 1",
    "index_lab": "--measurements 45000 --no-kill",
    "index_speed": "--measurements 1500 --boards 2 --row-by-row 15",
    "object_store": "--runs 4 --traces 1",
    "serve_load": "--measurements 1000 --boards 2 --readers 3 --seconds 3",
    "start_up": "--repeat 1 --runs 4",
    "trend_page": "--series 10 --points 20 --repeat 1",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LITTLE)
def test_a_benchmark_prints_what_it_measured(name: str, tmp_path: Path) -> None:
    argv = [sys.executable, str(FOLDER / f"{name}.py"), *LITTLE[name].split(), "--json"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
