"""`fsjoule bench` is pytest's main job under another name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import PROGRAM

from fsjoule.runs.options import FLAGS, OPTIONS

PROJECT = Path(__file__).parents[2]
VIRTUAL = PROJECT / "env" / "virtual.yaml"


def run(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def test_help_names_it_first_and_it_names_every_option(tmp_path: Path) -> None:
    help_of_all = run(PROGRAM, "--help", folder=tmp_path).stdout
    assert help_of_all.split("Commands:")[1].split()[0] == "bench"
    told = run(PROGRAM, "bench", "--help", folder=tmp_path).stdout
    lines = told.splitlines()
    for name in (*OPTIONS, *FLAGS, "--lg-env", "-k"):
        assert any(line.startswith(f"  {name}") for line in lines), name
    assert max(map(len, lines)) <= 80


def test_it_selects_what_pytest_selects_from_any_folder(tmp_path: Path) -> None:
    words = ("--lg-env", VIRTUAL, "--fs", "ext4", "--seed", "1", "--collect-only", "-q", "-k", "read and r2")
    ours = run(PROGRAM, "bench", *words, folder=tmp_path)
    pytests = run(sys.executable, "-m", "pytest", PROJECT / "tests" / "bench", *words, folder=tmp_path)
    assert (ours.returncode, pytests.returncode) == (0, 0), ours.stderr
    listed = [line for line in ours.stdout.splitlines() if "::" in line]
    assert listed
    assert listed == [line for line in pytests.stdout.splitlines() if "::" in line]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--lg-env", VIRTUAL, "--fs", "ext5"), "unknown filesystem 'ext5'"),
        (("--lg-env", VIRTUAL, "--repeat", "two"), "argument --repeat: 'two' is no number: for example 3, or auto"),
        (("-k", "read"), "measuring needs a board: add --lg-env"),
    ],
)
def test_wrong_input_ends_with_2(tmp_path: Path, words: tuple[object, ...], complaint: str) -> None:
    done = run(PROGRAM, "bench", *words, folder=tmp_path)
    assert (done.returncode, complaint in done.stdout + done.stderr) == (2, True), done.stdout + done.stderr
