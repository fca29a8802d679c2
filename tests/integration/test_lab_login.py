"""A board that hangs while it boots is given up when it is silent for much longer than others of its boots were."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pexpect
import pytest

from fsjoule.errors import BoardError, Part
from fsjoule.lab import boot_failures, boot_watch
from fsjoule.lab.boot_watch import BootWatch

PROMPT = "fsjoule login: "
_LIMIT_S = 20.0


class Console:
    """What a board says: text, and pauses in seconds; at the end it is silent."""

    def __init__(self, *said: str | float) -> None:
        self.say(*said)

    def say(self, *said: str | float) -> None:
        self.said = list(said)
        self.unread = ""
        self.received_bytes = 0

    def expect(self, patterns: Sequence[Any], *, timeout: float) -> tuple[int, bytes, Any, bytes]:
        timed_out = patterns.index(pexpect.TIMEOUT), b"", None, b""
        if not self.said or isinstance(self.said[0], float):
            time.sleep(min(timeout, self.said.pop(0) if self.said else timeout))  # pyright: ignore[reportArgumentType]
            return timed_out
        text = str(self.said.pop(0))
        self.received_bytes += len(text)
        self.unread += text
        for index, pattern in enumerate(patterns):
            if isinstance(pattern, str) and (match := re.search(pattern.encode(), self.unread.encode())):
                return index, b"", match, b""
        return timed_out

    def text(self) -> str:
        return self.unread

    def tail(self) -> list[str]:
        return ["Starting kernel ..."]


def board(
    console: Console,
    *,
    longest_s: float | None,
    hang_after_s: float | None,
    limit_s: float = _LIMIT_S,
    boot_loader: bool = False,
    restarts: int = 0,
) -> BootWatch:
    watched: Any = SimpleNamespace(
        board="board",
        console=console,
        recorder=console,
        shell=SimpleNamespace(login_prompt=PROMPT),
        boot_loader=boot_loader,
        flasher=None,
        boot_failure="",
        boot_timeout=limit_s,
        silence_timeout=limit_s,
        restarts=restarts,
        look=tuple,
        error=BoardError,
    )
    watch = BootWatch(watched)
    watch.longest_silence_s, watch.hang_after_s = longest_s, hang_after_s
    return watch


def test_a_boot_that_is_silent_for_much_longer_than_others_hangs() -> None:
    told = board(Console("U-Boot\n", 0.01, "Starting kernel ...\n"), longest_s=0.02, hang_after_s=0.2)
    begin = time.monotonic()
    with pytest.raises(BoardError, match=r"it hangs: silent for .* no boot before was for more than"):
        told.await_login(look_s=0.01)
    assert time.monotonic() - begin < _LIMIT_S


def test_a_panic_whose_line_comes_in_pieces_is_told_whole() -> None:
    said = ("Starting kernel ...\n", "Kernel panic - not syncing: Attempted to kill ini", "t! exitcode=0x100\r\n")
    with pytest.raises(BoardError, match=r"not boot: Kernel panic - not syncing: Attempted to kill init! exitcode="):
        board(Console(*said), longest_s=None, hang_after_s=None).await_login()


def test_a_pause_that_other_boots_had_too_is_no_hang() -> None:
    told = board(Console("U-Boot\n", 0.1, 0.1, PROMPT), longest_s=_LIMIT_S, hang_after_s=0.05)
    assert told.await_login(look_s=0.1)


@pytest.mark.parametrize(("longest_s", "hang_after_s"), [(None, 0.05), (0.01, None)])
def test_no_boot_hangs_before_one_has_come_to_its_login_or_where_nobody_asked(
    longest_s: float | None, hang_after_s: float | None
) -> None:
    told = board(Console("U-Boot\n"), longest_s=longest_s, hang_after_s=hang_after_s, limit_s=0.5)
    with pytest.raises(BoardError, match="no login within"):
        told.await_login(look_s=0.1)


def test_the_longest_pause_of_a_boot_with_a_login_is_known() -> None:
    console = Console("U-Boot\n", 0.3, "Linux\n", 0.05, PROMPT)
    watch = board(console, longest_s=None, hang_after_s=None)
    assert watch.await_login(look_s=1.0)
    assert watch.longest_silence_s is not None
    assert watch.longest_silence_s >= 0.3
    console.say("U-Boot\n", PROMPT)
    assert watch.await_login()
    assert watch.longest_silence_s >= 0.3


@pytest.mark.parametrize(
    ("said", "boot_loader", "part"), [((), True, Part.BOARD), ((), False, None), (("U-Boot",), True, None)]
)
def test_a_board_whose_boot_loader_never_spoke_has_failed_and_else_its_kernel_may_be_why(
    said: tuple[str, ...], part: Part | None, *, boot_loader: bool
) -> None:
    silent = board(Console(*said), longest_s=None, hang_after_s=None, limit_s=0.3, boot_loader=boot_loader)
    with pytest.raises(BoardError) as caught:
        silent.await_login(look_s=0.1)
    assert caught.value.part is part


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (("U-Boot SPL 2025.01\n", 0.01) * 3, r"it starts again and again: at least 3 times so far \(U-Boot SPL 2025"),
        (("\n\nU-Boot 2025.01 (a)\n\n", 0.01) * 3, r"again and again: at least 3 times so far \(U-Boot 2025.01 \(a"),
        (("[    0.0] Linux version 6.1\n", 0.01) * 5, r"again and again: at least 3 times so far \(\[    0.0\] Linux"),
        (("\x00\ufffd\x1c\ufffd" * 100, 0.01), "its console sends no text(.|\n)*the same speed"),
        (("Internal error: Oops: 5 [#1] SMP ARM\n", 0.01), "failed and went on: Internal error: Oops: 5 .#1. SMP ARM"),
    ],
)
def test_a_boot_that_comes_to_no_login_is_named_early(
    said: Sequence[str | float], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot_watch, "_GARBLED_S", 0.05)
    monkeypatch.setattr(boot_watch, "_AFTER_OOPS_S", 0.05)
    begin = time.monotonic()
    with pytest.raises(BoardError, match=f"did not boot: .*{told}"):
        board(Console(*said), longest_s=None, hang_after_s=None).await_login(look_s=0.01)
    assert time.monotonic() - begin < _LIMIT_S


def test_a_boot_loader_with_two_slots_may_start_so_often_more() -> None:
    said = (*("U-Boot SPL 2025.01\n", 0.01) * 4, PROMPT)
    assert board(Console(*said), longest_s=None, hang_after_s=None, restarts=2).await_login(look_s=0.01)
    with pytest.raises(BoardError, match="again and again: at least 4 times"):
        board(Console(*said), longest_s=None, hang_after_s=None, restarts=1).await_login(look_s=0.01)


def test_a_boot_after_one_restart_is_no_loop_and_its_colours_are_text() -> None:
    said = (
        "\nU-Boot SPL 2025.01\n\n\nU-Boot 2025.01 (a)\n\n=> version\nU-Boot 2025.01 (a)\n\ngcc\n"
        "Linux version 6.1\nLinux version 6.1\n" + "Starting kernel ...\n" * 20
    )
    assert not boot_failures.loop(said * 2)
    assert boot_failures.loop(said * 3)
    assert not boot_failures.loop(said * 3, restarts=1)
    assert boot_failures.loop(said * 4, restarts=1)
    assert not boot_failures.is_garbled(said)
