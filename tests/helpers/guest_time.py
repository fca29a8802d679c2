"""A board in guest time, as tests look at it: what a power-on says, and what it tells the meter."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import requests
from virtual_board import BOOT_TIMEOUT_S, PROMPT, BoardProgram, ConsoleUser
from waiting import wait_for

from fsjoule.virtual.lab.board import read_profile


def telling_commands(card: str) -> tuple[str, ...]:
    """What a run of these says depends on time, on chance and on what was done before; `card` is Linux's name."""
    return (
        "dmesg -n 1",
        "head -c 32 /dev/urandom | sha256sum",
        "ls /was-here",
        f"mkfs.ext4 -q -F -E nodiscard /dev/{card}p3 && mount /dev/{card}p3 /mnt",
        "cp -r /usr/lib/modules /mnt && umount /mnt",
        "touch /was-here; sync",
        "sleep 3.5",
        f"cat /proc/uptime /proc/schedstat /sys/block/{card}/stat",
        "sha256sum /proc/timer_list",
    )


@dataclass
class Supply:
    """The meter's end of the FIFO: all that the board tells."""

    fifo: Path
    events: bytearray = field(default_factory=bytearray)

    def __enter__(self) -> Self:
        self._fd = os.open(self.fifo, os.O_RDWR | os.O_NONBLOCK)
        self._ending = False
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        return self

    def _read(self) -> None:
        while not self._ending:
            if select.select([self._fd], [], [], 0.1)[0]:
                self.events += os.read(self._fd, 65536)

    def __exit__(self, *_: object) -> None:
        self._ending = True
        self._thread.join()
        os.close(self._fd)


def guest_time(board: BoardProgram) -> dict[str, Any]:
    return board.status()["guest_time"]


def session(
    board: BoardProgram,
    disturb: Callable[[ConsoleUser], None],
    *,
    commands: Sequence[str],
    profiled: bool = False,
    boot_timeout_s: float = BOOT_TIMEOUT_S,
) -> tuple[list[str], dict[str, Any], bytes]:
    """One power-on with commands: what they said, what the board then says of its time, and what it told the meter."""
    with Supply(board.config.feed) as supply, board.console() as console:
        if profiled:
            requests.put(f"{board.base_url}/profile", timeout=30).raise_for_status()
        board.power(on=True)
        console.login(boot_timeout_s)
        said: list[str] = []
        for command in commands:
            disturb(console)
            said.append(console.run(command).partition("\n")[2])
        wait_for(lambda: guest_time(board)["stands_still"], "it waits again")
        state = guest_time(board)
        wait_for(lambda: len(supply.events) == 32 * board.status()["supply"]["records"] + 32, "all is told")
        assert state.pop("profiled") == profiled
        if profiled:
            check_profile(board, bytes(supply.events))
        board.power(on=False)
    return said, state, bytes(supply.events)


def check_profile(board: BoardProgram, told: bytes) -> None:
    """All instructions of the boot are in its profile, which is between the marks that the meter was told."""
    profile = read_profile(requests.get(f"{board.base_url}/profile/boot", timeout=60).content)
    at = [number for number in range(0, len(told), 32) if told[number + 8] == 3]
    # A mark comes when the first byte of its line does.
    first = at[:1] + [number for before, number in pairwise(at) if told[before + 12] == ord("\n")]
    start_ns, stop_ns = (int.from_bytes(told[number : number + 8], sys.byteorder) for number in first)
    assert profile.window_ns == stop_ns - start_ns
    assert 0 < profile.busy_ns <= profile.window_ns
    assert profile.sum_ns - profile.repeated * profile.instruction_ns == profile.busy_ns
    assert 0 < profile.repeated < 10_000
    # Programs and the kernel, each in its own pages.
    kernel = profile.addresses >= 0xBF000000
    assert bool((profile.pages[kernel] == 0).all())
    assert bool((profile.pages[~kernel] != 0).all())
    assert int(profile.executed[~kernel].sum()) > 10_000
    # Each window is given once, and nothing outside of the board's own folder is.
    for window in ("boot", "7", "..%2Fstate", "../state"):
        assert requests.get(f"{board.base_url}/profile/{window}", timeout=60).status_code == 404


def impatient(console: ConsoleUser) -> None:
    """Somebody at the console who types things again, corrects them, and leaves for a while."""
    choice = random.Random(time.monotonic_ns())
    for _ in range(choice.randrange(3)):
        console.type("")
        console.expect(PROMPT)
    os.write(console._fd, b"no\x7f\x7f")
    time.sleep(choice.random())


@contextmanager
def faltering(board: BoardProgram) -> Generator[None]:
    """The board's program, which takes the console's output, stops for a moment again and again."""
    ended = threading.Event()

    def falter() -> None:
        while not ended.wait(1.0):
            os.kill(board.process.pid, signal.SIGSTOP)
            time.sleep(0.5)
            os.kill(board.process.pid, signal.SIGCONT)

    thread = threading.Thread(target=falter)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def two_sessions_agree(
    board: BoardProgram, commands: Sequence[str], *, boot_timeout_s: float = BOOT_TIMEOUT_S
) -> tuple[list[str], dict[str, Any], bytes]:
    """Two power-ons say the same, and tell the meter the same, to the nanosecond, the second one on a busy host.

    Returns one of the two.
    """
    said, state, told = session(board, lambda _: None, commands=commands, boot_timeout_s=boot_timeout_s)
    with busy_host(), faltering(board):
        again = session(board, impatient, commands=commands, boot_timeout_s=boot_timeout_s)
    again_said, again_state, again_told = again
    assert again_said == said
    # The card was anew: nobody had been there before.
    assert "No such file" in said[2]
    assert again_state == state
    assert again_told == told
    marks = b"".join(told[at + 12 : at + 13] for at in range(0, len(told), 32) if told[at + 8] == 3)
    # Before them a Raspberry Pi's U-Boot writes three lines there.
    assert marks.endswith(b"~Sboot~5184\n~Eboot~5545\n")
    return said, state, told


@contextmanager
def busy_host() -> Generator[None]:
    """A process that computes and does nothing else; the tests beside this one do the rest."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
        try:
            yield
        finally:
            spinning.kill()
