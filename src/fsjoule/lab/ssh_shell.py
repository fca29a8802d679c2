"""Programs and files on the board over ssh, while its console is the witness of what happens to it."""

from __future__ import annotations

import hashlib
import os
import re
import select
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Any, Final

from labgrid.step import step
from labgrid.util import gen_marker

from fsjoule.errors import BoardError, LabError
from fsjoule.host import process
from fsjoule.lab.shell import LabgridShell
from fsjoule.model import MIB
from fsjoule.ports import Command, CommandResult

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
_GLANCE_S: Final = 0.05
# A board that has panicked says so at about the time at which its ssh server goes silent.
_LAST_WORDS_S: Final = 3.0
_END_TIMEOUT_S: Final = 60.0
_CHUNK_BYTES: Final = 65536
# The kernel under test says how much: this computer's memory and disk are not its own.
_LIMIT_BYTES: Final = 64 * MIB


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
        self._send(f"{body}; {tell}\n".encode(), shown)
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
        """See ports.Shell. A command costs little over ssh."""
        results: list[CommandResult] = []
        for command in commands:
            results.append(self.run(command.argv, timeout_s=command.timeout_s))
            if results[-1].exit_code != 0:
                break
        return tuple(results)

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

    def _send(self, lines: bytes, shown: str) -> None:
        self._said.clear()
        try:
            self._socket.sendall(lines if self._begun else _PROFILE + lines)
        except OSError as error:
            raise self._broken(shown, bytes(self._said), "") from error
        self._begun = True

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
