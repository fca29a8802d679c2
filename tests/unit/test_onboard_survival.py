"""The scripts that write files and look for them, run by this computer's busybox on its own filesystem."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from busybox import path_with

from fsjoule.bench.onboard import marks as onboard
from fsjoule.bench.onboard import survival as onboard_safety
from fsjoule.bench.onboard.survival import Promised
from fsjoule.model import FileFate, PowerLossWorkload

SEED = 20261121
WORKLOAD = PowerLossWorkload(sync=False)
_APPLETS = ("dd", "sha256sum", "stat", "sync", "tail", "tr", "wc")
_TIMEOUT_S = 60.0


class Board:
    """A directory with the scripts, and busybox's programs before this computer's own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mounted = folder, folder / "mounted"
        self.mounted.mkdir()
        self.environment = {**os.environ, "PATH": path_with(folder / "tools", *_APPLETS)}
        for path, text in onboard_safety.SCRIPTS.items():
            here = self.here(path)
            here.write_bytes(text.replace(onboard.DIRECTORY.encode(), str(folder).encode()))
            here.chmod(0o755)
        self.here(onboard_safety.POOL).write_bytes(os.urandom(onboard_safety.writer_pool_bytes(WORKLOAD)))

    def here(self, path: str) -> Path:
        return self.folder / Path(path).name

    def write(self, workload: PowerLossWorkload, seed: int = SEED, *, files: int = 5) -> str:
        """What the writer has said when it is killed, some time after so many files, or when it ends."""
        script, *arguments = onboard_safety.writer_argv(workload, str(self.mounted), seed)
        said = self.folder / "console"
        with (
            said.open("wb") as console,
            subprocess.Popen(
                [self.here(script), *arguments], stdout=console, env=self.environment, start_new_session=True
            ) as writer,
        ):
            deadline = time.monotonic() + _TIMEOUT_S
            while said.read_text().count("\n") < files and writer.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            with contextlib.suppress(ProcessLookupError):  # with the program that it has just started
                os.killpg(writer.pid, signal.SIGKILL)
        return said.read_text()

    def fates(self, promised: Sequence[Promised]) -> dict[str, FileFate]:
        self.here(onboard_safety.LIST).write_bytes(onboard_safety.file_list(promised))
        done = subprocess.run(
            [self.here(onboard_safety.INSPECTOR), self.mounted],
            check=True,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=self.environment,
        )
        return onboard_safety.fates(done.stdout, promised)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


@pytest.mark.parametrize("sync", [True, False])
def test_files_that_were_acknowledged_are_intact_and_of_the_sizes_asked_for(board: Board, *, sync: bool) -> None:
    workload = PowerLossWorkload(sync)
    promised = onboard_safety.promised(board.write(workload))
    assert len(promised) >= 5
    assert set(board.fates(promised).values()) == {FileFate.INTACT}
    assert all(workload.smallest_bytes <= file.size_bytes <= workload.size_bytes for file in promised)
    assert len({file.sha256 for file in promised}) == len(promised)
    assert [(board.mounted / file.name).stat().st_size for file in promised] == [file.size_bytes for file in promised]


def test_the_same_seed_writes_the_same_files(board: Board) -> None:
    first, again, other = (onboard_safety.promised(board.write(WORKLOAD, seed))[:5] for seed in (SEED, SEED, SEED + 1))
    assert first == again
    assert first != other


def test_what_is_damaged_has_its_fate(board: Board) -> None:
    promised = onboard_safety.promised(board.write(WORKLOAD, files=7))[:7]
    paths = [board.mounted / file.name for file in promised]
    with paths[1].open("r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))
    paths[2].write_bytes(bytes(paths[2].stat().st_size))
    os.truncate(paths[3], promised[3].size_bytes // 4)
    os.truncate(paths[4], 0)
    paths[5].unlink()
    paths[6].unlink()
    paths[6].mkdir()  # cannot be read, as little as a file of which the device gives an error
    fates = list(board.fates(promised).values())
    zeroed, missing = FileFate.ZEROED, FileFate.MISSING
    assert fates == [FileFate.INTACT, FileFate.SILENT, zeroed, zeroed, zeroed, missing, FileFate.DETECTED]


def test_a_writer_that_cannot_go_on_says_why(board: Board) -> None:
    board.mounted.rmdir()
    console = board.write(WORKLOAD)
    assert onboard_safety.promised(console) == ()
    assert re.search(r"stopped at 1: .*can't (open|create)", onboard_safety.stopped(console))


def test_a_line_that_the_cut_has_shortened_promises_nothing() -> None:
    whole = f"synced 1 5000 {'a' * 64}\n"
    assert len(onboard_safety.promised(whole + whole[:-1])) == 1
    assert len(onboard_safety.promised(f"[   12.3] mmc1: noise\n{whole}synced 2 70")) == 1


def test_a_file_that_the_inspector_did_not_come_to_could_not_be_read() -> None:
    files = [Promised("1", 1, "a" * 64), Promised("2", 1, "b" * 64)]
    assert onboard_safety.fates("1 intact\n", files) == {"1": FileFate.INTACT, "2": FileFate.DETECTED}


@pytest.mark.parametrize(
    ("options", "expected"), [("rw,relatime", False), ("ro,relatime", True), ("rw,errors=remount-ro", False)]
)
def test_a_read_only_mount_is_seen(options: str, *, expected: bool) -> None:
    mounts = f"/dev/sda / ext4 ro 0 0\n/dev/sda /tmp/x ext4 {options} 0 0\n"
    assert onboard_safety.is_read_only(mounts, "/tmp/x") is expected
