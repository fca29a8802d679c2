"""Records hours of samples into files with little memory, and reports losses and the drift of the two clocks.

Instruments without a stream give pieces of a trace, which have the figures of `fsjoule meter watch`, too.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import numpy as np
import numpy.typing as npt

from fsjoule.errors import FsjouleError, MeterError, StorageError
from fsjoule.meter.instruments import InstrumentMeter
from fsjoule.meter.links.client import MeterClient
from fsjoule.meter.protocol.frames import Frame
from fsjoule.meter.protocol.sequence import StreamCounters
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.meter.tools.clock_fit import ClockFit, Drift
from fsjoule.meter.tools.live import MARKS_KEPT, NOW_S, Live, LiveReading
from fsjoule.model import Mark, MeterInfo, Trace


class PieceFigures:
    """Takes the pieces of one trace in order; gives figures and the plot's values.

    Joules include the energy of lost ticks, which the instrument's sums tell. The plot reaches back `history_s`.
    """

    def __init__(self, history_s: float) -> None:
        self.marks: deque[tuple[float, Mark]] = deque(maxlen=MARKS_KEPT)
        self._history_us = history_s * 1e6
        self._recent: deque[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], Trace]] = deque()
        self._first: Trace | None = None
        self._seconds = self._joules = 0.0
        self._received = self._lost = self._missed = 0
        self._least = self._largest = float("nan")

    def take(self, piece: Trace) -> tuple[Mark, ...]:
        """Take a piece. Returns its marks."""
        self._received += len(piece.ticks)
        self._lost += piece.lost
        self._missed += piece.missed
        if len(piece.ticks):
            watts, rate_hz = piece.power_w, piece.info.rate_hz
            first = self._first = self._first or piece
            before = [last - begin for last, begin in zip(_last(piece), _start(first), strict=True)]
            self._joules = float(piece.tallied_w(*before)[0]) / rate_hz
            # Their sums reach over lost ticks at either end.
            end = max(int(piece.ticks[-1]) + 1, int(piece.checkpoint_ticks[-1]))
            self._seconds = (end - int(first.checkpoint_ticks[0])) / rate_hz
            self._least = float(np.fmin(self._least, watts.min()))
            self._largest = float(np.fmax(self._largest, watts.max()))
            self._recent.append((piece.times_us, watts, piece))
            while self._recent[-1][0][-1] - self._recent[0][0][-1] > self._history_us:
                self._recent.popleft()
        self.marks.extend((self._seconds, mark) for mark in piece.marks)
        return piece.marks

    def reading(self) -> LiveReading:
        known = bool(self._recent)
        now = self._now()
        watts, volts, amperes = (float(each.mean()) for each in now) if known else (None, None, None)
        return LiveReading(
            seconds=self._seconds,
            watts=watts,
            volts=None if volts is None or np.isnan(volts) else volts,
            amperes=None if amperes is None or np.isnan(amperes) else amperes,
            least_watts=self._least if known else None,
            mean_watts=self._joules / self._seconds if self._seconds else None,
            largest_watts=self._largest if known else None,
            joules=self._joules,
            received=self._received,
            missed=self._missed,
            lost=self._lost,
            streams=1,
        )

    def ranges(self, count: int, span_s: float) -> Sequence[tuple[float, float] | None]:
        """The least and largest power in each of `count` equal parts of the last `span_s` seconds."""
        parts: list[tuple[float, float] | None] = [None] * count
        if not self._recent:
            return parts
        times_us = np.concatenate([times for times, _, _ in self._recent])
        watts = np.concatenate([each for _, each, _ in self._recent])
        part_us = span_s * 1e6 / count
        # Parts begin at round times, so that the drawn part does not change while it moves to the left.
        at = count - 1 - (times_us[-1] // part_us - times_us // part_us).astype(np.int64)
        for part in np.unique(at[at >= 0]).tolist():
            inside = watts[at == part]
            parts[part] = float(inside.min()), float(inside.max())
        return parts

    def _now(self) -> tuple[npt.NDArray[np.float64], ...]:
        """Power, voltage and current of about the last fifth of a second."""
        if not self._recent:
            return ()
        times_us, watts, piece = self._recent[-1]
        now = times_us >= times_us[-1] - NOW_S * 1e6
        return watts[now], piece.voltage_v[now], piece.current_a[now]


def _start(piece: Trace) -> list[npt.NDArray[np.int64]]:
    """The instrument's sums before a piece."""
    return [tally[:1] for tally in piece.checkpoint_tallies]


def _last(piece: Trace) -> list[npt.NDArray[np.int64]]:
    """The instrument's sums behind a piece: its last checkpoint's, and the samples from there on."""
    late = piece.ticks >= piece.checkpoint_ticks[-1]
    return [
        told[-1:] + int(tally[late].sum()) for told, tally in zip(piece.checkpoint_tallies, piece.tallies, strict=True)
    ]


_log = logging.getLogger(__name__)
_PIECE_S: Final = 1.0
_TAIL_S: Final = 0.1  # so that samples from before the end arrive
# On a busy computer samples arrive this much late at most; a meter that is silent for longer has none to send.
_LATE_S: Final = 5.0
_LIVE_S: Final = 1.0
# Ten minutes at 1 kHz: a disk that is stuck for longer is broken.
_MOST_WAITING: Final = 30_000


class TraceFile(Protocol):
    """A file of one trace, written piece by piece: `store.recordings.Recording`. Errors are StorageError."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def write(self, piece: Trace) -> None: ...


class RecordingEnd(Protocol):
    def wait(self, timeout_s: float) -> bool:
        """Whether the user wants to end, now or within this time."""
        ...


@dataclass(frozen=True, slots=True)
class RecordedTrace:
    """A finished recording. `drift` compares the meter's clock with the host's; None after too short a time.

    `files` are whole; `failures` tells about files that could not be written. `line` counts the frames of fsjoule's own
    meter; `losses` says what is missing besides counted samples, and is one of `faults`.
    """

    info: MeterInfo
    reading: LiveReading
    drift: Drift | None
    faults: tuple[str, ...]
    files: tuple[Path, ...]
    failures: tuple[StorageError, ...]
    line: StreamCounters | None = None
    losses: str = ""


def record(
    client: MeterClient,
    paths: Sequence[Path],
    open_file: Callable[[Path], TraceFile],
    ended: RecordingEnd,
    *,
    seconds: float | None = None,
    show: Callable[[LiveReading], None] = lambda _reading: None,
) -> RecordedTrace:
    """Record into files until `ended`, or until there are `seconds` of samples; `say` gets the figures once a second.

    The seconds are the meter's: samples that come late are waited for.

    A meter that is unplugged for less than 30 s leaves a gap, which is counted. Raises MeterError if it stays away or
    begins another stream, StorageError if no file can be written any more, ConfigError for an impossible file. The
    files are whole even then, and hold everything before the error.
    """
    frame = client.receiver.wait_info()
    builder, live, inbox = TraceBuilder(frame), Live(frame, _LIVE_S), _Inbox(frame.info)
    begin_s = time.monotonic()
    counters = client.receiver.counters
    before, line = replace(counters), StreamCounters()
    faults: tuple[str, ...] = ()
    with _Files(paths, open_file) as files, client.receiver.listening(inbox.put):
        while True:
            left_s = _PIECE_S if seconds is None else begin_s + seconds - time.monotonic()
            asked = ended.wait(min(_PIECE_S, max(_TAIL_S, left_s)))
            if asked:
                time.sleep(_TAIL_S)
            frames = inbox.take()
            builder.add(frames)
            live.take(frames)
            line = counters.since(before)
            piece = builder.take()
            faults = (*piece.faults, line.losses) if line.losses else piece.faults
            piece = replace(piece, faults=faults)
            files.write(piece)
            reading = live.reading()
            show(reading)
            if asked or (seconds is not None and (reading.seconds >= seconds or left_s < -_LATE_S)):
                break
            _require_stream(client, builder, live)
    drift, failures = inbox.clock.drift(), tuple(files.failures)
    return RecordedTrace(frame.info, live.reading(), drift, faults, files.whole, failures, line, line.losses)


def record_instrument(
    instrument: InstrumentMeter,
    paths: Sequence[Path],
    open_file: Callable[[Path], TraceFile],
    ended: RecordingEnd,
    *,
    seconds: float | None = None,
    show: Callable[[LiveReading], None] = lambda _reading: None,
) -> RecordedTrace:
    """As `record`, from an instrument whose clock is the host's: there is no drift to tell."""
    figures = PieceFigures(_LIVE_S)
    faults: tuple[str, ...] = ()
    losses = ""
    instrument.arm()
    begin_s = time.monotonic()
    with _Files(paths, open_file) as files:
        while True:
            left_s = _PIECE_S if seconds is None else begin_s + seconds - time.monotonic()
            asked = ended.wait(min(_PIECE_S, max(_TAIL_S, left_s)))
            try:
                piece = instrument.take(whole=True)
            except MeterError as error:
                after = f"the recording ends after {figures.reading().seconds:.0f} s"
                raise MeterError(f"{after}: {error.what}", hint="the files hold everything before that") from error
            faults, losses = piece.faults, "; ".join(piece.clock_faults)
            files.write(piece)
            figures.take(piece)
            show(figures.reading())
            if asked or (seconds is not None and (figures.reading().seconds >= seconds or left_s < -_LATE_S)):
                break
    failures = tuple(files.failures)
    return RecordedTrace(instrument.info(), figures.reading(), None, faults, files.whole, failures, losses=losses)


def _require_stream(client: MeterClient, builder: TraceBuilder, live: Live) -> None:
    after = f"the recording ends after {live.reading().seconds:.0f} s"
    if builder.ended:
        raise MeterError(
            f"{after}: the meter began another stream (a new start, or new settings)",
            hint="the files hold everything before that; start the recording again",
        )
    try:
        client.receiver.raise_if_over()
    except MeterError as error:
        raise MeterError(f"{after}: {error.what}", hint="the files hold everything before that") from error


class _Inbox:
    """Frames that wait for the disk, and the clocks at their arrival."""

    def __init__(self, info: MeterInfo) -> None:
        self.clock = ClockFit()
        self._tick_us = info.tick_us
        self._waiting: deque[Frame] = deque()
        self._overflow = False

    def put(self, frames: Sequence[Frame], heard_s: float) -> None:
        """Called by the receiving thread."""
        self.clock.add_samples(frames, heard_s, self._tick_us)
        self._overflow |= len(self._waiting) > _MOST_WAITING
        if not self._overflow:
            self._waiting.extend(frames)

    def take(self) -> list[Frame]:
        """All waiting frames. Raises StorageError if there were too many."""
        if self._overflow:
            raise StorageError("the disk has taken no data for minutes; the recording ends", hint="choose another disk")
        return [self._waiting.popleft() for _ in range(len(self._waiting))]


class _Files:
    """The files of one recording. A file that fails is given up; the others go on."""

    def __init__(self, paths: Sequence[Path], open_file: Callable[[Path], TraceFile]) -> None:
        self._paths = paths
        self._open_file = open_file
        self._open: dict[Path, tuple[TraceFile, ExitStack]] = {}
        self.whole: tuple[Path, ...] = ()
        self.failures: list[StorageError] = []

    def write(self, piece: Trace) -> None:
        """Add a piece to each file. Raises StorageError if no file is left."""
        for path, (recording, closing) in list(self._open.items()):
            try:
                recording.write(piece)
            except StorageError as error:
                del self._open[path]
                closing.__exit__(type(error), error, error.__traceback__)
                self._failed(error)
        if not self._open:
            raise self.failures[-1]

    def _failed(self, error: StorageError) -> None:
        self.failures.append(StorageError(f"{error.what}; its content is lost", hint=error.hint))
        _log.warning("%s", self.failures[-1].what)

    def __enter__(self) -> Self:
        try:
            for path in self._paths:
                closing = ExitStack()
                self._open[path] = closing.enter_context(self._open_file(path)), closing
        except FsjouleError:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for path, (_, closing) in self._open.items():
            try:
                closing.close()
            except StorageError as failure:
                self._failed(failure)
            else:
                self.whole = (*self.whole, path)
        if error is None and self.failures and not self.whole:
            raise self.failures[-1]
