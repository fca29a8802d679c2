"""The script for tests on many files, run by this computer's shell on its own filesystem."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from busybox import path_with

from fsjoule.bench.onboard import files as onboard_files
from fsjoule.bench.onboard import marks as onboard
from fsjoule.model import KIB, MIB

_APPLETS = ("cp", "dd", "mkdir", "rm", "sha512sum")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The script, with a small block of a file's size, and a `stat` that takes what is there for a filesystem."""
    (tmp_path / "block").write_bytes(os.urandom(4 * KIB))
    path = tmp_path / "files"
    path.write_text(onboard_files.TEXT.replace(onboard.DIRECTORY, str(tmp_path)))
    path.chmod(0o755)
    tools = tmp_path / "tools"
    path_with(tools, *_APPLETS)
    # A filesystem of 1000 blocks of 4 KiB.
    (tools / "stat").write_text("#!/bin/sh\nused=$(find . -type f | wc -l)\necho 1000 $((1000 - used))\n")
    (tools / "stat").chmod(0o755)
    (tmp_path / "mounted").mkdir()
    return path


def run(script: Path, *arguments: str) -> Path:
    directory = script.parent / "mounted"
    path = f"{script.parent / 'tools'}:{os.environ['PATH']}"
    subprocess.run(
        [script, arguments[0], directory, *arguments[1:]], check=True, timeout=60, env={**os.environ, "PATH": path}
    )
    return directory


def test_files_of_a_halving_series_are_written_and_hashed(script: Path) -> None:
    sizes = onboard_files.sizes_kib(2 * MIB)
    assert sizes[:10] == (512, 256, 128, 64, 32, 16, 8, 4, 2, 1) == sizes[10:]
    directory = run(script, *onboard_files.write("", 2 * MIB)[1:2], *map(str, sizes))
    assert [(directory / f"f{n}").stat().st_size for n in range(1, 21)] == [size * KIB for size in sizes]
    run(script, "hash")


def test_a_filesystem_is_filled_to_its_share_and_emptied(script: Path) -> None:
    directory = run(script, *onboard_files.fill("", 0.6)[1:2], "60")
    found = sum(path.is_file() for path in directory.rglob("*"))
    assert 600 <= found < 600 + 16
    run(script, "remove")
    assert not list(directory.iterdir())


def test_fragmenting_removes_the_oldest_directories(script: Path) -> None:
    directory = run(script, "fragment", "75")
    names = sorted(int(path.name[1:]) for path in directory.iterdir())
    assert names[0] > 1
    assert 750 <= sum(path.is_file() for path in directory.rglob("*")) < 750 + 32
    # Of every three made, one is gone again.
    assert len(names) == names[-1] - names[-1] // 2


def test_a_published_gigabyte_is_256_mib_down_to_512_kib_twice() -> None:
    sizes = onboard_files.sizes_kib(1024 * MIB)
    assert (max(sizes), min(sizes), len(sizes)) == (256 * KIB, 512, 20)
    assert sum(sizes) == 2 * (512 * KIB - 512)
