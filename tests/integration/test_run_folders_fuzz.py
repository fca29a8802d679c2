"""A few mutated run folders, for each command that reads them; `make test-fuzz` tries as many as one has time for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_SCRIPT = Path(__file__).parents[1] / "fuzz" / "run_folders.py"
_FOLDERS = 27  # three for each group of commands
_SEED = 13


def test_mutated_run_folders_are_read_or_refused() -> None:
    argv = [
        sys.executable,
        str(_SCRIPT),
        "--count",
        str(_FOLDERS),
        "--chains",
        "1",
        "--seed",
        str(_SEED),
        "--jobs",
        "4",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"seed {_SEED}: {_FOLDERS} folders, " in done.stdout
    assert " 0 findings" in done.stdout
