"""The board's shell over ssh, with its console as the witness: the emulated Orange Pi PC with a network."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench_runs import SMALL, complete_run, patient_environment
from lab_board import lab_beside
from labgrid import Environment
from labgrid.driver import SSHDriver
from labgrid.resource import NetworkService
from labgrid_process import forget_coordinator
from shell_contract import check_shell

from fsjoule import images
from fsjoule.errors import BoardError
from fsjoule.host import process
from fsjoule.host.paths import project_dir
from fsjoule.lab import BoardStrategy, LabgridShell, SshShell, acquired_place
from fsjoule.lab.ssh import SshConnection
from fsjoule.lab.strategy import Status
from fsjoule.virtual.lab.files import LabPaths

NAME = "orangepi-ssh"
ENVIRONMENT = project_dir() / "env" / "virtual-orangepi-ssh.yaml"
BOOT_TIMEOUT_S = 600  # on a busy machine
CONNECT_S = 10.0


class _Board:
    """The board, with labgrid's SSHDriver."""

    def __init__(self, strategy: Any) -> None:
        self.strategy: BoardStrategy = strategy
        self.driver: Any = strategy.ssh
        self._labgrid = strategy
        self._again = SshConnection(strategy.target, self.driver, strategy.ssh_server)
        self._as_it_is = SshConnection(strategy.target, self.driver, None)
        strategy.boot_timeout = BOOT_TIMEOUT_S

    def booted(self) -> SshShell:
        self.strategy.transition("booted")
        shell = self.strategy.board_shell
        assert isinstance(shell, SshShell)
        return shell

    def console(self) -> LabgridShell:
        strategy = self._labgrid
        return LabgridShell(strategy.shell, strategy.recorder, strategy.lose, strategy.look)

    def on_console(self, command: str) -> str:
        return self.console().run(["sh", "-c", command], timeout_s=60).stdout

    def connect(self, *, with_server: bool) -> SshShell:
        """Connect once more to the running board, to a server that is started anew or to the one that is there."""
        self.disconnect()
        connection = self._again if with_server else self._as_it_is
        return connection.open(self.console(), self.strategy)

    def disconnect(self) -> None:
        for each in (self._labgrid._network, self._again, self._as_it_is):
            each.close()

    def clients(self) -> dict[int, str]:
        """All ssh to the board: the command lines by process."""
        marks = (f"-p {self.driver.networkservice.port} ", str(getattr(self.driver, "control", "none")))
        found = dict[int, str]()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if "ssh" in words.split(" ", 1)[0] and any(mark in words for mark in marks):
                found[int(folder.name)] = words
        return found

    def kill_master(self) -> None:
        for pid, words in self.clients().items():
            if " -MN " in words:
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def environment(module_state: Path) -> Generator[dict[str, str]]:
    assert module_state.is_dir()
    with lab_beside(NAME, "orangepi-ssh") as handle:
        yield handle.environment


@pytest.mark.usefixtures("environment")
def test_a_board_is_measured_over_ssh(tmp_path: Path) -> None:
    """First of this module: the others hold the place."""
    results = tmp_path / "results"
    changed = patient_environment(results, ENVIRONMENT, boot_timeout=BOOT_TIMEOUT_S)
    [measurement] = complete_run(results, changed, *SMALL).measurements
    assert measurement.invalid_reasons == ()
    assert measurement.energy is not None
    typed = LabPaths.of(NAME).log("console").read_text(errors="replace")
    assert "U-Boot SPL 20" in typed, "the board starts the boot loader on its card"
    assert "Found /extlinux/extlinux.conf" in typed
    assert "dropbear" in typed
    assert re.search(r"\bfio\b", typed) is None, "no program was started on the console"


@pytest.fixture(scope="module")
def board(environment: dict[str, str]) -> Generator[_Board]:
    """A board that is off, with its card."""
    card = images.build_card("6.1", "ext4", recipe="orangepi-ssh")
    with acquired_place(environment["LG_PLACE"]):
        environment_class: Any = Environment
        labgrid = environment_class(config_file=str(ENVIRONMENT))
        board = _Board(labgrid.get_target().get_driver("BoardStrategy"))
        board.strategy.card = card
        yield board
        board.disconnect()
        board.strategy.transition("off")
        assert board.clients() == {}
        labgrid.cleanup()
        forget_coordinator()


@pytest.fixture(scope="module")
def logged_in(board: _Board) -> _Board:
    board.booted()
    return board


@contextmanager
def _within(seconds: float) -> Generator[None]:
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < seconds


@pytest.mark.slow
def test_it_is_a_shell_as_the_one_on_the_console(logged_in: _Board) -> None:
    shell = logged_in.strategy.board_shell
    assert isinstance(shell, SshShell)
    check_shell(shell)
    large = os.urandom(1 << 20)
    shell.upload("/tmp/large", large)
    assert shell.get("/tmp/large") == large
    assert logged_in.on_console("sha256sum /tmp/large") == shell.run(["sha256sum", "/tmp/large"]).stdout


@pytest.mark.slow
def test_another_host_key_does_not_stop_a_board_that_was_flashed_again(logged_in: _Board) -> None:
    keys = set[str]()
    for _ in range(2):
        shell = logged_in.connect(with_server=True)
        assert shell.run(["echo", "here"]).stdout == "here\n"
        keys.add(logged_in.on_console("sha256sum /run/fsjoule-ssh/host_key"))
    assert len(keys) == 2


@pytest.mark.slow
@pytest.mark.parametrize("who", ["client", "server"])
def test_an_ssh_that_dies_under_a_command_is_named_and_leaves_nothing(logged_in: _Board, who: str) -> None:
    shell = logged_in.connect(with_server=True)
    command = "echo $$ > /tmp/waits; sleep 1000"
    if who == "server":
        command = f"(sleep 3; kill -9 $(pidof dropbear)) & {command}"
    timer = threading.Timer(3.0, logged_in.kill_master if who == "client" else int)
    timer.start()
    lost = r"^the ssh connection was lost while .*sleep 1000"
    with _within(90), pytest.raises(BoardError, match=lost) as caught:
        shell.run(["sh", "-c", command], timeout_s=300)
    timer.join()
    assert caught.value.transient
    assert logged_in.on_console("[ -e /proc/$(cat /tmp/waits) ] || echo gone") == "gone\n"
    assert logged_in.strategy.status is Status.unknown, "the next measurement boots the board anew"
    with _within(30), pytest.raises(BoardError, match="the ssh connection was lost while 'true' ran"):
        shell.run(["true"])


@pytest.fixture
def impatient(logged_in: _Board, monkeypatch: pytest.MonkeyPatch) -> _Board:
    """A board with an ssh server that takes our key."""
    logged_in.connect(with_server=True)
    # Arguments of the driver, as an environment file gives them; the tests after these have their own back.
    monkeypatch.setattr(logged_in.driver, "connection_timeout", CONNECT_S)
    monkeypatch.setattr(logged_in.driver, "keyfile", logged_in.driver.keyfile)
    return logged_in


def _refused(board: _Board, says: str) -> BoardError:
    with _within(4 * CONNECT_S + 20), pytest.raises(BoardError, match=says) as caught:
        board.connect(with_server=False)
    assert board.clients() == {}
    return caught.value


@pytest.mark.slow
def test_a_wrong_key_is_named(impatient: _Board, tmp_path: Path) -> None:
    process.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], timeout_s=30)
    impatient.driver.keyfile = str(tmp_path / "key")
    error = _refused(impatient, r"is not reached by ssh within 10 s at root@127.0.0.1, port \d+: .*Permission denied")
    assert "keyfile" in str(error.hint)


@pytest.mark.slow
def test_a_board_without_an_ssh_server_is_named(impatient: _Board) -> None:
    impatient.on_console("kill $(cat /run/fsjoule-ssh/pid)")
    error = _refused(impatient, r"is not reached by ssh within 10 s at root@127.0.0.1, port \d+: ")
    assert "no ssh server answers there" in str(error.hint)


@pytest.mark.slow
def test_the_board_is_asked_for_an_address_that_nobody_has_stated(impatient: _Board) -> None:
    """Its own address is known inside QEMU only, so it is not reached there."""
    strategy: Any = impatient.strategy
    resource_class: Any = NetworkService
    driver_class: Any = SSHDriver
    resource_class(strategy.target, "asked", address="", username="root")
    strategy.target.set_binding_map({"networkservice": "asked"})
    driver = driver_class(strategy.target, "asked", connection_timeout=CONNECT_S)
    impatient.disconnect()
    with _within(4 * CONNECT_S + 20), pytest.raises(BoardError, match=r"at root@10\.0\.2\.15, port 22: .+") as caught:
        SshConnection(strategy.target, driver, None).open(impatient.console(), strategy)
    assert caught.value.hint is not None


@pytest.mark.slow
def test_a_panic_is_told_while_ssh_waits_for_an_answer(impatient: _Board) -> None:
    """The board lives: it only says so."""
    impatient.on_console("kill $(cat /run/fsjoule-ssh/pid)")
    # In two parts: the console echoes the command.
    impatient.on_console("(sleep 10; echo 'Kernel pan''ic - not syncing: said' > /dev/console) > /dev/null 2>&1 &")
    impatient.driver.connection_timeout = 120.0
    with _within(60), pytest.raises(BoardError, match="the kernel panicked while 'connecting by ssh to root@"):
        impatient.connect(with_server=False)
    assert impatient.clients() == {}


@pytest.mark.slow
def test_a_panic_under_a_command_ends_it_at_once_and_the_board_boots_again(logged_in: _Board) -> None:
    shell = logged_in.connect(with_server=True)
    with _within(60), pytest.raises(BoardError, match=r"^the kernel panicked while") as caught:
        shell.run(["sh", "-c", "sleep 2; echo c > /proc/sysrq-trigger"], timeout_s=300)
    assert any("Kernel panic" in line for line in caught.value.console_tail)
    logged_in.disconnect()
    shell = logged_in.booted()
    assert shell.run(["uname", "-m"]).stdout == "armv7l\n"
    shell.start(["sh", "-c", "echo begun; sleep 100"])
    assert "begun" in logged_in.strategy.cut(5.0)
    assert logged_in.clients() == {}
