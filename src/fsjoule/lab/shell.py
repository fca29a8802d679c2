"""Programs and small files on the board, over its serial console."""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import re
import shlex
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pexpect
from labgrid.driver import ShellDriver
from labgrid.step import step
from labgrid.util import gen_marker
from serial import SerialException

from fsjoule.errors import BoardError, LabError, Part
from fsjoule.lab.console import ConsoleRecorder
from fsjoule.lab.translate import lab_errors
from fsjoule.ports import Command, CommandResult, Shell

# After this message there is nothing more to wait for. It matches raw console output.
# Up to the end of its line, which may come in pieces: the cause is told whole.
PANIC: Final = r"Kernel panic - not syncing[^\r\n]*(?=[\r\n])"

# Files on the board, whose /tmp is in memory and only ours. A program's output stays there until it ends: the console
# carries nothing while it runs, and kernel messages cannot get into the output.
_OUTPUT: Final = "/tmp/.fsjoule-output"  # noqa: S108
_SCRIPT: Final = "/tmp/.fsjoule-script"  # noqa: S108
_UPLOAD: Final = "/tmp/.fsjoule-upload"  # noqa: S108
_EMPTY: Final = "/tmp/.fsjoule-empty"  # noqa: S108

# The line editor of busybox cuts lines at 1024 characters.
_LINE_LIMIT: Final = 1000
_CHUNK: Final = 720
# A terminal in line mode holds 4095 characters.
_LINE_BYTES: Final = 4000
_ATTEMPTS: Final = 3
_TRANSFER_TIMEOUT_S: Final = 60.0
_PROMPT_TIMEOUT_S: Final = 10.0
_LOOK_S: Final = 3.0


class BoardShell(Shell, Protocol):
    """ports.Shell of a labgrid board, over whatever reaches it."""

    def upload(self, path: str, content: bytes) -> None:
        """Write a large file on the board. Raises LabError, BoardError."""
        ...


@dataclass(frozen=True, slots=True)
class _Line:
    """A command as the board's shell takes it, what it is for people, and its time limit."""

    command: str
    argv: tuple[str, ...]
    timeout_s: float


class LabgridShell:
    """ports.Shell on a labgrid ShellDriver that is logged in. It calls `lost` when the board has left the shell.

    `diagnose` lists programs of the lab whose death makes an answer impossible; each wait asks it.
    """

    def __init__(
        self,
        shell_driver: ShellDriver,
        recorder: ConsoleRecorder,
        lost: Callable[[], None],
        diagnose: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._driver = shell_driver
        self._recorder = recorder
        self._lost = lost
        self._diagnose = diagnose

    @step(args=["argv"])
    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> CommandResult:
        """See ports.Shell. Standard error is merged into the output; standard input is empty."""
        return self._run(self._line(argv), tuple(argv), timeout_s)

    @step(args=["commands"])
    def run_all(self, commands: Sequence[Command]) -> tuple[CommandResult, ...]:
        """See ports.Shell. Each line on the console takes 0.05 to 0.1 s, so a line has as many commands as it holds."""
        lines = [_Line(self._line(each.argv), each.argv, each.timeout_s) for each in commands]
        return tuple(self._run_lines(lines))

    @step(args=["argv"])
    def start(self, argv: Sequence[str]) -> None:
        """See ports.Shell. Its output comes over the console while it runs."""
        line = self._line(argv)
        self._recorder.clear()
        with lab_errors(f"starting {argv[0]!r} on the board", Part.CONSOLE):
            self._driver.console.sendline(line)

    @step(args=["path"])
    def put(self, path: str, content: bytes) -> None:
        """See ports.Shell. The received file is checked by its checksum."""
        for _ in range(_ATTEMPTS):
            if self._put_once(path, content):
                return
        raise self._damaged(f"{path} on its way to the board")

    @step(args=["path"])
    def get(self, path: str) -> bytes:
        """See ports.Shell. The received file is checked by gzip's own checksum."""
        quoted = shlex.quote(path)
        for _ in range(_ATTEMPTS):
            command = f"[ -f {quoted} ] && gzip -c < {quoted} | base64"
            result = self._run(command, ("cat", path), _TRANSFER_TIMEOUT_S)
            if result.exit_code != 0:
                reason = result.stdout.strip() or "there is no such file"
                raise LabError(f"{path} cannot be read on the board: {reason}", transient=True)
            if (content := _unpacked(result.stdout)) is not None:
                return content
        raise self._damaged(f"{path} on its way from the board")

    @step(args=["paths"])
    def get_all(self, paths: Sequence[str]) -> tuple[bytes, ...]:
        """See ports.Shell. If not all of them arrive, each is read by itself."""
        told = self._run(_packing(paths), ("cat", *paths), _TRANSFER_TIMEOUT_S)
        contents = _unpacked_all(told.stdout)
        return contents if len(contents) == len(paths) else tuple(map(self._get_or_nothing, paths))

    @step(args=["path"])
    def upload(self, path: str, content: bytes) -> None:
        """Write a large file, without a program of the board's for each line. Not on a board in guest time.

        Raises LabError, BoardError.
        """
        for _ in range(_ATTEMPTS):
            with lab_errors(f"sending {path} to the board", Part.CONSOLE):
                self._send(base64.b64encode(gzip.compress(content, mtime=0)))
            if self._unpack(path, content):
                return
        raise self._damaged(f"{path} on its way to the board")

    def watch(self, shown: str, seconds: float) -> None:
        """Listen to the console while `shown` runs over something else.

        Raises BoardError at once if the board has panicked or restarted, or if a program of its lab has died.
        """
        index, _, _ = self._await([PANIC, self._driver.login_prompt], seconds)
        if index < 2:  # noqa: PLR2004 - the number of patterns
            raise self._failure(index + 1, shown, seconds)
        if causes := self._diagnose():
            raise self._silent(causes)

    def lost(self, what: str) -> BoardError:
        """Note that the board has left the shell. The error for it has the console's last lines."""
        self._lost()
        return BoardError(what, console_tail=self._recorder.tail())

    def _get_or_nothing(self, path: str) -> bytes:
        return self.get(path) if self.run(("test", "-s", path)).exit_code == 0 else b""

    def _send(self, text: bytes) -> None:
        """Fill the upload file. The board acknowledges each line, because its terminal holds only one."""
        console, marker = self._driver.console, gen_marker()
        receive = f'/^$/{{exit}}{{print >"{_UPLOAD}"; printf "%d+", NR; fflush()}}'
        console.sendline(
            f"M='{marker[:4]}''{marker[4:]}'; stty -echo; : >{_UPLOAD}; echo \"$M>\"; "
            f"busybox awk '{receive}'; stty echo; echo \"<$M\""
        )
        self._acknowledged(rf"{marker}>\s", "start")
        for number, begin in enumerate(range(0, len(text), _LINE_BYTES), 1):
            console.write(text[begin : begin + _LINE_BYTES] + b"\n")
            self._acknowledged(rf"\b{number}\+", f"line {number}")
        console.write(b"\n")
        self._acknowledged(rf"<{marker}\r?\n", "end")
        console.expect(self._driver.prompt, timeout=_PROMPT_TIMEOUT_S)

    def _acknowledged(self, pattern: str, what: str) -> None:
        index, _, _ = self._await([pattern, PANIC, self._driver.login_prompt], _TRANSFER_TIMEOUT_S)
        if index:
            raise self._failure(index, f"{what} of an upload", _TRANSFER_TIMEOUT_S)

    def _line(self, argv: Sequence[str]) -> str:
        """The command as one line of the board's shell. A long or multi-line command goes into a file first."""
        command = shlex.join(argv)
        # Not every shell joins lines: on a board in guest time it evaluates each line by itself.
        if "\n" in command or len(_wrapped(command, "12345678")) > _LINE_LIMIT:
            self.put(_SCRIPT, command.encode() + b"\n")
            command = f"sh {_SCRIPT}"
        return command

    def _put_once(self, path: str, content: bytes) -> bool:
        text = base64.b64encode(gzip.compress(content, mtime=0)).decode()
        redirection = ">"
        for begin in range(0, len(text), _CHUNK):
            self._checked(f"echo {text[begin : begin + _CHUNK]} {redirection} {_UPLOAD}")
            redirection = ">>"
        return self._unpack(path, content)

    def _unpack(self, path: str, content: bytes) -> bool:
        """Write what was uploaded to its place. Returns whether it is `content`."""
        quoted = shlex.quote(path)
        unpack = f"base64 -d < {_UPLOAD} | gzip -dc > {quoted} && sha256sum < {quoted}"
        unpacked = self._run(unpack, (), _TRANSFER_TIMEOUT_S)
        if unpacked.exit_code != 0:
            raise LabError(f"{path} cannot be written on the board: {unpacked.stdout.strip()}", transient=True)
        return unpacked.stdout.split()[:1] == [hashlib.sha256(content).hexdigest()]

    def _run_lines(self, lines: Sequence[_Line]) -> list[CommandResult]:
        """Run commands until one fails, as many as possible at once."""
        results: list[CommandResult] = []
        begin = 0
        while begin < len(lines) and not (results and results[-1].exit_code):
            end = begin + 1
            while end < len(lines) and len(_chained(lines[begin : end + 1], "12345678")) <= _LINE_LIMIT:
                end += 1
            results += self._run_at_once(lines[begin:end])
            begin = end
        return results

    def _run_at_once(self, lines: Sequence[_Line]) -> list[CommandResult]:
        if len(lines) == 1:
            return [self._run(lines[0].command, lines[0].argv, lines[0].timeout_s)]
        console, marker = self._driver.console, gen_marker()
        results: list[CommandResult] = []
        shown = ""
        with lab_errors(f"running {shlex.join(lines[0].argv)!r} and more on the board", Part.CONSOLE):
            console.sendline(_chained(lines, marker))
            for line in lines:
                shown = shlex.join(line.argv)
                index, before, match = self._await(
                    [rf"<{marker}:(\d+)\r?\n", PANIC, self._driver.login_prompt], line.timeout_s
                )
                if index:
                    raise self._failure(index, shown, line.timeout_s)
                results.append(_result(line.argv, before, match, marker))
                if results[-1].exit_code:
                    break
            console.expect(self._driver.prompt, timeout=_PROMPT_TIMEOUT_S)
        return results

    def _checked(self, command: str) -> None:
        result = self._run(command, (), _TRANSFER_TIMEOUT_S)
        if result.exit_code != 0:
            raise LabError(f"the board cannot take a file: {result.stdout.strip()}", transient=True)

    def _run(self, command: str, argv: tuple[str, ...], timeout_s: float) -> CommandResult:
        console = self._driver.console
        marker = gen_marker()
        shown = shlex.join(argv) or command[:60]
        with lab_errors(f"running {shown!r} on the board", Part.CONSOLE):
            console.sendline(_wrapped(command, marker))
            index, before, match = self._await([rf"<{marker}:(\d+)\r?\n", PANIC, self._driver.login_prompt], timeout_s)
            if index == 0:
                console.expect(self._driver.prompt, timeout=_PROMPT_TIMEOUT_S)
        if index == 0:
            return _result(argv, before, match, marker)
        raise self._failure(index, shown, timeout_s)

    def _await(self, patterns: Sequence[str], timeout_s: float) -> tuple[int, bytes, re.Match[bytes]]:
        """Wait for a pattern. Returns (index, text before, match); an extra index is a timeout. Raises BoardError."""
        begin_s = time.monotonic()
        deadline = begin_s + timeout_s
        while True:
            asked_s = time.monotonic()
            left_s = max(0.0, deadline - asked_s)
            limit_s = min(_LOOK_S, left_s)
            try:
                index, before, match, _ = self._driver.console.expect([*patterns, pexpect.TIMEOUT], limit_s)
            except (SerialException, pexpect.EOF) as error:
                raise self._disconnected(asked_s - begin_s) from error
            if index < len(patterns):
                return index, before, match
            if time.monotonic() - asked_s < limit_s / 2:
                # This is how labgrid shows a connection that the other side has closed.
                raise self._disconnected(asked_s - begin_s)
            if left_s <= _LOOK_S:
                return index, before, match
            if causes := self._diagnose():
                raise self._silent(causes)

    def _silent(self, causes: Sequence[str]) -> BoardError:
        """The error for a board whose lab has died: what is on its console is not why."""
        self._lost()
        error = BoardError("the board does not answer any more")
        error.blame_lab(causes)
        return error

    def _disconnected(self, after_s: float) -> BoardError:
        error = self.lost(f"the console's connection was lost after {after_s:.0f} s")
        error.blame_lab(self._diagnose())
        error.part = error.part or Part.CONSOLE
        return error

    def _failure(self, index: int, shown: str, timeout_s: float) -> BoardError:
        if index == 1:
            what = f"the kernel panicked while {shown!r} ran"
        elif index == 2:  # noqa: PLR2004 - the order of the patterns
            what = f"the board restarted or logged us out while {shown!r} ran"
        elif self._interrupt():
            what = f"{shown!r} did not end within {timeout_s:.0f} s and was interrupted"
            return BoardError(what, console_tail=self._recorder.tail())
        else:
            what = f"{shown!r} did not end within {timeout_s:.0f} s, and the board does not answer any more"
        return self.lost(what)

    def _damaged(self, what: str) -> LabError:
        return LabError(f"the console damaged {what}, {_ATTEMPTS} times", transient=True, part=Part.CONSOLE)

    def _interrupt(self) -> bool:
        """Press Ctrl-C. Returns whether the prompt came back."""
        console, marker = self._driver.console, gen_marker()
        try:
            console.sendcontrol("c")
            console.sendline(f"echo '{marker[:4]}''{marker[4:]}'")
            console.expect(rf"{marker}\s+{self._driver.prompt}", timeout=_PROMPT_TIMEOUT_S)
        except (pexpect.TIMEOUT, pexpect.EOF, OSError):
            return False
        return True


def _wrapped(command: str, marker: str) -> str:
    """The line to type. It has the marker in two parts, so that its echo does not look like the answer."""
    return (
        f"M='{marker[:4]}''{marker[4:]}'; ( {command} ) </dev/null >{_OUTPUT} 2>&1; R=$?; "
        f'echo "$M>"; cat {_OUTPUT}; echo "<$M:$R"'
    )


def _chained(lines: Sequence[_Line], marker: str) -> str:
    """One line that runs commands until one fails. Each answers as one of `_wrapped` does."""
    run = f'( eval "$1" ) </dev/null >{_OUTPUT} 2>&1; R=$?; echo "$M>"; cat {_OUTPUT}; echo "<$M:$R"; return $R'
    chain = " && ".join(f"fsj {shlex.quote(line.command)}" for line in lines)
    return f"M='{marker[:4]}''{marker[4:]}'; fsj() {{ {run}; }}; {chain}"


def _result(argv: tuple[str, ...], before: bytes, match: re.Match[bytes], marker: str) -> CommandResult:
    """A command's result from its console output, up to the marker behind it."""
    output = before.rpartition(f"{marker}>".encode())[2].decode(errors="replace")
    return CommandResult(argv, int(match.group(1)), output.replace("\r\n", "\n").removeprefix("\n"))


def _unpacked(text: str) -> bytes | None:
    """The contents of a file that came compressed, as text; None if it was damaged on its way."""
    try:
        return gzip.decompress(base64.b64decode(text, validate=False))
    except (binascii.Error, EOFError, OSError, zlib.error):
        return None


def _packing(paths: Sequence[str]) -> str:
    """Prints files for `_unpacked_all`, missing ones as empty. A slow board takes 0.05 s to start a program: two do."""
    each = f'[ -s "$f" ] || f={_EMPTY}; set -- "$@" "$f"'
    return f': >{_EMPTY}; set --; for f in {shlex.join(paths)}; do {each}; done; gzip -cf "$@" | base64'


def _unpacked_all(text: str) -> tuple[bytes, ...]:
    """Contents of files that came compressed, one behind the other, as text: up to the first that was damaged."""
    contents: list[bytes] = []
    try:
        packed = base64.b64decode(text, validate=False)
        while packed:
            member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
            content = member.decompress(packed)
            if not member.eof:
                break
            contents.append(content)
            packed = member.unused_data
    except (binascii.Error, zlib.error):
        pass
    return tuple(contents)
