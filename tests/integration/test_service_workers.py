"""The worker processes of the web service, as its readers wait for them."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import uvicorn
from uvicorn.server import ServerState

from fsjoule.report.service import server
from fsjoule.report.service.asked import AskedRuns
from fsjoule.report.service.jobs import Format, Task, UnmadeError
from fsjoule.report.service.settings import Settings
from fsjoule.report.service.workers import Workers


def test_a_worker_that_starts_slowly_holds_no_reader_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A worker is this Python; a program in its place never becomes ready, however fast this computer is.
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 3600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    began_s = time.monotonic()
    with closing(Workers(Settings(str(tmp_path)), count=1, limit_s=0.2)) as workers:
        for _ in range(2):
            with pytest.raises(UnmadeError, match="is still starting"):
                asyncio.run(workers.make(Task(AskedRuns(), Format.HTML, "")))
        assert workers.counts["started"] == 1, "the same one goes on"
        assert workers.counts["late"] == 2, "a worker that was started ahead keeps nobody waiting"
    assert time.monotonic() - began_s < 60.0


def test_a_reader_is_refused_at_once_when_many_pages_are_in_hand(tmp_path: Path) -> None:
    with closing(Workers(Settings(str(tmp_path)), count=1, limit_s=60.0)) as workers:
        workers._most_in_hand = 0
        with pytest.raises(UnmadeError, match="too many pages are being made"):
            asyncio.run(workers.make(Task(AskedRuns(), Format.HTML, "")))
        assert workers.counts["refused"] == 1


class _Transport(asyncio.Transport):
    """A connection of a reader at an address."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1)})
        self.aborted = asyncio.Event()

    def abort(self) -> None:
        self.aborted.set()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Nobody reads it."""

    def close(self) -> None:
        """It has gone already."""

    def is_closing(self) -> bool:
        return False


async def _nothing(_scope: object, _receive: object, _send: object) -> None:
    """An application that is never asked."""


def test_connections_that_ask_for_nothing_and_many_of_one_computer_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_HEAD_S", 0.01)
    monkeypatch.setattr(server, "_MOST_OF_ONE", 3)

    async def readers() -> None:
        config = uvicorn.Config(_nothing)
        config.load()
        state = ServerState()
        many = [_Transport("10.0.0.7") for _ in range(4)]
        protocols = [server._Connection(config, state, {}) for _ in many]
        for protocol, transport in zip(protocols, many, strict=True):
            protocol.connection_made(transport)
        assert [each.aborted.is_set() for each in many] == [False, False, False, True]
        protocols[0].data_received(b"GET / HTTP/1.1\r\nHost: ")
        for each in many:
            await asyncio.wait_for(each.aborted.wait(), 60)
        for protocol in protocols:
            protocol.connection_lost(None)
        assert not server._Connection.open_now

    asyncio.run(readers())
