"""Whatever becomes of writing a card, it is told and no writer is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fsjoule.errors import LabError
from fsjoule.lab import cardwriter
from fsjoule.lab.cardwriter import StillWritingError, end_writers, write_card

# As ssh: what it starts lives on when it is killed.
REMOTE = """\
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], start_new_session=True)
sys.exit(child.wait())
"""
# As bmaptool: it has the card open until it is done, and does not care about SIGTERM.
WRITER = """\
#!{python}
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
card = open(sys.argv[-1], "r+b")
open(sys.argv[-1] + ".begun", "w").close()
time.sleep({seconds})
card.write(open(sys.argv[-2], "rb").read())
card.close()
sys.exit({code})
"""


class Exporter:
    """A labgrid resource, and its driver, of a computer that is this one."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.storage = self
        # What the exporter does instead of the search for writers.
        self.search = ""

    def wrap_command(self, command: list[str]) -> list[str]:
        if self.search and command[:2] == ["sh", "-c"]:
            command = ["sh", "-c", self.search]
        return [sys.executable, "-c", REMOTE, *command]

    def get_size(self) -> int:
        return 1


@pytest.fixture
def exporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Exporter:
    (tmp_path / "card").write_bytes(b"old")
    (tmp_path / "card.img").write_bytes(b"new")
    (tmp_path / "card.img.bmap").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def here(file: Path, _resource: object) -> str:
        return str(file)

    # labgrid's copy needs an exporter behind ssh; tests/lab has one. Files of this computer are where they are.
    monkeypatch.setattr(cardwriter, "on_exporter", here)
    return Exporter(str(tmp_path / "card"))


def writer(folder: Path, *, seconds: float, code: int = 0) -> None:
    program = folder / "bmaptool"
    program.write_text(WRITER.format(python=sys.executable, seconds=seconds, code=code))
    program.chmod(0o755)


def writing(card: Path) -> list[str]:
    """The processes that have the card open."""
    found: list[str] = []
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if descriptor.readlink() == card:
                found.append(descriptor.parts[2])
        except OSError:
            continue
    return found


def test_an_image_is_written(tmp_path: Path, exporter: Exporter) -> None:
    writer(tmp_path, seconds=0)
    write_card(exporter, tmp_path / "card.img", 60)
    assert (tmp_path / "card").read_bytes() == b"new"


def test_a_writer_that_fails_says_why(tmp_path: Path, exporter: Exporter) -> None:
    writer(tmp_path, seconds=0, code=3)
    with pytest.raises(LabError, match=r"writing card.img failed with exit code 3") as caught:
        write_card(exporter, tmp_path / "card.img", 60)
    assert caught.value.transient


def test_a_writers_own_code_is_not_shown(tmp_path: Path, exporter: Exporter) -> None:
    """As bmaptool says that a card has no size."""
    said = (
        "bmaptool: \\033[91mERROR\\033[0m: An error occurred, here is the traceback:\\n"
        'Traceback (most recent call last):\\n  File "CLI.py", line 454, in copy_command\\n    writer = Copy()\\n\\n'
        "bmaptool: \\033[91mERROR\\033[0m: it will not fit the block device\\n"
    )
    program = tmp_path / "bmaptool"
    program.write_text(f"#!/bin/sh\nprintf '{said}' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(LabError) as caught:
        write_card(exporter, tmp_path / "card.img", 60)
    why = "writing card.img failed with exit code 1: bmaptool: ERROR: it will not fit the block device"
    assert caught.value.what == why


def test_a_write_that_takes_too_long_leaves_no_writer(tmp_path: Path, exporter: Exporter) -> None:
    writer(tmp_path, seconds=300)
    begin = time.monotonic()
    with pytest.raises(LabError, match=r"writing card.img took longer than 1 s") as caught:
        write_card(exporter, tmp_path / "card.img", 1)
    assert caught.value.transient
    assert writing(tmp_path / "card") == []
    assert time.monotonic() - begin < 60
    assert (tmp_path / "card").read_bytes() == b"old"


SSHD_STOPPED = "the lab's sshd (process 7) was stopped (SIGSTOP) and does nothing"


def test_a_write_is_given_up_when_what_it_needs_has_died_and_leaves_no_writer(
    tmp_path: Path, exporter: Exporter
) -> None:
    writer(tmp_path, seconds=300)

    def diagnose() -> tuple[str, ...]:
        return (SSHD_STOPPED,) if (tmp_path / "card.begun").exists() else ()

    begin = time.monotonic()
    with pytest.raises(LabError, match="was given up") as caught:
        write_card(exporter, tmp_path / "card.img", 120, diagnose)
    assert str(caught.value) == f"{SSHD_STOPPED}: writing card.img was given up"
    assert time.monotonic() - begin < 60
    assert caught.value.transient
    assert writing(tmp_path / "card") == []
    assert (tmp_path / "card").read_bytes() == b"old"


def test_a_write_that_is_given_up_and_whose_exporter_is_silent_says_what_is_not_known(
    tmp_path: Path, exporter: Exporter
) -> None:
    """The way to the exporter is what has failed: nobody waits as long for it as for one that lives."""
    writer(tmp_path, seconds=300)

    def diagnose() -> tuple[str, ...]:
        if not (tmp_path / "card.begun").exists():
            return ()
        exporter.search = "sleep 5"
        return (SSHD_STOPPED,)

    with pytest.raises(LabError, match="was given up") as caught:
        write_card(exporter, tmp_path / "card.img", 120, diagnose, amid_faults_s=1.0)
    assert "it is not known whether the card is still being written" in str(caught.value)
    exporter.search = ""
    end_writers(exporter, exporter.path)
    assert writing(tmp_path / "card") == []


def test_a_copy_to_the_exporter_is_given_up_when_what_it_needs_has_died(
    tmp_path: Path, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(_file: Path, _resource: object) -> str:
        time.sleep(300)
        return ""

    # labgrid's copy over a connection that hangs.
    monkeypatch.setattr(cardwriter, "on_exporter", hangs)
    begin = time.monotonic()
    with pytest.raises(LabError, match="was given up") as caught:
        write_card(exporter, tmp_path / "card.img", 120, lambda: (SSHD_STOPPED,))
    assert caught.value.what == f"{SSHD_STOPPED}: copying card.img to the exporter was given up"
    assert time.monotonic() - begin < 60


@contextmanager
def interrupted_once(begun: Path) -> Generator[None]:
    """Ctrl-C as soon as there is this file."""

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    # One that our parent had ignored is ours to take here.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    waiting = threading.Thread(target=interrupt)
    waiting.start()
    try:
        yield
    finally:
        waiting.join()
        signal.signal(signal.SIGINT, before)


def test_an_interrupted_write_leaves_no_writer(tmp_path: Path, exporter: Exporter) -> None:
    writer(tmp_path, seconds=300)
    with interrupted_once(tmp_path / "card.begun"), pytest.raises(KeyboardInterrupt):
        write_card(exporter, tmp_path / "card.img", 120)
    assert writing(tmp_path / "card") == []


def test_a_writer_that_a_killed_run_has_left_is_ended_first(tmp_path: Path, exporter: Exporter) -> None:
    writer(tmp_path, seconds=300)
    left = subprocess.Popen([str(tmp_path / "bmaptool"), "copy", str(tmp_path / "card.img"), exporter.path])
    while not (tmp_path / "card.begun").exists():
        time.sleep(0.05)
    writer(tmp_path, seconds=0)
    write_card(exporter, tmp_path / "card.img", 60)
    assert left.wait(10) == -signal.SIGKILL


def test_only_who_was_started_to_write_the_card_is_ended(exporter: Exporter) -> None:
    sleeping = [sys.executable, "-c", "import time; time.sleep(300)"]
    with ExitStack() as closing:
        writers, others = (
            [closing.enter_context(subprocess.Popen([*sleeping, word])) for word in words]
            for words in (
                (exporter.path, f"of={exporter.path}"),
                (f"{exporter.path}.img", f"if={exporter.path}", f"to {exporter.path}", f"\n{exporter.path}\n"),
            )
        )
        for each in (*writers, *others):
            closing.callback(each.kill)
        end_writers(exporter, exporter.path)
        assert [each.wait(10) for each in writers] == [-signal.SIGKILL] * 2
        assert [each.poll() for each in others] == [None] * 4


def test_a_writer_that_cannot_be_ended_is_told(tmp_path: Path, exporter: Exporter) -> None:
    exporter.search = "echo 17 18; exit 1"
    with pytest.raises(StillWritingError, match="process 17, 18 of the exporter writes the card and cannot be ended"):
        end_writers(exporter, exporter.path)
    exporter.search = "echo lost >&2; exit 255"
    with pytest.raises(LabError, match="does not tell who writes the card: lost") as caught:
        write_card(exporter, tmp_path / "card.img", 60)
    assert caught.value.transient
