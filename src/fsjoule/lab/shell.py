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
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final, Protocol

import pexpect
from labgrid.driver import ShellDriver
from labgrid.step import step
from labgrid.util import gen_marker
from serial import SerialException

from fsjoule.errors import BoardError, LabError, Part
from fsjoule.lab.checked_line import DAMAGED, FIRST_NUMBER, NUMBERS, CheckedLine, functions
from fsjoule.lab.console import ConsoleRecorder
from fsjoule.lab.translate import lab_errors
from fsjoule.model import MIB
from fsjoule.ports import Command, CommandResult, Shell

# After this message there is nothing more to wait for. It matches raw console output.
# Up to the end of its line, which may come in pieces: the cause is told whole.
PANIC: Final = r"Kernel panic - not syncing[^\r\n]*(?=[\r\n])"

# A folder on the board: its /tmp is in memory and only ours.
_FILES: Final = "/tmp/.fsjoule"  # noqa: S108

# The line editor of busybox cuts lines at 1024 characters.
_LINE_LIMIT: Final = 1000
_CHUNK: Final = 720
# What comes back at once, where the line damages more.
_PIECE: Final = 200
# A terminal in line mode holds 4095 characters.
_LINE_BYTES: Final = 4000
_ATTEMPTS: Final = 10
_UPLOADS: Final = 3
_TRANSFER_TIMEOUT_S: Final = 60.0
_PROMPT_TIMEOUT_S: Final = 10.0
_LOOK_S: Final = 3.0
# So long a board may say nothing of a line before Enter is pressed, and so often. Enter does no harm.
_SILENT_S: Final = 3.0
_NUDGES: Final = 3
_QUIET_S: Final = 0.1
_NOTICE_S: Final = 1.0
# busybox asks the terminal where its cursor is.
_CURSOR: Final = r"(?:\x1b\[[0-9;?]*[A-Za-z])*"
# A shell's prompt for more of a line.
_OPEN_QUOTE: Final = rf"\n> {_CURSOR}$"
_ANSWERED: Final = 0
_BEGUN: Final = 1
# The kernel under test writes what is unpacked here: a MiB of zeros comes as a KiB.
_FILE_LIMIT_BYTES: Final = 64 * MIB
_SHOWN_BYTES: Final = 2000
_SHOWN_LINES: Final = 20
_SHOWN_COMMAND: Final = 300


class BoardShell(Shell, Protocol):
    """ports.Shell of a labgrid board, over whatever reaches it."""

    def upload(self, path: str, content: bytes) -> None:
        """Write a large file on the board. Raises LabError, BoardError."""
        ...


@dataclass(frozen=True, slots=True)
class _Line:
    """A command as the board's shell takes it, what it is for people, and its time limit."""

    command: str
    shown: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of a line: the exit code of its last command, and the outputs of those that ran."""

    exit_code: int
    outputs: tuple[str, ...]


@dataclass(slots=True)
class _Asking:
    """How far a line has come that the board is to run."""

    lines: Sequence[_Line]
    patient: bool = False
    smooth: bool = True
    _attempts: int = 1
    _place: int = 0
    _runs: bool = False
    _nudges: int = 0
    _deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.limit_s

    @property
    def shown(self) -> str:
        return self.lines[self._place].shown

    @property
    def limit_s(self) -> float:
        return self.lines[self._place].timeout_s

    @property
    def wait_s(self) -> float:
        known = self._runs or self.patient or self._nudges == _NUDGES
        return max(0.0, self._deadline - time.monotonic()) if known else _SILENT_S

    def begins(self, place: int) -> None:
        """The board has begun the command at this place, from 1 on. Said again, it gives no more time."""
        index = min(max(place, 1), len(self.lines)) - 1
        if not self._runs or index > self._place:
            self._place, self._runs = index, True
            self._deadline = time.monotonic() + self.limit_s

    def nudges(self) -> bool:
        """Whether to press Enter: the line's own may be lost. A command may also run whose beginning was."""
        if self._runs or self.patient or self._nudges == _NUDGES:
            return False
        self._nudges += 1
        self.smooth = False
        return True

    def again(self) -> bool:
        """Whether to type the line again."""
        self._attempts += 1
        self._runs, self._nudges, self.smooth = False, 0, False
        self._deadline = max(self._deadline, time.monotonic() + _PROMPT_TIMEOUT_S)
        return self._attempts <= _ATTEMPTS


class LabgridShell:
    """ports.Shell on a labgrid ShellDriver that is logged in. It calls `lost` when the board has left the shell.

    The board checks each line before it runs it, and its answer is checked in turn (`checked_line`).

    `diagnose` lists programs of the lab whose death makes an answer impossible; each wait asks it. The board's files
    that are ours begin with `files`. With `patient` the line loses nothing and each key counts, as on a board in guest
    time: a board that is silent is waited for, and never asked by Enter.
    """

    def __init__(
        self,
        shell_driver: ShellDriver,
        recorder: ConsoleRecorder,
        lost: Callable[[], None],
        diagnose: Callable[[], tuple[str, ...]] = tuple,
        *,
        files: str = _FILES,
        patient: bool = False,
    ) -> None:
        self._driver = shell_driver
        self._files = files
        self._patient = patient
        # A number's digits cost the board time: in guest time each power-on has the same.
        self._numbers = count(FIRST_NUMBER) if patient else NUMBERS
        self._taught = False
        self._recorder = recorder
        self._lost = lost
        self._diagnose = diagnose

    @step(args=["argv"])
    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> CommandResult:
        """See ports.Shell. Standard error is merged into the output; standard input is empty."""
        [result] = self.run_all([Command(tuple(argv), timeout_s)])
        return result

    @step(args=["commands"])
    def run_all(self, commands: Sequence[Command]) -> tuple[CommandResult, ...]:
        """See ports.Shell. Each line on the console takes 0.05 to 0.1 s, so a line has as many commands as it holds."""
        results: list[CommandResult] = []
        while len(results) < len(commands) and not (results and results[-1].exit_code):
            lines: list[_Line] = []
            for each in commands[len(results) :]:
                line = _line(each)
                if not self._fits([*lines, line]):
                    break
                lines.append(line)
            answer = self._ask(lines or [self._in_a_file(_line(commands[len(results)]))])
            for output in answer.outputs:
                results.append(CommandResult(commands[len(results)].argv, 0, output))
            results[-1] = replace(results[-1], exit_code=answer.exit_code)
        return tuple(results)

    @step(args=["argv"])
    def start(self, argv: Sequence[str]) -> None:
        """See ports.Shell. Its output comes over the console while it runs."""
        line = _line(Command(tuple(argv), _TRANSFER_TIMEOUT_S))
        if not self._fits([line]):
            line = self._in_a_file(line)
        self._recorder.clear()
        self._ask([replace(line, command=f"+{line.command}")], only_begun=True)

    @step(args=["path"])
    def put(self, path: str, content: bytes) -> None:
        """See ports.Shell. The received file is checked by its checksum."""
        text = base64.b64encode(gzip.compress(content, mtime=0)).decode()
        for begin in range(0, len(text), _CHUNK):
            add = f"echo {text[begin : begin + _CHUNK]} {'>>' if begin else '>'}{self._files}-upload"
            told = self._ask([_Line(add, f"writing {path}", _TRANSFER_TIMEOUT_S)])
            if told.exit_code != 0:
                raise LabError(f"the board cannot take a file: {told.outputs[0].strip()}", transient=True)
        if not self._unpack(path, content):
            raise self._damaged(f"{path} on its way to the board", 1)

    @step(args=["path"])
    def get(self, path: str) -> bytes:
        """See ports.Shell."""
        quoted = shlex.quote(path)
        told = self._reads(f"[ -f {quoted} ] && gzip -c <{quoted} | base64", f"cat {quoted}")
        if told.exit_code != 0:
            reason = told.outputs[0].strip() or "there is no such file"
            raise LabError(f"{path} cannot be read on the board: {reason}", transient=True)
        return _unpacked(told.outputs[0], (path,))[0]

    @step(args=["paths"])
    def get_all(self, paths: Sequence[str]) -> tuple[bytes, ...]:
        """See ports.Shell."""
        # Two programs for all of them: a slow board takes 0.05 s to start one.
        empty = f"{self._files}-empty"
        each = f'[ -s "$f" ] || f={empty}; set -- "$@" "$f"'
        read = f': >{empty}; set --; for f in {shlex.join(paths)}; do {each}; done; gzip -cf "$@" | base64'
        return _unpacked(self._reads(read, f"cat {shlex.join(paths)}").outputs[0], paths)

    @step(args=["path"])
    def upload(self, path: str, content: bytes) -> None:
        """Write a large file, without a program of the board's for each line. Not on a board in guest time.

        Raises LabError, BoardError.
        """
        for _ in range(_UPLOADS):
            with lab_errors(f"sending {path} to the board", Part.CONSOLE):
                self._send(base64.b64encode(gzip.compress(content, mtime=0)))
            if self._unpack(path, content):
                return
        raise self._damaged(f"{path} on its way to the board", _UPLOADS)

    def watch(self, shown: str, seconds: float) -> None:
        """Listen to the console while `shown` runs over something else.

        Raises BoardError at once if the board has panicked or restarted, or if a program of its lab has died.
        """
        index, _, _ = self._await([PANIC, self._driver.login_prompt], seconds)
        if index < 2:  # noqa: PLR2004 - the number of patterns
            raise self._failure(index + 1, shown, seconds)

    def lost(self, what: str) -> BoardError:
        """Note that the board has left the shell. The error for it has the console's last lines."""
        self._lost()
        return BoardError(what, console_tail=self._recorder.tail())

    def _send(self, text: bytes) -> None:
        """Fill the upload file. The board acknowledges each line, because its terminal holds only one."""
        console, marker = self._driver.console, gen_marker()
        upload = f"{self._files}-upload"
        receive = f'/^$/{{exit}}{{print >"{upload}"; printf "%d+", NR; fflush()}}'
        command = (
            f"+: >{self._files}-output; stty -echo; : >{upload}; echo '{marker}>'; "
            f"busybox awk '{receive}'; stty echo; echo '<{marker}'"
        )
        self._ask([_Line(command, "an upload", _TRANSFER_TIMEOUT_S)], only_begun=True)
        self._acknowledged(rf"{marker}>\s", "start")
        for number, begin in enumerate(range(0, len(text), _LINE_BYTES), 1):
            console.write(text[begin : begin + _LINE_BYTES] + b"\n")
            self._acknowledged(rf"\b{number}\+", f"line {number}")
        console.write(b"\n")
        self._acknowledged(rf"<{marker}\r?\n", "end")
        self._settle(quietly=False)

    def _acknowledged(self, pattern: str, what: str) -> None:
        index, _, _ = self._await([pattern, PANIC, self._driver.login_prompt], _TRANSFER_TIMEOUT_S)
        if index:
            raise self._failure(index, f"{what} of an upload", _TRANSFER_TIMEOUT_S)

    def _fits(self, lines: Sequence[_Line]) -> bool:
        return len(self._checked(lines).text) <= _LINE_LIMIT

    def _checked(self, lines: Sequence[_Line]) -> CheckedLine:
        commands = [line.command for line in lines]
        return CheckedLine.of(commands, PANIC, self._driver.login_prompt, numbers=self._numbers)

    def _in_a_file(self, line: _Line) -> _Line:
        """A command that is too long for a line."""
        self.put(f"{self._files}-script", line.command.encode() + b"\n")
        return replace(line, command=f"sh {self._files}-script")

    def _unpack(self, path: str, content: bytes) -> bool:
        """Write what was uploaded to its place. Returns whether it is `content`."""
        quoted = shlex.quote(path)
        told = self._reads(
            f"base64 -d <{self._files}-upload | gzip -dc >{quoted} && sha256sum <{quoted}", f"writing {path}"
        )
        if told.exit_code != 0:
            raise LabError(f"{path} cannot be written on the board: {told.outputs[0].strip()}", transient=True)
        return told.outputs[0].split()[:1] == [hashlib.sha256(content).hexdigest()]

    def _reads(self, command: str, shown: str) -> _Ended:
        return self._ask([_Line(command, shown, _TRANSFER_TIMEOUT_S)])

    def _ask(self, lines: Sequence[_Line], *, only_begun: bool = False) -> _Ended:
        """Have the board run commands until one fails, and type the line again until its answer arrives whole.

        With `only_begun` return as soon as the board says that it has begun. Raises BoardError, LabError.
        """
        checked = self._checked(lines)
        driver = self._driver
        # A prompt as the last that came means that nothing runs any more; `> ` waits for the end of a quote.
        patterns = [checked.answered, checked.begun, PANIC, driver.login_prompt, DAMAGED]
        patterns += [] if self._patient else [rf"(?:{driver.prompt}){_CURSOR}$", _OPEN_QUOTE]
        with lab_errors(f"running {lines[0].shown!r} on the board", Part.CONSOLE):
            self._type(checked)
            asking = _Asking(lines, self._patient)
            while True:
                index, before, match = self._await(patterns, asking.wait_s)
                if index == _ANSWERED and (answer := checked.read(before, match)):
                    self._settle(quietly=not asking.smooth)
                    if answer.exit_code is None:
                        raise BoardError(f"{asking.shown!r} was interrupted on the board")
                    return _Ended(answer.exit_code, answer.outputs)
                if index == _BEGUN:
                    asking.begins(int(match[1]))
                    if only_begun:
                        return _Ended(0, ())
                    if not asking.wait_s:
                        raise self._failure(len(patterns), asking.shown, asking.limit_s)
                elif index in {2, 3}:
                    raise self._failure(index - 1, asking.shown, asking.limit_s)
                elif index < len(patterns):
                    self._type_again(checked, asking, patterns[index], before)
                elif asking.nudges():
                    self._enter()
                else:
                    raise self._failure(index, asking.shown, asking.limit_s)

    def _type_again(self, line: CheckedLine, asking: _Asking, pattern: str, before: bytes) -> None:
        if not asking.again():
            raise self._damaged(f"{asking.shown!r} or its answer", _ATTEMPTS)
        if pattern in {line.answered, DAMAGED}:
            self._settle(quietly=False)
        elif pattern == _OPEN_QUOTE:
            self._interrupt()
        self._taught = self._taught and b"not found" not in before
        self._type(line)

    def _type(self, line: CheckedLine) -> None:
        if not self._taught:
            self._teach()
        self._driver.console.sendline(line.text)

    def _teach(self) -> None:
        """Give the board's shell its functions: it shows each piece before it takes them all."""
        text = f"{'Fn=; ' if self._patient else ''}{functions(f'{self._files}-output')}"
        for size, attempts in ((len(text), 2), (_PIECE, _ATTEMPTS)):
            pieces = {f"F{begin}": text[begin : begin + size] for begin in range(0, len(text), size)}
            told = (self._tells(f"{name}='{piece}'", f"${name}", piece, attempts) for name, piece in pieces.items())
            if all(told) and self._tells(f'eval "{"".join(f"${name}" for name in pieces)}"', "", "", attempts):
                self._taught = True
                return
        raise self._damaged("the functions that check each command", _ATTEMPTS)

    def _tells(self, command: str, words: str, wanted: str, attempts: int) -> bool:
        """Whether the board prints what is wanted for these words after a command."""
        for _ in range(attempts):
            marker = gen_marker()
            line = f"""{command}; printf '%s\\n' "<{marker[:4]}""{marker[4:]}:{words}>\""""
            self._driver.console.sendline(line)
            whole, damaged = re.escape(f"<{marker}:{wanted}>"), rf"<{marker}:.*{self._driver.prompt}"
            limit_s = _TRANSFER_TIMEOUT_S if self._patient else _SILENT_S
            patterns = [whole, PANIC, self._driver.login_prompt, damaged]
            index, _, _ = self._await(patterns, limit_s)
            if index == 0:
                self._settle(quietly=False)
                return True
            if index in {1, 2}:
                raise self._failure(index, "the first command", limit_s)
            # A board that shows no prompt either is silent: no further try makes it answer.
            if not self._interrupt() and index == len(patterns):
                raise self.lost("the board does not answer: it says nothing to the first command, and shows no prompt")
        return False

    def _settle(self, *, quietly: bool) -> None:
        """Read on to the prompt, or, `quietly`, until the board says no more: there may be several prompts."""
        expect = self._driver.console.expect
        deadline = time.monotonic() + (_TRANSFER_TIMEOUT_S if self._patient else _PROMPT_TIMEOUT_S)
        while quietly and time.monotonic() < deadline:
            if expect([".+", pexpect.TIMEOUT], _QUIET_S)[0] == 1:
                return
        while not quietly and time.monotonic() < deadline:
            if expect([self._driver.prompt, pexpect.TIMEOUT], _NOTICE_S)[0] == 0:
                return
            if not self._patient:
                self._enter()

    def _enter(self) -> None:
        """Press Enter, and Ctrl-Q: a damaged character may have been Ctrl-S, and busybox's Ctrl-C does not undo it."""
        self._driver.console.write(b"\n\x11")

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
            if causes := self._diagnose():
                self._lost()  # what is on its console is not why
                silent = BoardError("the board does not answer any more")
                silent.blame_lab(causes)
                raise silent
            if left_s <= _LOOK_S:
                return index, before, match

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
            return BoardError(what, console_tail=self._printed())
        else:
            what = f"{shown!r} did not end within {timeout_s:.0f} s, and the board does not answer any more"
        return self.lost(what)

    def _printed(self) -> list[str]:
        """The last lines of what the command that was interrupted has printed."""
        output, last = f"{self._files}-output", f"{self._files}-last"
        try:
            told = self._reads(f"+tail -c {_SHOWN_BYTES} {output} >{last}; mv {last} {output}", "tail")
        except LabError:
            return self._recorder.tail()
        return told.outputs[0].splitlines()[-_SHOWN_LINES:] or ["(it has printed nothing)"]

    def _damaged(self, what: str, times: int) -> LabError:
        hint = "the board's UART or the adapter loses characters: a lower speed, hardware handshake, a shorter cable"
        return LabError(f"the console damaged {what}, {times} times", transient=True, part=Part.CONSOLE, hint=hint)

    def _interrupt(self) -> bool:
        """Press Ctrl-C. Returns whether the prompt came back."""
        console = self._driver.console
        deadline = time.monotonic() + _PROMPT_TIMEOUT_S
        try:
            while time.monotonic() < deadline:
                marker = gen_marker()
                console.sendcontrol("c")
                # dash notices it at the end of a line, and throws that away.
                self._enter()
                console.expect([self._driver.prompt, pexpect.TIMEOUT], timeout=_NOTICE_S)
                console.sendline(f"echo '{marker[:4]}''{marker[4:]}'")
                prompt = rf"{marker}\s+{self._driver.prompt}"
                if console.expect([prompt, pexpect.TIMEOUT], timeout=_SILENT_S)[0] == 0:
                    return True
        except (pexpect.EOF, OSError):
            pass
        return False


def _line(command: Command) -> _Line:
    text = shlex.join(command.argv)
    return _Line(text, text if len(text) <= _SHOWN_COMMAND else f"{text[:_SHOWN_COMMAND]}...", command.timeout_s)


def _unpacked(text: str, paths: Sequence[str]) -> tuple[bytes, ...]:
    """Contents of files that came compressed, one behind the other, as text. Raises LabError for too large a one."""
    contents: list[bytes] = []
    try:
        packed = base64.b64decode(text, validate=False)
        for path in paths:
            member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
            contents.append(member.decompress(packed, _FILE_LIMIT_BYTES))
            if not member.eof:
                large = len(contents[-1]) == _FILE_LIMIT_BYTES
                what = f"is larger than {_FILE_LIMIT_BYTES // MIB} MiB" if large else "came incomplete"
                raise LabError(f"{path} of the board {what}", transient=not large)
            packed = member.unused_data
    except (binascii.Error, zlib.error) as error:
        raise LabError(f"{' '.join(paths)} of the board cannot be unpacked: {error}", transient=True) from error
    return tuple(contents)
