"""Limits of a shell's (ulimit): real ones, each reached by a real system call."""

from __future__ import annotations

import os
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsjoule.errors import ConfigError, HostError, StorageError
from fsjoule.host import process
from fsjoule.host.limits import of_system
from fsjoule.virtual.lab.capacity import check_fits
from fsjoule.virtual.lab.services import board_template


@contextmanager
def limited(number: int, value: int) -> Generator[None]:
    before = resource.getrlimit(number)
    resource.setrlimit(number, (value, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(number, before)


def _told(error: BaseException) -> str:
    known = of_system(error)
    assert isinstance(known, HostError)
    assert known.exit_code == 4
    return str(known)


def test_too_many_open_files() -> None:
    opened: list[int] = []
    with limited(resource.RLIMIT_NOFILE, 64):
        with pytest.raises(OSError, match="Too many open files") as caught:
            opened.extend(os.open("/dev/null", os.O_RDONLY) for _ in range(64))
        told = _told(caught.value)
    for each in opened:
        os.close(each)
    assert told == (
        "too many open files: this shell allows 64 open files (ulimit -n)\n"
        "  hint: ulimit -n 1024, in a new shell if this one refuses"
    )


def test_out_of_memory_and_threads() -> None:
    with limited(resource.RLIMIT_AS, 1 << 34):
        with pytest.raises(MemoryError) as caught:
            bytearray(1 << 35)
        assert _told(caught.value).startswith("out of memory: this shell allows 16777216 KiB of memory in a program")
        thread = _told(RuntimeError("can't start new thread"))
    assert thread.startswith("no process or thread can be started: this shell allows 16777216 KiB of memory")
    assert "ulimit -v unlimited" in thread
    assert of_system(RuntimeError("generator raised StopIteration")) is None
    assert of_system(BlockingIOError(11, "a socket would wait")) is None


def test_without_a_limit_it_is_this_computer() -> None:
    assert _told(MemoryError()).startswith("out of memory\n  hint: this computer, its user or its container")


def test_a_file_too_large_for_us_and_for_a_program(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 5000)
    with limited(resource.RLIMIT_FSIZE, 4096):
        with pytest.raises(OSError, match="File too large") as caught, (tmp_path / "ours").open("wb") as file:
            file.truncate(5000)
        assert "this shell allows 4 KiB in a file (ulimit -f)" in _told(caught.value)
        with pytest.raises(HostError, match=r"cp .* was killed by SIGXFSZ, as it wrote more to a file .*ulimit -f\)$"):
            process.run(["cp", tmp_path / "large", tmp_path / "copy"], timeout_s=10)


@pytest.mark.parametrize(
    ("number", "value", "told"),
    [
        (resource.RLIMIT_NOFILE, 24, r"24 open files \(ulimit -n\), and a virtual board needs 64"),
        (resource.RLIMIT_FSIZE, 1_024_000, r"1000 KiB in a file \(ulimit -f\), and the disk of a virtual board"),
    ],
)
def test_a_limit_that_a_virtual_board_exceeds_is_refused_at_once(number: int, value: int, told: str) -> None:
    template = board_template("deterministic")
    with limited(number, value), pytest.raises(ConfigError, match=told):
        check_fits(1, template, Path("/"))


def test_a_path_a_disk_and_a_bug() -> None:
    assert isinstance(of_system(PermissionError(13, "no", "/x")), ConfigError)
    assert isinstance(of_system(OSError(28, "full")), StorageError)
    assert of_system(KeyError("x")) is None
