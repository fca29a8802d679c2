"""Scripts of jobs: what the gate does before anything is measured, and cards between jobs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fsjoule.errors import ConfigError, HostError

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, "nothing yet")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def commit(folder: Path, what: str) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", what)
    return git(folder, "rev-parse", "HEAD").strip()


def gate(repository: Path, base: str, **more: str) -> subprocess.CompletedProcess[str]:
    variables = {
        "CI_PROJECT_DIR": str(repository),
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": base,
        "CI_COMMIT_SHA": git(repository, "rev-parse", "HEAD").strip(),
        "GATE_ENVIRONMENT": "env/deterministic.yaml",
        "GATE_POLICY": "env/gate.toml",
        "FS": "ext4",
        "SUITE": "quick",
    }
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("CI_", "FSJOULE_INDEX"))}
    argv = [PROJECT / ".ci" / "gate"]
    return subprocess.run(argv, env=ours | variables | more, capture_output=True, text=True, timeout=300, check=False)


def test_a_target_branch_without_a_kernel_is_no_baseline(repository: Path) -> None:
    base = git(repository, "rev-parse", "HEAD").strip()
    (repository / ".ci").mkdir()
    (repository / ".ci" / "kernel").write_text("6.1\n")
    commit(repository, "a kernel")
    done = gate(repository, base, PLACE="evk-1", CI_JOB_URL="https://gitlab.example/job/1")
    assert done.returncode == 0, done.stderr
    assert "fsjoule gate: no baseline" in (note := (repository / "note.md").read_text())
    assert base[:12] in done.stdout
    # Where the one job that writes notes finds each board's.
    board = repository / "fsjoule-notes" / "evk-1"
    assert {path.name: path.read_text().strip() for path in board.iterdir()} == {
        "note.md": note.strip(),
        "job-url": "https://gitlab.example/job/1",
    }


def test_a_cache_that_jobs_share_is_neither_packed_nor_unpacked_nor_removed(tmp_path: Path) -> None:
    project, shared = tmp_path / "project", tmp_path / "shared"
    (project / ".cache").mkdir(parents=True)
    shared.mkdir()
    (shared / "card.img").write_text("a card")
    variables = {"CI_PROJECT_DIR": str(project), "FSJOULE_CACHE_DIR": str(shared)}
    packed = project / ".cache" / "fsjoule.tar.zst"
    for word in ("pack", "unpack"):
        argv = [PROJECT / ".ci" / "cards", word]
        subprocess.run(argv, env=os.environ | variables, capture_output=True, text=True, timeout=60, check=True)
        assert packed.exists() == (word == "unpack")
        packed.write_text("damaged")
    assert (shared / "card.img").read_text() == "a card"


def test_a_kernel_that_is_none_leaves_no_old_note(repository: Path) -> None:
    (repository / ".ci").mkdir()
    (repository / ".ci" / "kernel").write_text("6.1\n")
    (repository / "note.md").write_text("of another pipeline")
    base = commit(repository, "a kernel")
    (repository / ".ci" / "kernel").write_text("2.6\n")
    commit(repository, "another")
    done = gate(repository, base)
    assert done.returncode == 2
    assert "unknown kernel '2.6'" in done.stderr
    assert "is not a folder" not in done.stderr, "nothing was measured, so there is no run to look for"
    assert not (repository / "note.md").exists()


def test_a_repository_without_a_kernel_file_is_taken_for_the_kernels_own(repository: Path) -> None:
    done = gate(repository, git(repository, "rev-parse", "HEAD").strip())
    assert done.returncode == 2
    assert "is not a kernel's source" in done.stderr
    assert not (repository / "note.md").exists()


CARD_BYTES = 1 << 30


def cards(project: Path, word: str) -> subprocess.CompletedProcess[str]:
    variables = {"CI_PROJECT_DIR": str(project), "FSJOULE_CACHE_DIR": str(project / "cards")}
    argv = [PROJECT / ".ci" / "cards", word]
    return subprocess.run(argv, env=os.environ | variables, capture_output=True, text=True, timeout=300, check=True)


@pytest.fixture
def card(tmp_path: Path) -> Path:
    """A card of a gigabyte with 4 KiB of data, and the folder that a job's cache has."""
    (tmp_path / ".cache").mkdir()
    path = tmp_path / "cards" / "images" / "card.img"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(CARD_BYTES)
        file.seek(CARD_BYTES // 2)
        file.write(os.urandom(4096))
    return path


def test_cards_go_to_the_next_job_without_their_holes(tmp_path: Path, card: Path) -> None:
    before = card.read_bytes()
    cards(tmp_path, "pack")
    packed = tmp_path / ".cache" / "fsjoule.tar.zst"
    assert packed.stat().st_size < 64 * 1024
    made = packed.stat().st_mtime_ns
    card.unlink()
    cards(tmp_path, "unpack")
    assert card.read_bytes() == before
    assert card.stat().st_blocks * 512 < 1 << 20
    cards(tmp_path, "pack")
    assert packed.stat().st_mtime_ns == made, "what did not change is not packed again"
    card.with_name("another").touch()
    cards(tmp_path, "pack")
    assert packed.stat().st_mtime_ns > made


def test_damaged_cards_are_built_again(tmp_path: Path, card: Path) -> None:
    cards(tmp_path, "pack")
    packed = tmp_path / ".cache" / "fsjoule.tar.zst"
    packed.write_bytes(packed.read_bytes()[:100])
    assert "the packed cards are damaged: they are built again" in cards(tmp_path, "unpack").stderr
    assert not packed.exists()
    assert not card.exists()


def set_up(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A step of the set-up in a clone of its own."""
    (folder / ".ci").mkdir()
    for name in ("set-up", "set_up.py"):
        shutil.copy(PROJECT / ".ci" / name, folder / ".ci")
    (folder / "src").symlink_to(PROJECT / "src")
    return subprocess.run(
        [folder / ".ci" / "set-up", *words],
        env=os.environ | {"PYTHON": sys.executable} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def uv_that(script: str, folder: Path) -> None:
    program = folder / "build" / "uv" / "bin" / "uv"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_a_step_of_the_set_up_is_one_line(tmp_path: Path) -> None:
    uv_that('echo "Would install 3 packages"; echo "a line of output"', tmp_path)
    done = set_up(tmp_path, "python", "--no-dev")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"set-up: 3 packages from PyPI \.\.\. \d+ s\n", done.stdout)
    assert "a line of output" in (tmp_path / "build" / "setup.log").read_text()


def test_a_step_that_fails_shows_its_last_lines_and_first_cause(tmp_path: Path) -> None:
    uv_that("seq 100; echo error: no network >&2; echo error: nothing to install >&2; exit 7", tmp_path)
    done = set_up(tmp_path, "python")
    assert done.returncode == HostError.exit_code, done.stdout
    first, *lines = done.stdout.splitlines()
    log = tmp_path / "build" / "setup.log"
    assert re.fullmatch(rf"set-up: packages from PyPI \.\.\. failed after \d+ s\. The last lines of {log}:", first)
    assert lines[-3:] == ["  | 100", "  | error: no network", "  | error: nothing to install"]
    assert len(lines) == 12
    assert re.search(r"exit code 7 of \S+/uv: no network\n", done.stderr)


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "build").touch()
    done = set_up(tmp_path, "python")
    assert done.returncode == ConfigError.exit_code
    assert done.stderr.startswith(f"set-up: {tmp_path}/build/setup.log cannot be written: ")


def test_a_set_up_on_an_old_python_says_which_it_needs(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = set_up(tmp_path, "packages", "bench", PYTHON=str(old))
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not Python 3.11 or newer" in done.stderr
