"""`fsjoule bench` is the main job: a command of its own, though pytest runs it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from command_line import PROGRAM, CommandLine

from fsjoule.runs.options import BenchOptions, rows


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("LG_")}
    # What a user's shell and folder tell pytest is not for a bench.
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    (folder / "conftest.py").write_text("1 / 0\n")
    environment["PYTEST_ADDOPTS"] = "--no-such-option"
    return subprocess.run(
        [PROGRAM, "bench", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_help_begins_with_an_example_and_has_every_option(fsjoule: CommandLine) -> None:
    help_of_all = fsjoule("--help").out
    assert help_of_all.split("Measure:")[1].split()[0] == "bench"
    told = fsjoule("bench", "-h").out
    assert "Example: fsjoule bench --fs ext4" in told.partition("Measure filesystems")[0]
    lines = told.splitlines()
    for name in (*(row.name for _, row in rows(BenchOptions)), "--lg-env", "-k"):
        assert any(line.startswith(f"  {name}") for line in lines), name
    assert max(map(len, lines)) <= 80
    assert "pytest" not in told


def test_from_any_folder_it_lists_what_it_would_measure_and_nothing_else(tmp_path: Path) -> None:
    done = run("--fs", "ext4", "--repeat", "2", "--seed", "1", "--collect-only", "-k", "read and r2", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    listed = done.stdout.splitlines()
    assert sorted(re.sub(r"^\d+-", "", line) for line in listed) == ["r2-ext4-randread-16k", "r2-ext4-read-16k"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("ext4", "--fs ext4"),
        ("-x btrfs,ext4", "--fs btrfs,ext4"),
        ("--repeat 1 my.yaml", "--lg-env my.yaml"),
        ("-k read results/x", "fsjoule bench --help lists the options"),
    ],
)
def test_a_word_that_is_no_option_gets_the_option(fsjoule: CommandLine, words: str, hint: str) -> None:
    done = fsjoule("bench", *words.split())
    word = words.rsplit(maxsplit=1)[-1]
    assert (done.code, done.err) == (2, f"error: fsjoule bench: {word!r} is not an option\n  hint: {hint}\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--fs ext4,", "ERROR: --fs 'ext4,' has an empty name\n  hint: --fs ext4\n"),
        ("--size-factor x", "ERROR: argument --size-factor: invalid float value: 'x'\n  hint: fsjoule bench --help"),
    ],
)
def test_wrong_input_is_a_line_and_a_hint(tmp_path: Path, words: str, complaint: str) -> None:
    done = run(*words.split(), folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(complaint)
    assert len(done.stderr.splitlines()) == 2
