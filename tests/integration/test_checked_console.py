"""Commands and files over a console that damages what it carries. The board is this computer's shell, on a pty."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from lossy_console import LossyConsole, lossy_shell, tried
from program_board import program_board

from fsjoule.errors import BoardError, LabError
from fsjoule.lab import LabgridShell
from fsjoule.lab import shell as shell_module
from fsjoule.ports import Command, CommandResult

SHELLS = ("dash", "busybox sh", "bash --norc")


@pytest.fixture(name="board", params=SHELLS[:2])
def _board(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[tuple[LabgridShell, LossyConsole]]:
    with lossy_shell(request.param, tmp_path) as board:
        yield board


@pytest.fixture(name="shell")
def _shell(board: tuple[LabgridShell, LossyConsole]) -> LabgridShell:
    return board[0]


def _run(shell: LabgridShell) -> Callable[[Command], CommandResult]:
    return lambda command: shell.run(command.argv, timeout_s=command.timeout_s)


@pytest.mark.parametrize("shell", SHELLS[:2])
def test_no_damage_makes_a_wrong_result(shell: str, tmp_path: Path) -> None:
    with lossy_shell(shell, tmp_path, seed=3) as (board, console):
        assert board.run(["true"]).exit_code == 0
        console.rate = 1 / 1000
        outcome = tried(_run(board), tmp_path, 12, seed=3)
    assert console.damaged
    assert outcome.wrong == []
    assert outcome.right >= 10


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_2000_commands_over_a_line_that_damages_one_character_of_1000(shell: str, tmp_path: Path) -> None:
    with lossy_shell(shell, tmp_path, seed=1) as (board, console):
        console.rate = 1 / 1000
        outcome = tried(_run(board), tmp_path, 2000, seed=1)
    assert outcome.wrong == []
    assert outcome.right > 1900


def test_files_come_whole_or_not_at_all(
    shell: LabgridShell, board: tuple[LabgridShell, LossyConsole], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {
        "it's one": b"\x00\xff" * 5000,
        "none": b"",
        "two.gz": b"\x1f\x8bnot gzip",
        "empty": b"",
        "last": b"3\n",
    }
    for name, content in contents.items():
        if name != "none":
            (tmp_path / name).write_bytes(content)
    paths = [str(tmp_path / name) for name in contents]
    board[1].rate = 1 / 1000
    assert shell.get_all(paths) == tuple(contents.values())
    shell.put(f"{tmp_path}/put", contents["it's one"])
    assert (tmp_path / "put").read_bytes() == contents["it's one"]
    board[1].rate = 0
    monkeypatch.setattr(shell_module, "_FILE_LIMIT_BYTES", 1 << 20)
    (tmp_path / "bomb").write_bytes(bytes(1 << 21))
    with pytest.raises(LabError, match="bomb of the board is larger than 1 MiB"):
        shell.get(f"{tmp_path}/bomb")
    with pytest.raises(LabError, match="bomb of the board is larger than 1 MiB"):
        shell.get_all([f"{tmp_path}/bomb"])


def test_long_commands_that_come_together_are_each_their_own(shell: LabgridShell) -> None:
    words = ["x" * 1500, "y" * 1500, "z"]
    results = shell.run_all([Command(("echo", each)) for each in words])
    assert [each.stdout.strip() for each in results] == words


def test_a_command_at_its_limit_is_told_with_what_it_printed(shell: LabgridShell) -> None:
    script = f"echo {'1234567890' * 200} >/dev/null; echo its words; sleep 1000"
    with pytest.raises(BoardError, match=r"[0-9]\.{3}. did not end within 1 s and was interr") as caught:
        shell.run(["sh", "-c", script], timeout_s=1)
    assert caught.value.console_tail == ("its words",)
    assert shell.run(["echo", "still there"]).stdout == "still there\n"


def test_a_console_that_is_stopped_goes_on(shell: LabgridShell, board: tuple[LabgridShell, LossyConsole]) -> None:
    shell.run(["true"])
    board[1].write(b"\x13")
    assert shell.run(["echo", "here"], timeout_s=60).stdout == "here\n"


def test_a_board_that_begins_for_ever_gets_no_more_time(shell: LabgridShell) -> None:
    with pytest.raises(BoardError, match="did not end within 1 s and was interrupted"):
        shell.run(["eval", 'while sleep 0.1; do echo "<$Fm.1>" >/dev/tty; done'], timeout_s=1)


def test_a_command_with_the_words_of_a_panic_is_none(shell: LabgridShell) -> None:
    words = "Kernel panic - not syncing|login: "
    assert shell.run(["sh", "-c", f"echo '{words}' | wc -l"]).stdout.strip() == "1"
    assert len(shell.run_all([Command(("test", words)), Command(("true",))])) == 2


def test_a_line_that_damages_everything_is_named(shell: LabgridShell, board: tuple[LabgridShell, LossyConsole]) -> None:
    shell.run(["true"])
    board[1].write = _cut(board[1].write)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(LabError, match=r"the console damaged 'mkfs' or its answer, 10 times\n  hint: the board's UART"):
        shell.run(["mkfs"])


def test_a_board_that_is_silent_from_the_first_command_on_has_damaged_nothing(
    shell: LabgridShell, board: tuple[LabgridShell, LossyConsole], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The limits are those of slow serial lines: nobody needs to wait for them here.
    monkeypatch.setattr(shell_module, "_SILENT_S", 0.5)
    monkeypatch.setattr(shell_module, "_PROMPT_TIMEOUT_S", 1.0)
    board[1].write = len  # pyright: ignore[reportAttributeAccessIssue]
    begin_s = time.monotonic()
    with pytest.raises(BoardError, match="the board does not answer: it says nothing to the first command"):
        shell.run(["true"], timeout_s=5)
    assert time.monotonic() - begin_s < 5


def _cut(write: Callable[[bytes], int]) -> Callable[[bytes], int]:
    """Takes four characters out of each long line."""
    return lambda data: write(data[:12] + data[16:] if len(data) > 20 else data)


# A board on a console: its UART loses four characters of the burst BURST, at AT.
OVERRUN = """\
import os, pty, select, sys, time
time.sleep(1)
os.write(1, b"Starting kernel ...\\r\\n")
typed = b"\\n"
while not typed.strip():
    os.write(1, b"board login: ")
    typed = os.read(0, 4096) or sys.exit()
pid, shell = pty.fork()
if pid == 0:
    os.environ.update(PS1="root@board:~# ", TERM="dumb")
    os.execvp("dash", ["dash", "-i"])
bursts = 0
while True:
    ready, _, _ = select.select([0, shell], [], [], 1)
    if 0 in ready:
        typed = os.read(0, 4096) or sys.exit()
        bursts += len(typed) > 40
        if len(typed) > 40 and bursts == BURST:
            typed = typed[:AT] + typed[AT + 4:]
        os.write(shell, typed)
    if shell in ready:
        os.write(1, os.read(shell, 4096))
"""


@pytest.mark.parametrize(("burst", "at"), [(1, 300), (2, 60)])
def test_a_burst_of_four_lost_characters_changes_no_command(burst: int, at: int, tmp_path: Path) -> None:
    program = OVERRUN.replace("BURST", str(burst)).replace("AT", str(at))
    with program_board(tmp_path, program) as target:
        strategy: Any = target.get_driver("BoardStrategy")
        strategy.transition("booted")
        for words in (
            "first answer",
            "--name=fsjoule --directory=/mnt/scratch --rw=write --bs=16384 --size=33554432",
            "3",
        ):
            result = strategy.board_shell.run(["echo", *shlex.split(words)], timeout_s=20)
            assert (result.exit_code, result.stdout) == (0, f"{words}\n")
        strategy.transition("off")
