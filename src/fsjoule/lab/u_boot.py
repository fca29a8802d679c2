"""U-Boot's prompt, for flashers that work through it."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import pexpect
from labgrid import Target
from labgrid.util import gen_marker

from fsjoule.errors import BoardError, LabError, Part
from fsjoule.lab import boot_failures
from fsjoule.lab.flashers import FlashedBoard
from fsjoule.lab.shell import PANIC
from fsjoule.lab.sparse_image import SECTOR_BYTES
from fsjoule.lab.translate import lab_errors, time_limit

_GRACE_S: Final = 15.0
_COMMAND_TIMEOUT_S: Final = 60
_LOOK_S: Final = 1.0
_OFFER_TIMEOUT_S: Final = 30.0
_END_TIMEOUT_S: Final = 30.0
_LISTEN_S: Final = 0.5
_CTRL_C: Final = b"\x03"
_TIMESTAMP: Final = re.compile(r"^\[ *[0-9.]+\] *")
_MARKS: Final = 2
_ATTEMPTS: Final = 5
_ECHO_S: Final = 5.0
_MORE_S: Final = 0.05
_CRC: Final = re.compile(r"==> ([0-9a-f]{8})")
_UNKNOWN: Final = r"Unknown command '[^']*'"
_STARTED_AGAIN: Final = re.compile(r"^U-Boot (?:SPL )?20\d\d\.", re.MULTILINE)
_KERNEL: Final = re.compile(rf"^Starting kernel|Linux version \d|{PANIC}", re.MULTILINE)
_LOADER_GAVE_UP: Final = re.compile(boot_failures.FAILURE)


def stop_u_boot(labgrid: Target, uboot: Any, board: FlashedBoard) -> None:  # noqa: ANN401 - a UBootDriver
    """Interrupt the countdown of a board that has just started, with labgrid's own driver. Raises BoardError."""
    limit_s = uboot.login_timeout + _GRACE_S
    deadline = time.monotonic() + limit_s
    doing = "stopping U-Boot's countdown"
    while True:
        try:
            with time_limit(limit_s, doing, lambda: _missed(board) or board.look()), lab_errors(doing):
                labgrid.activate(uboot)
        except LabError as error:
            # On a busy computer U-Boot answers later than the two seconds that labgrid gives it.
            late = isinstance(error.__cause__, pexpect.TIMEOUT)
            if late and time.monotonic() < deadline and not _missed(board):
                continue
            raise _no_prompt(uboot, board) from error
        else:
            return


def restarted(board: FlashedBoard) -> tuple[str, ...]:
    """Whether the board has started again since its console's record was cleared, in words."""
    return ("the board started again",) if _STARTED_AGAIN.search(board.recorder.text()) else ()


def without_power(board: FlashedBoard) -> tuple[str, ...]:
    """Whether the outlet is off, in words."""
    try:
        return () if board.has_power() else ("the board has no power: its outlet is off",)
    except LabError:
        return ()


def _no_prompt(uboot: Any, board: FlashedBoard) -> BoardError:  # noqa: ANN401 - a UBootDriver
    said = board.recorder.text()
    reason = f"no prompt within {uboot.login_timeout} s"
    if not board.recorder.received_bytes:
        reason = "no output on the console"
    elif found := _LOADER_GAVE_UP.search(said):
        reason = boot_failures.reason(found[0], said)
    elif missed := _missed(board):
        [reason] = missed
    failure = board.error(f"did not come to U-Boot's prompt: {reason}")
    failure.blame(board.look())
    failure.hint = "UBootDriver's autoboot and prompt must match what U-Boot says"
    return failure


def _missed(board: FlashedBoard) -> tuple[str, ...]:
    if _KERNEL.search(board.recorder.text()):
        return ("its countdown was missed, and U-Boot started the kernel",)
    return ()


class UBootConsole:
    """Commands at U-Boot's prompt, and what U-Boot says while one of them runs."""

    def __init__(self, uboot: Any, board: FlashedBoard) -> None:  # noqa: ANN401 - a UBootDriver
        self.uboot = uboot
        self.board = board

    def run(self, command: str, failure: str, *, timeout_s: int = _COMMAND_TIMEOUT_S) -> list[str]:
        """The lines that a command says. Raises BoardError with `failure` and the last of them."""
        doing = f"waiting for U-Boot's {command!r}"
        with time_limit(timeout_s + 15.0, doing, self.board.look), lab_errors(doing):
            marker = gen_marker()
            mark = f"echo '{marker[:4]}''{marker[4:]}'"
            self._type(f'{mark}; {command}; echo "$?"; {mark};')
            try:
                _, before, _, _ = self.uboot.console.expect(self.uboot.prompt, timeout=timeout_s)
            except pexpect.TIMEOUT as error:
                raise self.board.error(f"{failure}: no answer to {command!r} within {timeout_s} s") from error
        said = [_TIMESTAMP.sub("", line).strip() for line in _text(before).replace("\r", "").split("\n")]
        if said.count(marker) != _MARKS:
            raise self.board.error(f"answered {command!r} with a line that was damaged")
        begin, end = (place for place, line in enumerate(said) if line == marker)
        *lines, code = [line for line in said[begin + 1 : end] if line] or ["no exit code"]
        if code != "0":
            telling = [line for line in lines if "error" in line.lower()] or lines or ["it said nothing"]
            raise self.board.error(f"{failure}: {telling[-1]}")
        return lines or [""]

    def find_card(self, device: str, size_bytes: int) -> int:
        """Select a card (`mmc 0`) with room for an image of this size. Returns kernel_addr_r, an address in memory.

        Raises LabError for a card that is not there or is smaller.
        """
        self.run(device.replace(" ", " dev "), "does not find its card")
        [said], [again] = (self.run("printenv kernel_addr_r", "has no kernel_addr_r")[-1:] for _ in range(2))
        if again != said:
            raise self.board.error(f"does not tell its kernel_addr_r: {said}, and then {again}")
        try:
            address = int(said.partition("=")[2], 16)
        except ValueError:
            raise LabError(f"U-Boot's kernel_addr_r is no number: {said}") from None
        last = -(-size_bytes // SECTOR_BYTES) - 1
        interface = device.split(maxsplit=1)[0]
        self.run(f"{interface} read {address:x} {last:x} 1", f"has no sector {last}, the image's last, on its card")
        return address

    def holds(self, device: str, ranges: Iterable[tuple[int, int]], content: bytes, address: int) -> bool:
        """Whether these ranges of the card have this content. They are read into the memory at `address`."""
        self.move(device, "read", ranges, address)
        return self.crc(address, len(content)) == f"{zlib.crc32(content):08x}"

    def move(
        self, device: str, verb: Literal["read", "write"], ranges: Iterable[tuple[int, int]], address: int
    ) -> None:
        """Read or write ranges of the card, first sector and number of sectors, one behind the other in memory."""
        interface = device.split(maxsplit=1)[0]
        for first, count in ranges:
            self.run(f"{interface} {verb} {address:x} {first:x} {count:x}", f"cannot {verb} its card")
            address += count * SECTOR_BYTES

    def crc(self, address: int, size_bytes: int) -> str:
        """The CRC-32 of a part of the board's memory, in eight hexadecimal digits."""
        lines = self.run(f"crc32 {address:x} {size_bytes:x}", "cannot tell a CRC")
        found = _CRC.search(" ".join(lines))
        if found is None:
            raise self.board.error(f"cannot tell a CRC: {lines[-1]}")
        return found[1]

    def offer(self, command: str, offered: str, hint: str, *, silent_s: float = 0.0) -> re.Match[bytes] | None:
        """Start a command that runs until Ctrl-C. Returns its message `offered`, or None after `silent_s` without one.

        Raises BoardError if U-Boot does not know the command, refuses it or says nothing.
        """
        self.board.recorder.clear()
        with lab_errors(f"typing {command}"):
            self._type(command)
        begin = time.monotonic()
        while (waited_s := time.monotonic() - begin) < _OFFER_TIMEOUT_S:
            with lab_errors(f"waiting for U-Boot's {command}"):
                patterns = [offered, _UNKNOWN, self.uboot.prompt, pexpect.TIMEOUT]
                index, before, match, _ = self.uboot.console.expect(patterns, timeout=_LOOK_S)
            if index == 0:
                return match
            if index == 1:
                name = command.split(maxsplit=1)[0]
                failure = self.board.error(f"has a U-Boot without the command {name} ({_text(match[0])})")
                failure.transient, failure.hint = False, hint
                raise failure
            if index == 2:  # noqa: PLR2004 - the third pattern
                said = " ".join(_text(before).replace(command, "", 1).split())
                raise self.board.error(f"refused {command!r}: {said or 'it said nothing'}")
            if causes := (*restarted(self.board), *self.board.look()):
                failure = self.board.error(f"did not answer {command!r}")
                failure.blame(causes)
                raise failure
            if silent_s and waited_s > silent_s:
                return None
        raise self.board.error(f"did not answer {command!r} within {_OFFER_TIMEOUT_S:.0f} s")

    def causes(self, command: str) -> tuple[str, ...]:
        """Why a command that was to run until Ctrl-C may have ended, in words."""
        self._listen()
        causes = list(restarted(self.board))
        if found := re.search(f"(?:{self.uboot.prompt})$", self.board.recorder.text()):
            said = " ".join(self.board.recorder.text()[: found.start()].splitlines()[-1:])
            causes.append(f"U-Boot has ended {command!r}: {said}")
        return (*causes, *self.board.look())

    def end(self, command: str) -> None:
        """End the command with Ctrl-C. Raises BoardError if U-Boot's prompt does not come back."""
        with lab_errors(f"ending {command}"):
            self.uboot.console.write(_CTRL_C)
            index, _, _, _ = self.uboot.console.expect([self.uboot.prompt, pexpect.TIMEOUT], timeout=_END_TIMEOUT_S)
        if index == 1:
            raise self.board.error(f"did not end {command!r} within {_END_TIMEOUT_S:.0f} s of Ctrl-C")

    def _type(self, line: str) -> None:
        type_line(self.uboot.console, self.uboot.prompt, line, self.board.error)

    def _listen(self) -> None:
        """Read what the board says meanwhile: nobody else does, and U-Boot may turn a wheel of characters."""
        end = time.monotonic() + _LISTEN_S
        with lab_errors("listening to the board"):
            while time.monotonic() < end:
                index, _, _, _ = self.uboot.console.expect([".+", pexpect.TIMEOUT], timeout=0.1)
                if index == 1:
                    return


def type_line(console: Any, prompt: str, line: str, error: Callable[[str], BoardError]) -> None:  # noqa: ANN401 - labgrid's
    """Type a line at a boot loader's prompt, and press Enter only when its echo is right. Raises BoardError."""
    other = rf"(?s).{{{len(line)}}}"
    for _ in range(_ATTEMPTS):
        # What stands behind the prompt, if only a space, is no echo.
        deadline = time.monotonic() + _ECHO_S
        while console.expect(["(?s).+", pexpect.TIMEOUT], timeout=_MORE_S)[0] == 0 and time.monotonic() < deadline:
            pass
        console.write(line.encode())
        same = console.expect([re.escape(line), other, pexpect.TIMEOUT], timeout=_ECHO_S)[0] == 0
        if same and console.expect([".", pexpect.TIMEOUT], timeout=_MORE_S)[0] == 1:
            console.write(b"\n")
            return
        console.write(_CTRL_C)
        console.expect([prompt, pexpect.TIMEOUT], timeout=_ECHO_S)
    failure = error(f"damages what is typed at its boot loader's prompt, {_ATTEMPTS} times: {line!r}")
    failure.part = Part.CONSOLE
    raise failure


def _text(said: Any) -> str:  # noqa: ANN401 - labgrid's bytes, untyped
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
