"""labgrid's own step events, kept: real steps of labgrid, over drivers that do nothing."""

from __future__ import annotations

import time

import pytest
from labgrid.protocol import ConsoleProtocol
from labgrid.step import step

from fsjoule.errors import ResultError
from fsjoule.lab import recorded_steps
from fsjoule.store.schemas import decode_steps, encode_steps


class Console(ConsoleProtocol):
    def read(self) -> None: ...

    def write(self, data: bytes) -> None: ...

    def sendline(self, line: str) -> None: ...

    def sendcontrol(self, char: str) -> None: ...

    def sendbreak(self) -> None: ...

    @step(args=["pattern"])
    def expect(self, pattern: str) -> None:
        del pattern


class Outlet:
    @step()
    def on(self) -> None:
        time.sleep(0.02)

    @step()
    def off(self) -> None:
        raise OSError("no answer")


class Board:
    def __init__(self) -> None:
        self.outlet, self.console = Outlet(), Console()

    @step(args=["argv"])
    def run(self, argv: list[str]) -> None:
        self.outlet.on()
        self.console.expect("login: ")
        del argv


def test_steps_are_kept_as_they_were_nested() -> None:
    with recorded_steps() as take:
        before_ms = round(time.time() * 1000)
        Board().run(["echo", "a b"])
        run, on = take()
        assert take() == ()
        with pytest.raises(OSError, match="no answer"):
            Outlet().off()
        (failed,) = take()
    Outlet().on()
    assert take() == ()
    assert (run.source, run.title, run.level, run.args) == ("Board", "run", 1, {"argv": "echo 'a b'"})
    assert (on.source, on.title, on.level, on.error) == ("Outlet", "on", 2, "")
    assert on.duration_ms >= 20
    assert run.duration_ms >= on.duration_ms
    assert 0 <= run.started_utc_ms - before_ms < 60_000
    assert failed.error == "no answer"
    assert decode_steps(encode_steps((run, on, failed))) == (run, on, failed)


def test_a_damaged_record_is_refused() -> None:
    with pytest.raises(ResultError, match=r"0\.level: "):
        decode_steps(b'[{"title": "on", "source": "", "level": "1", "started_utc_ms": 1, "duration_ms": 1}]')
