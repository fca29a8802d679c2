"""Signals that end a run: raised once, where it is allowed, and noted everywhere else."""

from __future__ import annotations

import contextlib
import importlib
import linecache
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import pytest
from pydantic import PlainSerializer, TypeAdapter
from results_factory import make_run

from fsjoule.host import interrupts
from fsjoule.host.interrupts import Interrupted, interruptible, shielded
from fsjoule.host.json_text import json_text
from fsjoule.model import RunStatus
from fsjoule.runs.meter import environment_target
from fsjoule.store.folder import RunFolder
from fsjoule.store.reader import load_run

_PACKAGE = Path(interrupts.__file__).parents[1]


@pytest.fixture(autouse=True)
def handled() -> Generator[None]:
    """The signals are fsjoule's, and pytest gets them back, whatever a test did. No later test knows of one."""
    before = {each: signal.signal(each, signal.default_int_handler) for each in interrupts.SIGNALS}
    interrupts.install()
    yield
    _afresh()
    interrupts.restore()
    for each, handler in before.items():
        signal.signal(each, handler)


def _afresh() -> None:
    interrupts.restore()
    for each in interrupts.SIGNALS:
        signal.signal(each, signal.default_int_handler)
    interrupts.install()


@pytest.mark.parametrize(
    ("number", "name", "code"),
    [(signal.SIGINT, "Ctrl-C", 130), (signal.SIGTERM, "SIGTERM", 143), (signal.SIGHUP, "SIGHUP", 129)],
)
def test_a_signal_ends_what_may_be_interrupted_and_is_known_afterwards(
    number: signal.Signals, name: str, code: int, said: list[str]
) -> None:
    with pytest.raises(Interrupted, match=name), interruptible():  # noqa: PT012
        signal.raise_signal(number)
        pytest.fail("it goes on")
    assert (interrupts.pending(), interrupts.exit_code()) == (name, code)
    interrupts.tell()
    interrupts.tell()
    assert said == [f"{name}: ending; please wait until the board is off and the place is free"]


def test_a_signal_waits_until_a_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import signal\ntry:\n    signal.raise_signal(signal.SIGTERM)\nexcept BaseException:\n    pass\nwhole = 1\n"
    (tmp_path / "swallows_signals.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    imported: list[Any] = []
    with pytest.raises(Interrupted, match="SIGTERM"), interruptible():  # noqa: PT012
        imported.append(importlib.import_module("swallows_signals"))
        time.sleep(60)
    assert imported[0].whole == 1


def test_a_signal_waits_until_a_json_text_is_whole() -> None:
    def signalled(value: int) -> int:
        signal.raise_signal(signal.SIGTERM)
        return value

    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[int, PlainSerializer(signalled)])
    with pytest.raises(Interrupted, match="SIGTERM"), interruptible():
        json_text(adapter, 7)


def test_a_clean_up_is_not_disturbed_by_any_number_of_signals() -> None:
    done: list[str] = []
    with pytest.raises(Interrupted):  # noqa: PT012
        try:
            with interruptible():
                try:
                    signal.raise_signal(signal.SIGTERM)
                finally:
                    signal.raise_signal(signal.SIGINT)
                    done.append("inner")
        finally:
            for each in (*interrupts.SIGNALS, signal.SIGINT):
                signal.raise_signal(each)
            done.append("outer")
    assert done == ["inner", "outer"]
    assert interrupts.pending() == "SIGTERM", "the first one is why it ended"


def test_a_signal_outside_of_such_code_is_raised_where_it_begins() -> None:
    signal.raise_signal(signal.SIGHUP)
    with pytest.raises(Interrupted, match="SIGHUP"), interruptible():
        pytest.fail("the body is entered")
    with pytest.raises(Interrupted, match="SIGHUP"):
        interrupts.check()


def test_after_a_signal_another_one_cannot_change_what_the_program_ends_with() -> None:
    with pytest.raises(Interrupted), interruptible():
        signal.raise_signal(signal.SIGTERM)
    interrupts.restore()
    for each in interrupts.SIGNALS:
        signal.raise_signal(each)
    assert interrupts.exit_code() == 143


def test_what_must_be_whole_is_done_and_interrupted_then() -> None:
    done: list[str] = []
    with pytest.raises(Interrupted), interruptible():  # noqa: PT012
        with shielded():
            signal.raise_signal(signal.SIGINT)
            with interruptible():
                done.append("a region in a shield is none")
            done.append("whole")
        pytest.fail("it goes on")
    assert done == ["a region in a shield is none", "whole"]


def test_a_swallowed_interrupt_is_raised_by_the_next_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_AGAIN_S", 0.05)
    with interruptible():
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # too early to be told from one more of the first
        time.sleep(0.06)
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)
    with pytest.raises(Interrupted), interruptible():
        pytest.fail("nor is it forgotten where the next such code begins")


def test_a_long_clean_up_is_not_taken_for_an_interrupt_that_was_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_AGAIN_S", 0.05)
    done: list[str] = []

    def clean_up(what: str) -> None:
        time.sleep(0.06)
        try:
            int(what)
        except ValueError:
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        done.append(what)

    @contextlib.contextmanager
    def mended() -> Generator[None]:
        try:
            yield
        finally:
            clean_up("generator")

    with pytest.raises(RuntimeError), interruptible(), mended():  # noqa: PT012
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as interrupt:
            clean_up("except")
            raise RuntimeError from interrupt
        finally:
            clean_up("finally")
    assert done == ["except", "finally", "generator"]


def test_without_handling_ctrl_c_is_pythons_and_a_shield_holds_it_off() -> None:
    interrupts.restore()
    done: list[str] = []
    with pytest.raises(Interrupted), shielded():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        done.append("whole")
    assert done == ["whole"]
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(signal.SIGINT)


def test_other_threads_have_no_signals() -> None:
    def work() -> None:
        with interrupts.handled(), interruptible(), shielded():
            seen.append(interrupts.pending())

    seen: list[str | None] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None]


IGNORING = """
import signal
from fsjoule.host import interrupts
with interrupts.handled(), interrupts.interruptible():
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGHUP)
    print("goes on", interrupts.pending())
try:
    with interrupts.handled(), interrupts.interruptible():
        signal.raise_signal(signal.SIGTERM)
except KeyboardInterrupt:
    print("ended by", interrupts.pending())
"""


def test_what_a_shell_ignores_for_a_background_job_stays_ignored() -> None:
    ignoring = ["sh", "-c", 'trap "" INT HUP; exec "$@"', "sh", sys.executable, "-c", IGNORING]
    done = subprocess.run(ignoring, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "goes on None\nended by SIGTERM\n"


def test_at_every_single_instruction_a_signal_leaves_regions_as_they_were() -> None:
    """A signal before each line of the way in, the body and the way out, of regions and shields in each other."""

    def work(steps: list[str]) -> None:
        try:
            with interruptible():
                steps.append("body")
                with shielded():
                    steps.append("begun")
                    with interruptible():
                        steps.append("done")
                with interruptible():
                    steps.append("inner")
        finally:
            state: Any = interrupts._state
            steps.append(f"{state.armed} {state.shields}")

    lines = 0
    for moment in count():
        _afresh()
        steps: list[str] = []
        ended = _signalled(moment, partial(work, steps))
        assert steps[-1] == "False 0", (moment, steps)
        assert ("begun" in steps) == ("done" in steps), (moment, steps)
        if ended is None:
            break
        lines += 1
        # Raised; or it came so late that it is only known.
        assert interrupts.pending() == "Ctrl-C"
        assert ended or "inner" in steps, (moment, steps)
    assert lines > 30


def _signalled(moment: int, work: Any) -> bool | None:
    """Run with a signal before the given line of Python; whether it was raised, None if there are less lines."""
    left, sent = moment, False

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left, sent
        # Not on lines of `with`: Python runs no handler between a body's end and the call of the way out.
        ours = frame.f_code.co_filename == interrupts.__file__ or (
            frame.f_code.co_filename == __file__
            and not linecache.getline(__file__, frame.f_lineno).lstrip().startswith("with")
        )
        if event == "line" and ours and frame.f_code.co_name not in ("_handle", "_raise", "_leave", "_signalled"):
            if left == 0:
                sent = True
                left -= 1
                sys.settrace(None)
                interrupts._handle(signal.SIGINT, frame)
            left -= 1
        return trace

    sys.settrace(trace)
    try:
        work()
    except Interrupted:
        return True
    finally:
        sys.settrace(None)
    return False if sent else None


def test_a_signal_at_any_call_while_a_measurement_is_stored_leaves_it_whole(tmp_path: Path) -> None:
    made = make_run(repeat=1)
    measurement = made.measurements[0]
    number, came = 1, True
    while came:
        number += 13
        _afresh()
        folder = RunFolder(tmp_path / str(number))
        folder.begin(replace(made.run, status=RunStatus.RUNNING))
        begun, left = False, number

        def at_call(frame: FrameType, event: str, _argument: object) -> None:
            nonlocal begun, left
            begun = begun or frame.f_code.co_name == "_add"
            left -= begun and event == "call" and Path(frame.f_code.co_filename).is_relative_to(_PACKAGE)
            if left == 0:
                sys.settrace(None)
                signal.raise_signal(signal.SIGTERM)

        sys.settrace(at_call)
        with contextlib.suppress(Interrupted):
            try:
                with interruptible():
                    folder.add(measurement, made.traces[1], {"console.log": b"ok\n"})
            finally:
                sys.settrace(None)
        came = interrupts.pending() is not None
        loaded = load_run(folder.path)
        assert not loaded.damaged
        assert loaded.measurements == (measurement,), number
    assert number > 100


def test_signals_at_random_moments_leave_the_clean_up_whole() -> None:
    """Up to five, by another process's clock, against a body of many small steps. The seed is 1."""
    drawn = random.Random(1)
    for _ in range(40):
        _afresh()
        cleaned = 0
        timers = [
            threading.Timer(drawn.uniform(0.0, 0.02), signal.pthread_kill, (threading.main_thread().ident, number))
            for number in drawn.choices(interrupts.SIGNALS, k=drawn.randint(1, 5))
        ]
        for timer in timers:
            timer.start()
        try:
            try:
                with interruptible():
                    end = time.monotonic() + 0.03
                    while time.monotonic() < end:
                        with shielded():
                            cleaned += 1
                            cleaned -= 1
                        with interruptible():
                            sum(range(50))
            finally:
                for _step in range(1000):
                    cleaned += 1
                    time.sleep(0)
                for timer in timers:
                    timer.join()
        except Interrupted:
            pass
        assert cleaned == 1000
        assert interrupts.pending()


def test_a_signal_ends_the_wait_for_a_coordinator_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As every command has it that reaches a meter through an environment file."""
    file = tmp_path / "env.yaml"
    file.write_text((Path(__file__).parents[2] / "env" / "virtual.yaml").read_text())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("LG_COORDINATOR", f"127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.delenv("LG_PLACE", raising=False)
        timer = threading.Timer(1.0, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM))
        timer.start()
        started_s = time.monotonic()
        with pytest.raises(Interrupted), environment_target(file):
            pytest.fail("there is no place")
        timer.join()
    assert time.monotonic() - started_s < 5


def test_a_pipe_whose_reader_is_gone_is_known(tmp_path: Path) -> None:
    reads, writes = os.pipe()
    with os.fdopen(writes, "w"), (tmp_path / "log").open("w") as log, Path(os.devnull).open("w") as nothing:
        assert not interrupts.nobody_reads(writes)
        os.close(reads)
        assert interrupts.nobody_reads(writes)
        assert not interrupts.nobody_reads(log.fileno())
        assert not interrupts.nobody_reads(nothing.fileno())
