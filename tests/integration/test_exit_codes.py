"""One exit code a cause: commands whose output, input or code fails."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from command_line import PROGRAM, CommandLine
from compared_runs import write_kernels
from labgrid.remote.common import ResourceEntry

from fsjoule import cli
from fsjoule.cli.ended import exit_code_of
from fsjoule.errors import BoardError, ConfigError, StorageError
from fsjoule.hooks import CliCommand
from fsjoule.host.output import guarded
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.request import choose
from fsjoule.store.files import check_writable

REPORTED = "this is a bug in fsjoule; please report it"


def in_a_process(*words: object, stdout: Any, stderr: Any = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    argv = [str(PROGRAM), *map(str, words)]
    return subprocess.run(argv, stdout=stdout, stderr=stderr, text=True, timeout=300, check=False)


def closed_pipe() -> int:
    """A pipe that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


@pytest.mark.parametrize(("broken", "speed", "answer"), [(full_disk, 0.9, 1), (closed_pipe, 0.97, 3)])
def test_a_gate_whose_output_fails_keeps_its_answer(
    tmp_path: Path, broken: Callable[[], int], speed: float, answer: int
) -> None:
    noise = 0.1 if answer == 3 else 0.01
    folder = write_kernels(tmp_path / "results", speeds={"6.1": 1.0, "6.12": speed}, noise=noise, boots=4)
    words = ("gate", "--baseline", f"6.1@{folder}", "--candidate", f"6.12@{folder}", "--budget", 8)
    output = broken()
    done = in_a_process(*words, stdout=output)
    os.close(output)
    assert done.returncode == answer, done.stderr
    # A reader that has gone had what it wanted.
    assert ("the output cannot be written" in done.stderr) == (broken is full_disk)
    assert "Traceback" not in done.stderr


def test_a_note_that_cannot_be_written_keeps_the_answer(fsjoule: CommandLine, tmp_path: Path) -> None:
    folder = write_kernels(tmp_path / "results", speeds={"6.1": 1.0, "6.12": 0.9})
    (tmp_path / "note.md").symlink_to("/dev/full")
    done = fsjoule("gate", "--baseline", f"6.1@{folder}", "--candidate", f"6.12@{folder}", "--markdown", "note.md")
    assert done.code == 1
    assert "note.md cannot be written: No space left" in done.err
    # A folder where nothing can be is said before anything is read or measured.
    refused = fsjoule("gate", "--baseline", "6.1", "--candidate", "6.12", "--markdown", "/proc/x/note.md")
    assert refused.code == 2
    assert "--format markdown: there is no folder /proc/x" in refused.err


def test_output_that_fails_is_the_callers_disk() -> None:
    output = full_disk()
    done = in_a_process("choices", stdout=output)
    os.close(output)
    assert done.returncode == 4
    assert done.stderr.startswith("error: the output cannot be written: ")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_reader_that_has_gone_has_what_it_wanted() -> None:
    output = closed_pipe()
    done = in_a_process("choices", stdout=output)
    os.close(output)
    assert (done.returncode, done.stderr) == (0, "")


def test_errors_that_cannot_be_told_have_their_exit_code() -> None:
    nowhere = full_disk()
    assert in_a_process("show", "nowhere", stdout=nowhere, stderr=nowhere).returncode == 2
    os.close(nowhere)


def test_a_program_without_output_is_fine() -> None:
    done = subprocess.run(["sh", "-c", f"{PROGRAM} version >&- 2>&-"], timeout=60, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        (ZeroDivisionError("x"), 70, REPORTED),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 70, REPORTED),
        (EOFError(), 70, REPORTED),
        (RecursionError(), 70, REPORTED),
        (FileNotFoundError(errno.ENOENT, "No such file", "/some/file"), 70, REPORTED),
        (OSError(errno.ENAMETOOLONG, "File name too long", "xxx"), 2, "error: xxx: File name too long"),
        (PermissionError(errno.EACCES, "Permission denied", "/root/x"), 2, "error: /root/x: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), 4, "error: No space left on device"),
        (OSError(errno.EROFS, "Read-only file system", "x"), 2, "error: x: Read-only"),
        (ConfigError("which board?"), 2, "error: which board?"),
        (BoardError("it hung"), 4, "error: it hung"),
        (KeyboardInterrupt(), 130, ""),
        (typer.Abort(), 130, ""),
        (SystemExit("a text"), 70, ""),
        (SystemExit(None), 0, ""),
    ],
)
def test_every_cause_has_its_exit_code(
    fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch, failure: BaseException, code: int, said: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr("fsjoule.store.reader.load_run", fail)
    done = fsjoule("show", "any/thing")
    assert done.code == code, done.err
    assert said in " ".join(done.err.split())
    assert ("Traceback" in done.err) == (said == REPORTED)


def test_what_fails_while_ctrl_c_ends_a_command_is_told_and_the_exit_code_stays(
    fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            _ = cast("Any", ResourceEntry)({}).args

    monkeypatch.setattr("fsjoule.store.reader.load_run", interrupted)
    done = fsjoule("show", "any/thing")
    assert (done.code, done.err) == (130, "error: labgrid failed: KeyError: 'params'\n")


def test_what_labgrid_stumbles_over_is_the_labs_fault(fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def exporter_gone(*_: object, **__: object) -> None:
        _ = cast("Any", ResourceEntry)({}).args

    monkeypatch.setattr("fsjoule.store.reader.load_run", exporter_gone)
    done = fsjoule("show", "any/thing")
    assert (done.code, done.err) == (4, "error: labgrid failed: KeyError: 'params'\n")


def test_a_module_that_cannot_be_imported_is_a_bug(fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_OURS", (CliCommand("absent", "fsjoule.cli.absent:app"),))
    assert fsjoule("absent").code == 70


def test_what_is_buffered_is_written_before_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    with Path("/dev/full").open("w") as full:
        assert not guarded(full).write("")
        sys.stdout, before = full, sys.stdout
        try:
            assert exit_code_of(lambda: sys.stdout.write("x"), answers=False) == 4
        finally:
            sys.stdout = before
    assert "No space left" in capfd.readouterr().err


@pytest.mark.parametrize("repeat", [1001, 99_999_999])
def test_repetitions_have_a_limit(repeat: int) -> None:
    begin = time.monotonic()
    with pytest.raises(ConfigError, match="repetitions are too many"):
        choose(BenchOptions(suite="quick", kernel="6.1", repeat=repeat, results=Path("results")))
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("asked", ["x" * 300, "~nobody-of-that-name/linux", "x" * 5000 + "/linux"])
def test_a_kernel_that_is_no_path_is_named(fsjoule: CommandLine, asked: str) -> None:
    done = fsjoule("image", "build", "--kernel", asked)
    assert done.code == 2
    assert "error: --kernel " in done.err
    assert "choose from" in done.err


def test_a_folder_that_is_not_there_is_no_index(fsjoule: CommandLine) -> None:
    done = fsjoule("gate", "--baseline", "6.1", "--candidate", "6.12", "--within", "results/nope")
    assert done.code == 2
    assert "there is no folder results/nope" in done.err


def test_a_report_of_nothing_replaces_none(fsjoule: CommandLine, tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.mkdir()
    (report / "fsjoule-report").write_text("good\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    for folder in ("empty", "other"):
        done = fsjoule("report", "build", folder)
        assert done.code == 2
        assert "there is no run folder" in done.err
    assert (report / "fsjoule-report").read_text() == "good\n"


@pytest.mark.parametrize("address", ["/dev/null", "/etc/passwd"])
def test_what_is_no_terminal_is_no_meter(fsjoule: CommandLine, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("FSJOULE_METER", address)
    done = fsjoule("meter", "info")
    assert done.code == 2
    assert f"{address} is not a serial port" in done.err
    assert "kill" not in done.err


def test_a_hint_names_the_command_that_measures(fsjoule: CommandLine, tmp_path: Path) -> None:
    done = fsjoule("show", tmp_path)
    assert done.code == 2
    assert "fsjoule bench" in done.err


def test_where_nothing_can_be_written_is_input_and_a_full_disk_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_writable(tmp_path / "a" / "b", "--results")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="--results: nothing can be written in /proc/x: No such file"):
        check_writable(Path("/proc/x"), "--results")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(StorageError, match="No space left"):
        check_writable(tmp_path, "--results")
