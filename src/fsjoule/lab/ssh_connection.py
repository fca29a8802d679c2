"""The connection of labgrid's SSHDriver to the board, from the login on its console to its power-off."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any, Final

from labgrid import Target
from labgrid.binding import BindingState
from labgrid.driver.exception import ExecutionError
from labgrid.util import gen_marker

from fsjoule.errors import ConfigError, also
from fsjoule.host import process
from fsjoule.lab.board_network import FailingBoard
from fsjoule.lab.disks import check_words
from fsjoule.lab.shell import LabgridShell
from fsjoule.lab.ssh_server import SshServer
from fsjoule.lab.ssh_shell import SshShell
from fsjoule.lab.translate import lab_errors, time_limit

_CLOSE_TIMEOUT_S: Final = 30.0
_EXIT_TIMEOUT_S: Final = 10.0
_GLANCE_S: Final = 0.05
# labgrid's last attempt may begin at the end of its own limit.
_MORE_S: Final = 20.0
_ADDRESS_TIMEOUT_S: Final = 60.0
_PAUSE_S: Final = 2.0
# Written over the console, read over ssh. Boards with one root over NFS share it, but each start has its own boot_id.
# In guest time two boards may have one boot_id, but not one mark.
_MARK: Final = "/tmp/.fsjoule-board"  # noqa: S108 - the board's /tmp is only ours
_WHICH_BOARD: Final = f"cat {_MARK} /proc/sys/kernel/random/boot_id"

# ssh's words, and what to do.
_ADVICE: Final = {
    r"Permission denied|Too many authentication failures": "the board does not take the key: see keyfile and username "
    "of SSHDriver and NetworkService, and authorized_keys on the board",
    r"Connection (?:refused|reset|closed)|banner exchange": "no ssh server answers there: is it installed, has it "
    "started, and is the port right?",
    r"timed out|No route to host|unreachable": "is the address the board's, and can this computer reach it?",
    r"Could not resolve": "the address's name is unknown here: state the number, or correct the name",
}


class SshConnection:
    """The board over ssh. `server` is brought up before each connection, if the board has none of its own.

    labgrid's driver takes any host key: a board that is flashed again, or makes its key at each boot, has another one.
    """

    def __init__(self, target: Target, driver: Any, server: SshServer | None) -> None:  # noqa: ANN401 - labgrid's
        self._target = target
        self._driver = driver
        self._server = server
        self._stated: str = driver.networkservice.address
        if not self._stated and hasattr(driver.networkservice, "_remote_entry"):
            # labgrid sets its resources again and again to what the exporter says.
            hint = "state it there, or write NetworkService with address: '' into the environment file"
            raise ConfigError("the exporter's NetworkService has no address", hint=hint)
        self._shell: SshShell | None = None

    def open(self, console: LabgridShell, board: FailingBoard) -> SshShell:
        """Connect to a board that is logged in on its console. Raises BoardError, LabError."""
        self.close()
        driver, service = self._driver, self._driver.networkservice
        learned = "" if self._server is None else self._server.start(console, board)
        service.address = self._stated or learned or _address_of(board, console)
        check_words(service)
        limit_s = driver.connection_timeout
        where = f"{driver.username or service.username}@{service.address}, port {service.port}"
        doing = f"connecting by ssh to {where}"

        def look() -> tuple[str, ...]:
            console.watch(doing, _GLANCE_S)
            return ()

        try:
            with time_limit(2 * limit_s + _MORE_S, doing, look), lab_errors(doing):
                try:
                    self._target.activate(driver)
                except Exception as error:
                    if (words := _last_words(error)) is None:
                        raise
                    refused = board.error(f"is not reached by ssh within {limit_s:.0f} s at {where}: {words}")
                    refused.hint = next((advice for said, advice in _ADVICE.items() if re.search(said, words)), None)
                    raise refused from error
        except BaseException:
            self._discard()
            raise
        self._shell = SshShell(driver, console)
        try:
            self._check_same_board(console, self._shell, board, where)
        except BaseException as error:
            with also(error, "closing the connection by ssh"):
                self.close()
            raise
        return self._shell

    @staticmethod
    def _check_same_board(console: LabgridShell, ssh: SshShell, board: FailingBoard, where: str) -> None:
        """Raise BoardError unless ssh reaches the board of the console: what goes over ssh makes filesystems there."""
        mark = gen_marker()
        on_console = console.run(["sh", "-c", f"echo {mark} >{_MARK} && {_WHICH_BOARD}"])
        if mark not in on_console.stdout or on_console.exit_code != 0:
            raise board.error(f"cannot mark itself, to be known over ssh: {on_console.stdout.strip()}")
        over_ssh = ssh.run(["sh", "-c", _WHICH_BOARD])
        if over_ssh.stdout != on_console.stdout:
            error = board.error(f"is not the machine that ssh reaches at {where}: nothing was done there")
            error.transient = False
            error.hint = "correct the address of NetworkService, or omit it: the board is then asked for its address"
            raise error

    def close(self) -> None:
        """End the connection, whatever the board's state. Raises LabError."""
        if self._shell is not None:
            self._shell.close()
            self._shell = None
        if self._driver.state is not BindingState.active:
            return
        doing = "closing the connection by ssh"
        with time_limit(_CLOSE_TIMEOUT_S, doing), lab_errors(doing):
            # First: labgrid would wait a minute for the answer of a board that is off.
            self._end(self._driver.control)
            self._target.deactivate(self._driver)

    def _discard(self) -> None:
        """End what a failed connection has left: labgrid forgets it."""
        client, folder = getattr(self._driver, "process", None), getattr(self._driver, "tmpdir", None)
        if client is not None and client.poll() is None:
            process.stop(client)
        if folder is None:
            return
        for control in Path(folder).glob("control-*"):
            self._end(str(control))
        shutil.rmtree(folder, ignore_errors=True)

    def _end(self, control: str) -> None:
        """End the ssh that has the connection, and with it all that use it."""
        path = control.replace("%", "%%")
        end = [self._driver._ssh, "-F", "none", "-o", f"ControlPath={path}", "-O", "exit", "board"]  # noqa: SLF001
        process.run(end, timeout_s=_EXIT_TIMEOUT_S, check=False)


def _last_words(error: Exception) -> str | None:
    """What ssh has said in labgrid's last attempt, if labgrid's error is about that."""
    cause = error if isinstance(error, ExecutionError) else error.__cause__
    if not isinstance(cause, ExecutionError):
        return None
    lines = [line.decode(errors="replace") if isinstance(line, bytes) else str(line) for line in cause.stdout or ()]
    return " ".join(" ".join(lines).split()) or str(cause.msg)


def _address_of(board: FailingBoard, console: LabgridShell) -> str:
    """The address that the board has got by DHCP, or soon gets."""
    show = "ip -4 -o addr show scope global"
    deadline = time.monotonic() + _ADDRESS_TIMEOUT_S
    while True:
        said = console.run(["sh", "-c", f"{show} 2>/dev/null || busybox {show}"]).stdout
        if found := re.search(r"\binet ([0-9.]+)", said):
            return found[1]
        if time.monotonic() > deadline:
            raise board.error(f"has no address within {_ADDRESS_TIMEOUT_S:.0f} s{said and ': '}{said.strip()}")
        time.sleep(_PAUSE_S)
