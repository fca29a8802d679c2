"""What a build starts ends with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fsjoule.errors import HostError
from fsjoule.host.process import run_watched

# A program that starts another one, as make and mmdebstrap do; SIGTERM ends the first only.
PROGRAM = "sleep 300 & echo $! >second; echo $$ >first; wait"
BUILD = """
import sys
from pathlib import Path
from fsjoule.host.process import run_watched
run_watched(["sh", "-c", sys.argv[1]], log=Path("log"), timeout_s=300, how_far=str, cwd=Path.cwd())
"""
LIMIT_S = 60.0


def started(folder: Path) -> list[int]:
    """The ids of both processes, once they run."""
    files = [folder / "first", folder / "second"]
    end_s = time.monotonic() + LIMIT_S
    while not all(file.exists() and file.read_text().strip() for file in files):
        assert time.monotonic() < end_s
        time.sleep(0.05)
    return [int(file.read_text()) for file in files]


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def all_ended(pids: list[int]) -> bool:
    end_s = time.monotonic() + LIMIT_S
    while any(map(lives, pids)):
        if time.monotonic() > end_s:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_a_build_that_is_killed_leaves_no_process(number: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", BUILD, PROGRAM], cwd=tmp_path) as build:
        try:
            pids = started(tmp_path)
            build.send_signal(number)
            build.wait(LIMIT_S)
        finally:
            build.kill()
    assert all_ended(pids)


# Killed as soon as the program runs, before anything else was done.
KILLED_AT_ONCE = """
import os, signal, time
from fsjoule.host import process
real = process.start
def start(argv, **options):
    child = real(argv, **options)
    while "log" in options and not (Path("first").exists() and Path("second").exists()):
        time.sleep(0.01)
    if "log" in options:
        os.kill(os.getpid(), signal.SIGKILL)
    return child
process.start = start
"""


def test_a_build_that_is_killed_as_soon_as_it_runs_leaves_no_process(tmp_path: Path) -> None:
    head, sep, run = BUILD.partition("run_watched(")
    program = head + KILLED_AT_ONCE + sep + run
    subprocess.run([sys.executable, "-c", program, PROGRAM], cwd=tmp_path, timeout=LIMIT_S, check=False)
    assert all_ended(started(tmp_path))


def test_a_build_that_takes_too_long_leaves_no_process(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="took longer than 2 s"):
        run_watched(["sh", "-c", PROGRAM], log=tmp_path / "log", timeout_s=2.0, how_far=str, cwd=tmp_path)
    assert all_ended(started(tmp_path))


def children() -> set[int]:
    """This process's living children; empty on a kernel that does not list them."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return {pid for pid in map(int, listed.read_text().split()) if lives(pid)} if listed.exists() else set()


def test_a_build_that_ends_leaves_no_process_and_no_open_file(tmp_path: Path) -> None:
    files, processes = len(list(Path("/proc/self/fd").iterdir())), children()  # a database of other tests may run
    run_watched(["true"], log=tmp_path / "log", timeout_s=LIMIT_S, how_far=str)
    assert len(list(Path("/proc/self/fd").iterdir())) <= files
    assert children() <= processes
