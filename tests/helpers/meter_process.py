"""The meter's simulator as a process, its terminals, and what holds for every stream."""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from waiting import wait_for

from fsjoule.host import process
from fsjoule.meter.links.streams import holders
from fsjoule.meter.protocol import commands
from fsjoule.meter.protocol.commands import MeterCommand
from fsjoule.meter.protocol.frames import (
    Frame,
    FrameDecoder,
    InfoFrame,
    MarkFrame,
    ReplyFrame,
    SamplesFrame,
)
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.model import Ina219Trace
from fsjoule.virtual.board.power import FeedWriter

LIMIT_S = 120.0


@dataclass
class Reader:
    """Reads the stream into frames, and sends commands."""

    fd: int
    decoder: FrameDecoder = field(default_factory=FrameDecoder)
    frames: list[Frame] = field(default_factory=list[Frame])
    sent: int = 0

    def read_until(self, enough: Callable[[list[Frame]], bool]) -> list[Frame]:
        """All frames so far, as soon as they are enough."""
        deadline = time.monotonic() + LIMIT_S
        while not enough(self.frames):
            assert time.monotonic() < deadline, self._state()
            if select.select([self.fd], [], [], 1.0)[0]:
                self.frames += self.decoder.feed(os.read(self.fd, 65536))
        return self.frames

    def _state(self) -> str:
        """What came instead, and who else has the terminal open, as who takes it for another does."""
        also = ", ".join(map(str, holders(os.ttyname(self.fd)))) or "nobody"
        return f"only {len(self.frames)} frames came: {self.decoder.counters}; {also} has the terminal open, too"

    def read_samples(self, count: int) -> list[Frame]:
        """Read on until there are this many samples, and what the meter says of itself."""
        self.read_until(lambda frames: len(values(frames)) >= count)
        return self.read_until(lambda frames: bool(infos(frames)))

    def read_marks(self, count: int) -> list[Frame]:
        """Read on until there are this many marks."""
        return self.read_until(lambda frames: sum(isinstance(frame, MarkFrame) for frame in frames) >= count)

    def command(self, command: MeterCommand, payload: bytes = b"") -> ReplyFrame:
        """Send a command and read on until it is answered."""
        self.sent += 1
        os.write(self.fd, commands.encode(command, self.sent, payload))
        return self.read_reply(self.sent)

    def read_reply(self, request: int) -> ReplyFrame:
        """Read on until the command with this number is answered."""

        def replies(frames: list[Frame]) -> list[ReplyFrame]:
            return [frame for frame in frames if isinstance(frame, ReplyFrame) and frame.request == request]

        (reply,) = replies(self.read_until(lambda frames: bool(replies(frames))))
        return reply

    def info(self) -> InfoFrame:
        """What the meter said of itself last."""
        return infos(self.frames)[-1]

    def trace(self) -> Ina219Trace:
        builder = TraceBuilder()
        builder.add(self.frames)
        return builder.build()


@dataclass
class Simulator:
    process: subprocess.Popen[bytes]
    stream: Path
    marks: Path
    log: Path

    @contextmanager
    def reader(self) -> Generator[Reader]:
        fd = os.open(self.stream, os.O_RDWR | os.O_NOCTTY)
        try:
            yield Reader(fd)
        finally:
            os.close(fd)

    def send(self, text: bytes) -> None:
        self._write(self.marks, text)

    def set_pin(self, levels: bytes) -> None:
        """Levels of the mark pin, as the board's program writes them; the simulator needs `--pin-link`."""
        self._write(self.marks.with_name("pin"), levels)

    def _write(self, terminal: Path, text: bytes) -> None:
        fd = os.open(terminal, os.O_WRONLY | os.O_NOCTTY)
        try:
            os.write(fd, text)
        finally:
            os.close(fd)


@contextmanager
def running(program: Path, folder: Path, *options: str) -> Generator[Simulator]:
    stream, marks, log = folder / "stream", folder / "marks", folder / "log"
    argv = [program, "--stream-link", stream, "--marks-link", marks, *options]
    there = renewed(stream, marks)
    started = process.start([str(part) for part in argv], log=log)
    try:
        wait_for(there, lambda: f"no terminals: {log.read_text()}")
        yield Simulator(started, stream, marks, log)
    finally:
        process.stop(started)


def renewed(*links: Path) -> Callable[[], bool]:
    """Tells whether all these links have come, or have been replaced, since this was called, and lead to terminals.

    A meter that was killed leaves its links behind. They lead nowhere, until somebody else gets a terminal of the same
    number: then they lead to that one, which can be another meter.
    """

    def inode(link: Path) -> int | None:
        return link.lstat().st_ino if link.is_symlink() else None

    before = {link: inode(link) for link in links}
    return lambda: all(link.exists() and inode(link) != before[link] for link in links)


def infos(frames: list[Frame]) -> list[InfoFrame]:
    return [frame for frame in frames if isinstance(frame, InfoFrame)]


def values(frames: list[Frame]) -> list[tuple[int, int]]:
    """Raw shunt and bus of each sample."""
    return [
        pair
        for frame in frames
        if isinstance(frame, SamplesFrame)
        for pair in zip(frame.shunt_raw.tolist(), frame.bus_raw.tolist(), strict=True)
    ]


def check_energy(trace: Ina219Trace) -> None:
    """Between any two checkpoints the samples add up to the meter's own cumulative energy."""
    raw = np.concatenate([[0], np.cumsum(trace.shunt_raw.astype(np.int64) * trace.bus_raw)])
    at = np.searchsorted(trace.ticks, trace.checkpoint_ticks)
    assert (raw[at] - raw[at[0]]).tolist() == (trace.checkpoint_raw - trace.checkpoint_raw[0]).tolist()


def check_order(frames: list[Frame]) -> None:
    """Marks and samples are in the order of their times, to one tick."""
    newest_us = 0.0
    tick_us = infos(frames)[0].info.tick_us
    for frame in frames:
        if isinstance(frame, MarkFrame):
            assert frame.time_us > newest_us - tick_us
            newest_us = frame.time_us
        elif isinstance(frame, SamplesFrame):
            assert frame.first_time_us >= newest_us - tick_us
            newest_us = frame.first_time_us + tick_us * frame.count


def last_stream(frames: list[Frame]) -> Ina219Trace:
    newest = infos(frames)[-1].status.stream_id
    begin = next(
        at for at, frame in enumerate(frames) if isinstance(frame, InfoFrame) and frame.status.stream_id == newest
    )
    builder = TraceBuilder()
    builder.add(frames[begin:])
    return builder.build()


class Board:
    """Draws a current that can be changed while the meter runs."""

    def __init__(self, feed: FeedWriter) -> None:
        self._feed = feed
        self._load = (0.0, 0.0)
        self._done = threading.Event()

    @contextmanager
    def feeding(self) -> Generator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join(LIMIT_S)
            self._feed.close()

    def draw(self, volts: float, amperes: float) -> None:
        """From now on, and for so long that the meter has measured nothing else for a while."""
        self._load = (volts, amperes)
        time.sleep(0.2)

    def _run(self) -> None:
        while not self._done.wait(0.002):
            self._feed.append(time.monotonic_ns(), *self._load)
