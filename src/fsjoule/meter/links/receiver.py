"""Receives the meter's stream in a thread: info, samples and replies.

Frames whose checksum is right and whose numbers cannot be are refused, by the frames before them. A broken meter or
firmware makes them; taken as they are, they would shift samples in time, or add joules.

A second reader of the port is detected by the bytes that are missing, where no process can be asked. Noise changes
bytes; a second reader takes them away. So each span of 2 s compares the bytes that arrived with the bytes of all frames
that the meter sent, by their sequence numbers, less the frames that it dropped. A span is bad if at least 5 frames are
lost and at least 5 % of the bytes are missing. Two bad spans in a row are a finding.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from fsjoule.errors import ConfigError, MeterError
from fsjoule.meter.instrument_files import read_instrument_file
from fsjoule.meter.links.notices import news
from fsjoule.meter.links.streams import PortError, Stream
from fsjoule.meter.protocol.commands import ReplyStatus
from fsjoule.meter.protocol.frames import Frame, FrameDecoder, InfoFrame, MarkFrame, ReplyFrame, SamplesFrame
from fsjoule.meter.protocol.sequence import StreamCounters
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.model import Ina219Trace
from fsjoule.model.instrument_file import InstrumentFile
from fsjoule.model.trace import HostClock

Listener = Callable[[Sequence[Frame], float], None]

PLUGGED_IN: Final = "is it plugged in and powered? `fsjoule meter list` shows the meters that are there"

_log = logging.getLogger(__name__)
_SILENCE_S: Final = 2.0
_LOOK_S: Final = 1.5  # a meter sends its info every second, even when it is stopped
_RECONNECT_FOR_S: Final = 30.0
_RECONNECT_PAUSE_S: Final = 0.2
_READ_TIMEOUT_S: Final = 0.2
_MARGIN_US: Final = 25_000  # a mark may follow the samples of its time, and 20 samples make a frame
# The meter reports a damaged command at once. A whole command may also follow a fragment from another program.
_DAMAGED_GRACE_S: Final = 0.3
_KEPT_REPLIES: Final = 16
_UNIDENTIFIED: Final = "sent no info while it was recorded"
_WHO_READS: Final = "fuser -v PORT shows its readers, on the computer that the meter is plugged into"

_U32_MODULUS: Final = 1 << 32
_U64_MODULUS: Final = 1 << 64
# A thousand years in microseconds, as in a stored trace.
_LATEST: Final = 1 << 55
# Time and ticks of one stream are both rounded; no oscillator is off by more than this.
_TICKS_APART: Final = 2
_DRIFT: Final = 1e-3

_SPAN_S: Final = 2.0
_LEAST_FRAMES: Final = 5
_LEAST_FRACTION: Final = 0.05


class Receiver:
    """A thread that reads the stream, reconnects when it breaks, and gives up after 30 s without success.

    It gives up at once, with a reason, if the meter speaks another protocol or another program already reads the port.
    A second reader that appears later is tolerated for 30 s. `hint` is the advice about a silent meter.
    """

    def __init__(self, open_stream: Callable[[], Stream], *, hint: str = PLUGGED_IN) -> None:
        self._open_stream = open_stream
        self._hint = hint
        self._news = threading.Condition()
        self._closing = False
        self._decoder = FrameDecoder()
        self._agreement = Agreement(self._decoder.counters)
        self._stream: Stream | None = None
        self._builder: TraceBuilder | None = None
        self._info: InfoFrame | None = None
        self._heard_s = self._connected_s = time.monotonic()
        self._looked_s = 0.0
        self._arming = False
        self._samples_end_us = 0
        self._samples_frames = 0
        self._lag_us: float | None = None
        self._lags: list[tuple[float, float]] = []
        self._replies: list[tuple[float, ReplyFrame]] = []
        self._listeners: list[Listener] = []
        self._stray_watch = StrayWatch(self._heard_s, self._decoder.counters)
        self._stray: Stray | None = None
        self._strayed: str | None = None
        self._trouble: Exception | None = None
        self._warned = False
        self._refused: MeterError | ConfigError | None = None
        self._files: dict[str, InstrumentFile | None] = {}
        self._thread = threading.Thread(target=self._run, name="fsjoule-meter", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def raise_if_over(self) -> None:
        """Raise MeterError if the stream was given up."""
        if not self._thread.is_alive():
            self._raise_refused()
            raise self._complaint("cannot be reached any more")

    @property
    def refused(self) -> MeterError | ConfigError | None:
        """The reason why the stream was given up."""
        return self._refused

    @property
    def counters(self) -> StreamCounters:
        return self._decoder.counters

    @property
    def silence(self) -> str | None:
        """A message if the meter is silent now, with the reason if it is known; None otherwise."""
        silent_s = time.monotonic() - self._heard_s
        if silent_s <= _SILENCE_S:
            return None
        why = "" if self._trouble is None else f": {_what(self._trouble)}"
        return f"the meter has been silent for {silent_s:.0f} s{why}"

    @property
    def stray(self) -> Stray | None:
        """Bytes that are being lost now, probably to a second reader."""
        return self._stray if self._stray is not None and self._stray.found else None

    def reopen(self, open_stream: Callable[[], Stream]) -> None:
        """Use `open_stream` for the next connection: at once if there is none, else when it breaks."""
        self._open_stream = open_stream

    def close(self) -> None:
        self._closing = True
        self._thread.join(timeout=5.0)

    @contextmanager
    def listening(self, listener: Listener) -> Generator[None]:
        """While the body runs, call `listener` with all frames that arrive and their time (monotonic seconds).

        The receiving thread calls it; it must not call the receiver.
        """
        with self._news:
            self._listeners.append(listener)
        try:
            yield
        finally:
            with self._news:
                self._listeners.remove(listener)

    def wait_info(self, *, other_than: int | None = None) -> InfoFrame:
        """The meter's info, of another stream than `other_than`. Raises MeterError after 2 s of silence, or 5 s."""

        def known() -> bool:
            return self._info is not None and self._info.status.stream_id != other_than

        with self._news:
            self._wait(known, "sent no info")
            assert self._info is not None
            return self._info

    def arm(self) -> None:
        """Start recording, and wait for the first new sample. Raises MeterError if the meter is silent."""
        with self._news:
            self._wait(lambda: self._info is not None, "sent no info")
            assert self._info is not None
            if not self._info.status.sampling:
                raise MeterError(
                    "the meter is stopped and takes no samples", hint="start it: fsjoule meter set --start"
                )
            self._builder = TraceBuilder(self._info)
            self._lag_us = None
            self._lags = []
            self._strayed = None
            before = self._samples_frames
            self._arming = True
            try:
                self._wait(lambda: self._builder is not None and self._samples_frames > before, "sends no samples")
            except MeterError:
                self._builder = None
                raise
            finally:
                self._arming = False

    def disarm(self) -> Ina219Trace:
        """Stop recording. Returns everything since `arm`, including the samples up to now.

        The trace names the meter that made it, by an info frame of the recorded stream (one arrives every second). Its
        faults include lost bytes. Raises MeterError if the meter fell silent.
        """
        with self._news:
            builder = self._builder
            if builder is None:
                raise MeterError("the meter was not armed", hint="call arm() before disarm()")
            try:
                # Where the stream's first info frame was lost, nothing is known of its clock until the next one.
                self._wait(lambda: builder.ended or self._lag_us is not None, _UNIDENTIFIED)
                now_us = time.monotonic_ns() / 1e3
                # The least lag seen belongs to the line; a busy host may add to it at the moment.
                until_us = now_us - (self._lag_us or 0.0) + _MARGIN_US
                self._wait(
                    lambda: builder.ended or self._samples_end_us >= until_us, "fell silent while it was recorded"
                )
                self._wait(lambda: builder.ended or builder.identified, _UNIDENTIFIED)
                if not builder.identified:
                    raise self._complaint(_UNIDENTIFIED)
                trace = replace(builder.build(), host_clock=self._host_clock())
                return trace if self._strayed is None else replace(trace, faults=(*trace.faults, self._strayed))
            finally:
                self._builder = None

    def send(self, data: bytes) -> float:
        """Send bytes to the meter. Returns the time, for `reply`. Raises MeterError if they cannot be sent."""
        with self._news:
            self._wait(lambda: self._stream is not None, "cannot be reached")
            stream = self._stream
            assert stream is not None
        sent_s = time.monotonic()
        try:
            stream.write(data)
        except OSError as error:
            raise MeterError(f"the meter takes no commands: {error}", transient=True, hint=self._hint) from error
        return sent_s

    def reply(self, request: int, sent_s: float, timeout_s: float) -> ReplyFrame:
        """The reply to the command with that seq, sent at `sent_s`. Raises MeterError if there is none in time."""

        def ours() -> ReplyFrame | None:
            fitting = [frame for heard_s, frame in self._replies if frame.request == request and heard_s >= sent_s]
            return fitting[0] if fitting else None

        with self._news:
            deadline = time.monotonic() + timeout_s
            while (frame := ours()) is None:
                self._raise_refused()
                now = time.monotonic()
                if self._damaged_since(sent_s, now - _DAMAGED_GRACE_S):
                    raise MeterError(
                        "the command reached the meter damaged and was not carried out",
                        transient=True,
                        hint="try again; if it happens again, look for another program that writes to the meter's port",
                    )
                if now > deadline:
                    raise self._complaint(f"did not reply within {timeout_s:g} s")
                self._news.wait(timeout=0.1)
            return frame

    def _damaged_since(self, begin_s: float, end_s: float) -> bool:
        return any(
            begin_s <= heard_s <= end_s and frame.request == 0 and frame.status == ReplyStatus.DAMAGED
            for heard_s, frame in self._replies
        )

    def _wait(self, condition: Callable[[], bool], complaint: str) -> None:
        """Wait until `condition` holds: at most 2 s of silence, 5 s in all."""
        begin = time.monotonic()
        while not condition():
            self._raise_refused()
            now = time.monotonic()
            if now - self._heard_s > _SILENCE_S or now - begin > 2.5 * _SILENCE_S:
                raise self._complaint(complaint)
            self._news.wait(timeout=0.1)

    def _raise_refused(self) -> None:
        if self._refused is not None:
            raise self._refused

    def _complaint(self, complaint: str) -> MeterError:
        counters = self._decoder.counters
        why = "" if self._trouble is None else _what(self._trouble)
        if not why and counters.bytes and not counters.frames:
            why = f"{counters.bytes} bytes arrived without a single frame: is it a meter, and is its speed right?"
        if not why and self.stray is not None:
            why = str(self.stray)
        hint = getattr(self._trouble, "hint", None) or self._hint
        return MeterError(f"the meter {complaint}{f' ({why})' if why else ''}", transient=True, hint=hint)

    def _run(self) -> None:
        connected = False
        while not self._closing and time.monotonic() - self._connected_s < _RECONNECT_FOR_S:
            try:
                with self._open_stream() as stream:
                    connected = True
                    self._connect(stream)
                    self._receive(stream)
            except PortError as error:
                if not connected:
                    self._refuse(error)
                    return
                self._troubled(error)
            except (MeterError, ConfigError) as error:
                self._refuse(error)
                return
            except OSError as error:
                self._troubled(error)
            finally:
                self._stream = None

    def _refuse(self, error: MeterError | ConfigError) -> None:
        _log.debug("%s", error.what)  # the next caller of the receiver gets it as an error
        with self._news:
            self._refused = error
            self._news.notify_all()

    def _troubled(self, trouble: Exception) -> None:
        self._trouble = trouble
        self._warn_of_silence()
        time.sleep(_RECONNECT_PAUSE_S)

    def _connect(self, stream: Stream) -> None:
        """A reopened port may have another meter behind it; a recording that goes on keeps its state."""
        with self._news:
            self._stream = stream
            self._stray_watch = StrayWatch(time.monotonic(), self._decoder.counters)
            self._stray = None
            if self._builder is None or self._arming:
                self._info = self._builder = self._lag_us = None
            self._news.notify_all()

    def _receive(self, stream: Stream) -> None:
        while not self._closing:
            data = stream.read(_READ_TIMEOUT_S)
            now_s = time.monotonic()
            self._connected_s = now_s
            if not data:
                if self._look_into_silence(stream, now_s):
                    return
                continue
            with self._news:
                self._heard_s = now_s
                self._trouble = None
                self._warned = False
                frames = [self._described(each) for each in self._agreement.agreed(self._decoder.feed(data))]
                self._take(frames, now_s)
                self._news.notify_all()
            self._look_for_others(stream, frames, now_s)

    def _described(self, frame: Frame) -> Frame:
        """An info frame with the meter's instrument file, which is read once. Raises ConfigError."""
        if not isinstance(frame, InfoFrame):
            return frame
        serial = frame.info.serial_number
        if serial not in self._files:
            self._files[serial] = read_instrument_file(serial)
        return replace(frame, info=replace(frame.info, file=self._files[serial]))

    def _look_into_silence(self, stream: Stream, now_s: float) -> bool:
        """Whether to connect again. Raise PortHeldError if another program reads the port: it may get everything."""
        look = now_s - max(self._heard_s, self._looked_s) > _LOOK_S
        if look:
            self._looked_s = now_s
            stream.raise_if_shared()
            if self._stray_watch.intact:
                self._trouble = MeterError(
                    "nothing arrives over an open connection: the meter hangs, or another program reads its bytes",
                    hint=f"{_WHO_READS}; otherwise switch the meter off and on",
                )
        self._warn_of_silence()
        return look and stream.reconnects

    def _warn_of_silence(self) -> None:
        if not self._warned and time.monotonic() - self._heard_s > _SILENCE_S:
            self._warned = True
            _log.warning("the meter is silent%s", f": {_what(self._trouble)}" if self._trouble else "")

    def _look_for_others(self, stream: Stream, frames: Sequence[Frame], now_s: float) -> None:
        """Raise PortHeldError if bytes are lost and another program reads the port."""
        stray = self._stray_watch.take(frames, self._decoder.counters, now_s)
        if stray is None:
            return
        if stray.bad_spans:
            stream.raise_if_shared()
        if stray.found and self._strayed is None:
            self._strayed = f"{stray}: another program probably reads its port"
            _log.warning("%s; %s", self._strayed, _WHO_READS)
        self._stray = stray

    def _take(self, frames: Sequence[Frame], now_s: float) -> None:
        for frame in frames:
            if isinstance(frame, InfoFrame):
                self._take_info(frame)
            elif isinstance(frame, ReplyFrame):
                self._replies = [*self._replies[1 - _KEPT_REPLIES :], (now_s, frame)]
            elif isinstance(frame, SamplesFrame):
                self._take_samples(frame, now_s)
        if self._builder is not None:
            self._builder.add(frames)
        for listener in self._listeners:
            listener(frames, now_s)

    def _take_samples(self, frame: SamplesFrame, now_s: float) -> None:
        self._samples_frames += 1
        info = self._info
        if info is None or frame.stream_id != info.status.stream_id:
            return
        self._samples_end_us = frame.first_time_us + frame.count * 1_000_000 // info.info.rate_hz
        lag_us = now_s * 1e6 - self._samples_end_us
        self._lag_us = lag_us if self._lag_us is None else min(self._lag_us, lag_us)
        if self._builder is not None:
            self._lags.append((now_s, lag_us))

    def _host_clock(self) -> HostClock | None:
        """The host's clock in that of the stream which was recorded."""
        return HostClock(*np.array(self._lags).T) if self._lags else None

    def _take_info(self, frame: InfoFrame) -> None:
        for text in news(self._info and self._info.status, frame.status):
            _log.warning("the meter says: %s", text)
        if self._info is not None and frame.status.stream_id != self._info.status.stream_id:
            self._lag_us, self._lags = None, []  # another meter, or the same one after a restart: a new clock
            self._builder = None if self._arming else self._builder
        self._info = frame
        if self._arming and self._builder is None:
            self._builder = TraceBuilder(frame)


def _what(trouble: Exception) -> str:
    return trouble.what if isinstance(trouble, MeterError) else str(trouble)


@dataclass(slots=True)
class Agreement:
    """Takes the frames of one line; those that it refuses count as damaged in `counters`.

    A samples frame must agree with the one before it. Where it does not, the next one decides which of the two was
    wrong.
    """

    counters: StreamCounters
    _tick_us: dict[int, float] = field(default_factory=dict[int, float])
    _last: SamplesFrame | None = None
    _doubted: SamplesFrame | None = None

    def agreed(self, frames: Iterable[Frame]) -> list[Frame]:
        """The frames that are taken, in their order."""
        return [frame for frame in frames if self._takes(frame)]

    def _takes(self, frame: Frame) -> bool:
        match frame:
            case SamplesFrame():
                taken = max(frame.first_tick, frame.first_time_us) < _LATEST and self._takes_samples(frame)
            case MarkFrame():
                taken = frame.time_us < _LATEST
            case InfoFrame():
                self._tick_us = {frame.status.stream_id: frame.info.tick_us}
                taken = True
            case _:
                taken = True
        self.counters.damaged += not taken
        return taken

    def _takes_samples(self, frame: SamplesFrame) -> bool:
        for other in (self._last, self._doubted):
            if other is not None and other.stream_id == frame.stream_id:
                if self._agree(other, frame):
                    self._last, self._doubted = max(frame, other, key=_tick), None
                    return True
            elif other is self._last:
                self._last, self._doubted = frame, None
                return True
        self._doubted = frame
        return False

    def _agree(self, one: SamplesFrame, other: SamplesFrame) -> bool:
        """Whether two frames can be of one stream: their ticks, times and sums."""
        before, after = sorted((one, other), key=_tick)
        ticks = after.first_tick - before.first_tick
        missed = (after.missed_total - before.missed_total) % _U32_MODULUS
        lost = ticks - before.count - missed
        if lost < 0 or before.wide != after.wide:
            return lost >= 0  # the builder leaves out samples of another type
        tick_us = self._tick_us.get(before.stream_id)
        if tick_us is not None:
            apart_us = abs(after.first_time_us - before.first_time_us - ticks * tick_us)
            if apart_us > (_TICKS_APART + _DRIFT * ticks) * tick_us:
                return False
        bus = before.bus_raw.astype(np.int64)
        raw = (after.energy_raw - before.energy_raw - int((before.shunt_raw * bus).sum())) % _U64_MODULUS
        most_bus, most_shunt = (0xFFFFF, 1 << 19) if before.wide else (0x1FFF, 1 << 15)
        most = lost * most_bus
        return (
            0 <= after.bus_total - before.bus_total - int(bus.sum()) <= most
            and min(raw, _U64_MODULUS - raw) <= most * most_shunt
        )


def _tick(frame: SamplesFrame) -> int:
    return frame.first_tick


@dataclass(frozen=True, slots=True)
class Stray:
    """Losses of the last span. `missing` is a fraction of the bytes; `bad_spans` counts consecutive bad spans."""

    lost_frames: int
    sent_frames: int
    missing: float
    bad_spans: int

    @property
    def found(self) -> bool:
        return self.bad_spans > 1

    def __str__(self) -> str:
        return f"{self.missing:.0%} of the meter's bytes are lost ({self.lost_frames} of {self.sent_frames} frames)"


@dataclass(slots=True)
class _SpanSums:
    time_s: float
    bytes: int = 0
    intact_bytes: int = 0
    lost: int = 0
    dropped: int = 0


class StrayWatch:
    """Follows one connection; each connection needs its own. `intact` counts its intact frames."""

    def __init__(self, now_s: float, counters: StreamCounters) -> None:
        self._dropped: int | None = None
        self._dropped_since = 0
        self.intact = 0
        self._begin(now_s, counters)
        self._bad_spans = 0

    def take(self, frames: Iterable[Frame], counters: StreamCounters, now_s: float) -> Stray | None:
        """Take new frames. Returns the losses of a span when it ends, else None."""
        for frame in frames:
            self.intact += 1
            if isinstance(frame, InfoFrame):
                total = frame.status.frames_dropped
                if self._dropped is not None:
                    self._dropped_since += (total - self._dropped) % _U32_MODULUS
                self._dropped = total
        if now_s - self._start.time_s < _SPAN_S:
            return None
        stray = self._judge(counters)
        self._begin(now_s, counters)
        return stray

    def _begin(self, now_s: float, counters: StreamCounters) -> None:
        self._start = _SpanSums(now_s, counters.bytes, counters.intact_bytes, counters.lost, self._dropped_since)
        self._intact_before = self.intact

    def _judge(self, counters: StreamCounters) -> Stray:
        lost = counters.lost - self._start.lost - (self._dropped_since - self._start.dropped)
        intact = self.intact - self._intact_before
        sent = intact + lost
        came = counters.bytes - self._start.bytes
        wanted = (counters.intact_bytes - self._start.intact_bytes) * sent / intact if intact else 0.0
        missing = max(0.0, 1.0 - came / wanted) if wanted > 0 else 0.0
        bad = lost >= _LEAST_FRAMES and missing >= _LEAST_FRACTION
        self._bad_spans = self._bad_spans + 1 if bad else 0
        return Stray(max(0, lost), max(0, sent), missing, self._bad_spans)
