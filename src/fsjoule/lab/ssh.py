"""A board over ssh, from the login on its console to its power-off, while the console is the witness of what happens.

A card of fsjoule's starts no ssh server and has no keys of its own: `SshServer` starts one after each login.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

import attr
from labgrid import Target
from labgrid.binding import BindingState
from labgrid.driver import Driver
from labgrid.driver.exception import ExecutionError
from labgrid.factory import target_factory
from labgrid.step import step
from labgrid.util import gen_marker

from fsjoule.errors import BoardError, ConfigError, LabError, also
from fsjoule.host import process
from fsjoule.lab.board_network import FailingBoard, checked, dhcp_lease
from fsjoule.lab.disks import check_words
from fsjoule.lab.shell import LabgridShell
from fsjoule.lab.translate import lab_errors, time_limit
from fsjoule.model import MIB
from fsjoule.ports import Command, CommandResult, one_by_one

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
_KEYGEN_TIMEOUT_S: Final = 20.0
# In the board's memory: nothing of it survives a power-off.
_FOLDER: Final = "/run/fsjoule-ssh"
# A program's output stays on the board until it ends: the network carries nothing while it runs.
_OUTPUT: Final = "/tmp/.fsjoule-output-ssh"  # noqa: S108 - the board's /tmp is only ours
# In the environment of a command and of all that it starts: they can be found and ended when ssh is gone.
_NAME: Final = "FSJOULE_COMMAND"
# What a login on the console has read, too. Its mistakes must not end the shell.
_PROFILE: Final = b"[ ! -r /etc/profile ] || command . /etc/profile </dev/null >/dev/null 2>&1\n"

_TRANSFER_TIMEOUT_S: Final = 300.0
_UPLOAD_TIMEOUT_S: Final = 1800.0
_SEND_TIMEOUT_S: Final = 30.0
_LOOK_S: Final = 1.0
# A board that has panicked says so at about the time at which its ssh server goes silent.
_LAST_WORDS_S: Final = 3.0
_END_TIMEOUT_S: Final = 60.0
_CHUNK_BYTES: Final = 65536
# The kernel under test says how much: this computer's memory and disk are not its own.
_LIMIT_BYTES: Final = 64 * MIB


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


@target_factory.reg_driver
@attr.s(eq=False)
class SshServer(Driver):
    """Brings up a card's network and its dropbear over the console, after each login.

    The board makes its host key at each boot. It takes one key: SSHDriver's keyfile, or one that this process makes for
    itself. There is no login by password.

    Args:
        driver (str): the kernel module of the board's network interface; empty if it is built into the kernel
        interface (str): the board's network interface
    """

    bindings = {"ssh": "SSHDriver"}  # noqa: RUF012 - labgrid's way
    driver: str = attr.ib(default="", validator=attr.validators.matches_re(r"[\w-]*"))
    interface: str = attr.ib(default="eth0", validator=attr.validators.matches_re(r"\w+"))

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.ssh: Any
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @step()
    def start(self, shell: LabgridShell, board: FailingBoard) -> str:
        """Start it on a board that is logged in. Returns the board's address. Raises BoardError, LabError."""
        if shell.run(["sh", "-c", "command -v dropbear"]).exit_code != 0:
            error = board.error("has no ssh server on its card")
            error.transient = False
            error.hint = 'add it to the recipe: more_packages = ["dropbear-bin"] in [userland]'
            raise error
        address = dhcp_lease(board, shell, self.driver, self.interface).address
        key = shlex.quote(self._public_key())
        steps = [
            f"{{ [ ! -e {_FOLDER}/pid ] || kill $(cat {_FOLDER}/pid) 2>/dev/null; rm -rf {_FOLDER}; }}",
            f"umask 077 && mkdir {_FOLDER} && echo {key} >{_FOLDER}/authorized_keys",
            f"dropbearkey -t ed25519 -f {_FOLDER}/host_key 2>&1",
            # No passwords, no forwarding, no message of the day.
            f"dropbear -s -j -k -m -r {_FOLDER}/host_key -D {_FOLDER} -P {_FOLDER}/pid 2>&1",
        ]
        checked(board, shell, " && ".join(steps), "cannot start its ssh server")
        return address

    def _public_key(self) -> str:
        if not self.ssh.keyfile:
            self._folder = tempfile.TemporaryDirectory(prefix="fsjoule-ssh-")
            self.ssh.keyfile = str(Path(self._folder.name) / "key")
            make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "fsjoule", "-f", self.ssh.keyfile]
            process.run(make, timeout_s=_KEYGEN_TIMEOUT_S)
        keyfile = self.ssh.keyfile
        if self.target is not None and self.target.env is not None:
            keyfile = self.target.env.config.resolve_path(keyfile)
        told = process.run(["ssh-keygen", "-y", "-P", "", "-f", keyfile], timeout_s=_KEYGEN_TIMEOUT_S).stdout
        return told.decode().strip()


class SshShell:
    """ports.Shell over a labgrid SSHDriver that is active. `console` is the shell in which the board is logged in.

    Commands go to one shell of the board's, which waits for the next one: another connection for each would cost the
    board several processes and a second of a slow CPU. Files have connections of their own.

    Each wait listens to the console: a panic, a restart or a dead program of the lab ends it at once.
    """

    def __init__(self, driver: Any, console: LabgridShell) -> None:  # noqa: ANN401 - labgrid's
        self._driver = driver
        self._console = console
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_SEND_TIMEOUT_S)
        with os.fdopen(theirs.detach(), "rb+", buffering=0) as end:
            self._client = process.start(self._ssh("sh"), stdin=end, log=end)
        self._said = bytearray()
        self._begun = False

    def close(self) -> None:
        """End the shell on the board and its ssh."""
        self._socket.close()
        process.stop(self._client)

    @step(args=["argv"])
    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> CommandResult:
        """See ports.Shell. Standard error is merged into the output; standard input is empty."""
        shown, marker, deadline = shlex.join(argv), gen_marker(), time.monotonic() + timeout_s
        body = f"( {_NAME}={marker}; export {_NAME}; {shown} ) </dev/null >{_OUTPUT} 2>&1; R=$?"
        # Most commands say nothing, and a program more costs a slow CPU a tenth of a second.
        tell = f'echo "<{marker}>"; [ ! -s {_OUTPUT} ] || cat {_OUTPUT}; echo "<{marker}:$R>"'
        lines = f"{body}; {tell}\n".encode()
        self._said.clear()
        try:
            self._socket.sendall(lines if self._begun else _PROFILE + lines)
        except OSError as error:
            raise self._broken(shown, bytes(self._said), "") from error
        self._begun = True
        answer = self._answer(marker, shown, deadline)
        if answer is None:
            limit = f"{shown!r} did not end within {timeout_s:.0f} s"
            self._end(marker, limit)
            if self._answer(marker, shown, time.monotonic() + _END_TIMEOUT_S) is None:
                raise self._console.lost(f"{limit}, and the board does not answer over ssh any more")
            raise BoardError(f"{limit} and was interrupted")
        code, output = answer
        return CommandResult(tuple(argv), code, output.decode(errors="replace"))

    def run_all(self, commands: Sequence[Command]) -> tuple[CommandResult, ...]:
        """See ports.Shell."""
        return one_by_one(self, commands)

    def start(self, argv: Sequence[str]) -> None:
        """See ports.Shell. It goes over the console, which has the output until the power is cut."""
        self._console.start(argv)

    @step(args=["path"])
    def put(self, path: str, content: bytes) -> None:
        """See ports.Shell. The received file is checked by its checksum."""
        self._put(path, content, _TRANSFER_TIMEOUT_S)

    @step(args=["path"])
    def upload(self, path: str, content: bytes) -> None:
        """Write a large file. Raises LabError, BoardError."""
        self._put(path, content, _UPLOAD_TIMEOUT_S)

    @step(args=["path"])
    def get(self, path: str) -> bytes:
        """See ports.Shell."""
        quoted = shlex.quote(path)
        code, content = self._transfer(f"[ -f {quoted} ] && cat {quoted}", b"", f"cat {quoted}", _TRANSFER_TIMEOUT_S)
        if code != 0:
            reason = content.decode(errors="replace").strip() or "there is no such file"
            raise LabError(f"{path} cannot be read on the board: {reason}", transient=True)
        return content

    def get_all(self, paths: Sequence[str]) -> tuple[bytes, ...]:
        """See ports.Shell."""
        return tuple(self.get(path) if self.run(("test", "-f", path)).exit_code == 0 else b"" for path in paths)

    def _put(self, path: str, content: bytes, timeout_s: float) -> None:
        quoted = shlex.quote(path)
        code, said = self._transfer(f"cat >{quoted} && sha256sum <{quoted}", content, f"cat >{quoted}", timeout_s)
        told = said.decode(errors="replace").strip()
        if code != 0:
            raise LabError(f"{path} cannot be written on the board: {told}", transient=True)
        if told.split()[:1] != [hashlib.sha256(content).hexdigest()]:
            raise LabError(f"{path} was damaged on its way to the board", transient=True)

    # ------------------------------------------------------------------------------------- the shell that is waiting

    def _answer(self, marker: str, shown: str, deadline: float) -> tuple[int, bytes] | None:
        """Exit code and output of the command with a marker; None at the deadline. Raises BoardError."""
        end = re.compile(rb"<%b:\d+>\n" % marker.encode())
        looked = 0
        while not end.search(self._said, looked):
            # The end may arrive in two parts.
            looked = max(0, len(self._said) - 2 * len(marker))
            if (left_s := deadline - time.monotonic()) <= 0:
                return None
            if not select.select([self._socket], [], [], min(_LOOK_S, left_s))[0]:
                self._console.watch(shown, _GLANCE_S)
            elif chunk := self._socket.recv(_CHUNK_BYTES):
                self._said += chunk
                if len(self._said) > _LIMIT_BYTES:
                    raise self._console.lost(_too_long(shown).what)
            else:
                raise self._broken(shown, bytes(self._said), marker)
        return _between(self._said, marker)

    # ---------------------------------------------------------------------------------------------------------- files

    def _transfer(self, command: str, sent: bytes, shown: str, timeout_s: float) -> tuple[int, bytes]:
        """Run a command with an input in a connection of its own: its exit code and its output. Raises BoardError."""
        marker = gen_marker()
        remote = f"export {_NAME}={marker}; echo '<{marker}>'; ( {command} ) 2>&1; echo \"<{marker}:$?>\""
        deadline = time.monotonic() + timeout_s
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as told:
            given.write(sent)
            given.seek(0)
            client = process.start(self._ssh(remote), stdin=given, log=told)
            try:
                ended = self._ends(client, told, shown, deadline)
            finally:
                process.stop(client)
            told.seek(0)
            said = told.read(_LIMIT_BYTES + 1)
        if len(said) > _LIMIT_BYTES:
            raise _too_long(shown)
        if not ended:
            limit = f"{shown!r} did not end within {timeout_s:.0f} s"
            self._end(marker, limit)
            raise BoardError(f"{limit} and was interrupted")
        answer = _between(said, marker)
        if answer is None:
            raise self._broken(shown, said, marker)
        return answer

    def _ends(self, client: subprocess.Popen[bytes], told: IO[bytes], shown: str, deadline: float) -> bool:
        """Whether a program of this computer ends before the deadline, or has said too much. Raises BoardError."""
        while (left_s := deadline - time.monotonic()) > 0 and os.fstat(told.fileno()).st_size <= _LIMIT_BYTES:
            try:
                client.wait(min(_LOOK_S, left_s))
            except subprocess.TimeoutExpired:
                self._console.watch(shown, _GLANCE_S)
            else:
                return True
        return False

    def _ssh(self, remote: str) -> list[str]:
        """An ssh through labgrid's connection, and never by a way of its own."""
        driver, service = self._driver, self._driver.networkservice
        port, user = str(service.port), driver.username or service.username
        only = ["-T", "-o", "BatchMode=yes", "-o", "ProxyCommand=false"]
        return [driver._ssh, "-x", *driver.ssh_prefix, *only, "-p", port, "-l", user, service.address, remote]  # noqa: SLF001

    # ----------------------------------------------------------------------------------------------------- what fails

    def _broken(self, shown: str, said: bytes, marker: str) -> BoardError:
        """The error for an ssh that ended before its command: what the console says comes first."""
        self._console.watch(shown, _LAST_WORDS_S)
        words = " ".join(said.decode(errors="replace").split()[-20:])
        what = f"the ssh connection was lost while {shown!r} ran{f': {words}' if words else ''}"
        if marker:
            self._end(marker, what)
        return self._console.lost(what)

    def _end(self, marker: str, what: str) -> None:
        """End what a command has left on the board. Raises BoardError with `what` if the board does not answer."""
        find = f"grep -ls {_NAME}={marker} /proc/[0-9]*/environ"
        kill = "for each in $found; do each=${each%/environ}; kill -9 ${each#/proc/} 2>/dev/null; done"
        # Again until there is none: a shell may start its next program while its present one is ended.
        turn = f'found=$({find}); [ -n "$found" ] || break; {kill}; sleep 0.1'
        script = f"for turn in 1 2 3 4 5 6 7 8 9; do {turn}; done"
        try:
            self._console.run(["sh", "-c", script], timeout_s=_END_TIMEOUT_S)
        except BoardError as error:
            raise self._console.lost(f"{what}, and the board does not answer on its console either") from error


def _too_long(shown: str) -> BoardError:
    return BoardError(f"{shown!r} sent more than {_LIMIT_BYTES // MIB} MiB over ssh", transient=False)


def _between(said: bytes | bytearray, marker: str) -> tuple[int, bytes] | None:
    """Exit code and output of a command, between its two markers; None without the second one."""
    found = re.search(rb"<%b>\n(.*)<%b:(\d+)>\n" % (marker.encode(), marker.encode()), said, re.DOTALL)
    return None if found is None else (int(found[2]), found[1])
