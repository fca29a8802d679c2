"""The shell over ssh, with an `ssh` that runs its command here: markers, limits, and what is left of a command."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from labgrid.binding import BindingState

from fsjoule.errors import BoardError, LabError
from fsjoule.lab import SshShell, ssh
from fsjoule.lab.ssh import SshConnection
from fsjoule.model import MIB
from fsjoule.ports import CommandResult

# As ssh: what it starts lives on when it is killed.
SSH = """\
#!/bin/sh
for last; do :; done
{elsewhere}cat | setsid sh -c "$last" 2>&1 | cat
"""


class Console:
    """The board's console, which is this computer; `says` is called at each look at it."""

    def __init__(self, says: Callable[[], None]) -> None:
        self._says = says
        self.is_lost = False

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> CommandResult:
        done = subprocess.run(argv, capture_output=True, timeout=timeout_s, check=False)
        return CommandResult(tuple(argv), done.returncode, done.stdout.decode())

    def watch(self, shown: str, seconds: float) -> None:
        del shown, seconds
        self._says()

    def lost(self, what: str) -> BoardError:
        self.is_lost = True
        return BoardError(what)


def driver(folder: Path, elsewhere: str = "") -> Any:
    """labgrid's; `elsewhere` changes what is run, as another machine has other files."""
    program = folder / "ssh"
    program.write_text(SSH.format(elsewhere=elsewhere))
    program.chmod(0o755)
    service = SimpleNamespace(address="board", port=22, username="root")
    own = {"_ssh": str(program), "ssh_prefix": ["-F", "none"], "networkservice": service, "username": ""}
    return SimpleNamespace(**own, connection_timeout=10.0, state=BindingState.idle)


def _runs(pid: str) -> bool:
    """Whether a process runs; one that nobody has asked about yet does not."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


@pytest.fixture
def console() -> Console:
    return Console(lambda: None)


@pytest.fixture
def shell(tmp_path: Path, console: Console) -> Generator[SshShell]:
    made: Any = SshShell
    shell = made(driver(tmp_path), console)
    yield shell
    shell.close()


@pytest.mark.parametrize(
    "elsewhere", ["sed -u s,/tmp/.fsjoule-board,/dev/null, | ", "sed -u s,random/boot_id,random/uuid, | "]
)
def test_a_machine_that_is_not_the_board_is_refused(tmp_path: Path, console: Console, elsewhere: str) -> None:
    """It would have got `mkfs`: an address of DHCP goes to the next machine, or is mistyped."""
    target = SimpleNamespace(activate=id)

    def connection(elsewhere: str) -> SshConnection:
        made: Any = SshConnection
        return made(target, driver(tmp_path, elsewhere), None)

    board: Any = SimpleNamespace(error=BoardError)
    witness: Any = console
    same = connection("")
    assert same.open(witness, board).run(["echo", "here"]).stdout == "here\n"
    same.close()
    with pytest.raises(BoardError, match="is not the machine that ssh reaches at root@board, port 22") as caught:
        connection(elsewhere).open(witness, board)
    assert not caught.value.transient


def test_exit_code_and_output_are_those_of_the_command(shell: SshShell) -> None:
    assert shell.run(["sh", "-c", "echo out; echo err >&2; exit 255"]).exit_code == 255
    assert shell.run(["printf", "<%s:0>"]).stdout == "<:0>"
    large = shell.run(["sh", "-c", "yes 0123456789abcde | head -c 3000000"], timeout_s=60)
    assert len(large.stdout) == 3_000_000
    assert shell.run(["sh", "-c", "read line || echo nothing"]).stdout == "nothing\n"
    assert shell.run(["cd", "/"]).exit_code == 0
    assert shell.run(["pwd"]).stdout.strip() == str(Path.cwd()), "a command leaves no trace in the shell"


def test_files_arrive_whole_or_say_why(shell: SshShell, tmp_path: Path) -> None:
    content = os.urandom(300_000) + b"\r\n<x:0>\n"
    shell.upload(str(tmp_path / "with space"), content)
    assert (tmp_path / "with space").read_bytes() == content
    assert shell.get(str(tmp_path / "with space")) == content
    with pytest.raises(LabError, match=r"none cannot be read on the board: there is no such file"):
        shell.get(str(tmp_path / "none"))
    with pytest.raises(LabError, match=r"cannot be written on the board: .*none"):
        shell.put(str(tmp_path / "none" / "x"), b"x")


def test_a_board_that_says_too_much_is_named(
    shell: SshShell, console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "_LIMIT_BYTES", MIB)
    (tmp_path / "large").write_bytes(bytes(2 * MIB))
    with pytest.raises(BoardError, match=r"'cat .*large' sent more than 1 MiB over ssh"):
        shell.get(str(tmp_path / "large"))
    with pytest.raises(BoardError, match=r"'cat .*large' sent more than 1 MiB over ssh"):
        shell.run(["cat", str(tmp_path / "large")])
    assert console.is_lost


def test_a_command_at_its_limit_is_ended_with_all_that_it_started(
    shell: SshShell, console: Console, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    # Each of its programs is followed by another one.
    again = f"while :; do sleep 1000 & echo $! >>{pids}; wait $!; done"
    with pytest.raises(BoardError, match="did not end within 1 s and was interrupted"):
        shell.run(["sh", "-c", f"setsid sleep 1000 & echo $! $$ >{pids}; {again}"], timeout_s=1)
    assert not console.is_lost
    assert shell.run(["echo", "still there"]).stdout == "still there\n"
    assert [pid for pid in pids.read_text().split() if _runs(pid)] == []


def test_an_ssh_that_ends_is_named_with_its_words_and_leaves_nothing(
    shell: SshShell, console: Console, tmp_path: Path
) -> None:
    pid, client = tmp_path / "pid", shell._client.pid
    kill = threading.Timer(1.5, lambda: os.killpg(client, signal.SIGKILL))
    kill.start()
    begin = time.monotonic()
    with pytest.raises(BoardError, match=r"^the ssh connection was lost while .*sleep 1000.* ran(: Killed)?$"):
        shell.run(["sh", "-c", f"echo $$ >{pid}; sleep 1000; true"], timeout_s=60)
    kill.join()
    assert time.monotonic() - begin < 20
    assert console.is_lost
    assert not _runs(pid.read_text().strip())


def test_what_the_console_says_ends_the_wait_and_is_told_first(tmp_path: Path) -> None:
    def panic() -> None:
        raise BoardError("the kernel panicked")

    made: Any = SshShell
    shell = made(driver(tmp_path), Console(panic))
    begin = time.monotonic()
    with pytest.raises(BoardError, match="the kernel panicked"):
        shell.run(["sleep", "20"], timeout_s=60)
    assert time.monotonic() - begin < 15
    shell.close()
