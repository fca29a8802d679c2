"""The meter as a labgrid driver on a named serial port."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, cast

import attr
from labgrid import Target
from labgrid.driver import Driver
from labgrid.factory import target_factory
from labgrid.resource import SerialPort
from labgrid.step import step
from labgrid.util.proxy import proxymanager

from fsjoule.errors import MeterError
from fsjoule.frames import Frame, FrameDecoder, InfoFrame, SamplesFrame, StreamCounters, TraceBuilder
from fsjoule.meter.streams import NetworkStream, Stream, TtyStream
from fsjoule.model import MeterInfo, Trace

_log = logging.getLogger(__name__)
_SILENCE_S: Final = 2.0
_RECONNECT_FOR_S: Final = 30.0
_RECONNECT_PAUSE_S: Final = 0.2
_READ_TIMEOUT_S: Final = 0.2
_MARGIN_US: Final = 25_000  # a mark may follow the samples of its time, and 20 samples make a frame


@target_factory.reg_driver
@attr.s(eq=False)
class MeterDriver(Driver):
    """Receives the meter's stream in the background as long as it is active (ports.Meter).

    It is not a console: a second ConsoleProtocol would break ShellDriver's binding. Bind it by the port's name:
    `MeterDriver: {bindings: {port: meter}}`.
    """

    bindings = {"port": {"SerialPort", "NetworkSerialPort"}}  # noqa: RUF012 - labgrid's way

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._receiver: Receiver | None = None

    def on_activate(self) -> None:
        self._receiver = Receiver(self._opener())

    def on_deactivate(self) -> None:
        if self._receiver is not None:
            self._receiver.close()
        self._receiver = None

    @Driver.check_active
    @step(result=True)
    def info(self) -> MeterInfo:
        """What the meter says of itself. Raises MeterError if it is silent for 2 s."""
        return self._receiving().wait_info()

    @Driver.check_active
    @step()
    def arm(self) -> None:
        """Start recording; returns when the first new sample has arrived. Raises MeterError if the meter is silent."""
        self._receiving().arm()

    @Driver.check_active
    @step()
    def disarm(self) -> Trace:
        """Stop recording and return everything since `arm`, with the samples up to now.

        Raises MeterError if the meter fell silent.
        """
        assert self._receiver is not None
        return self._receiver.disarm()

    @property
    def counters(self) -> StreamCounters:
        """What became of the stream since the driver was activated."""
        assert self._receiver is not None
        return self._receiver.counters

    def _receiving(self) -> Receiver:
        """The receiver, running: after it gave up, every use gives it a new chance, with the port's address of now.

        Raises MeterError if it gave up because the meter speaks another protocol; the use after that tries again.
        """
        assert self._receiver is not None
        if not self._receiver.running:
            refused = self._receiver.refused
            self._receiver.close()
            cast("Target", self.target).update_resources()
            self._receiver = Receiver(self._opener())
            if refused is not None:
                raise refused
        return self._receiver

    def _opener(self) -> Callable[[], Stream]:
        if isinstance(self.port, SerialPort):
            path, speed = self.port.port, self.port.speed
            return lambda: TtyStream(path, speed)
        host, port = cast("tuple[str, int]", proxymanager.get_host_and_port(self.port))
        telnet = self.port.protocol == "rfc2217"
        return lambda: NetworkStream(host, port, telnet=telnet)


class Receiver:
    """A thread that reads the stream, connects again when it breaks, and gives up after 30 s without success.

    It calls nothing of labgrid's, whose steps know one thread only.
    """

    def __init__(self, open_stream: Callable[[], Stream]) -> None:
        self._open_stream = open_stream
        self._news = threading.Condition()
        self._closing = False
        self._decoder = FrameDecoder()
        self._builder: TraceBuilder | None = None
        self._info: InfoFrame | None = None
        self._heard_s = self._connected_s = time.monotonic()
        self._arming = False
        self._samples_end_us = 0
        self._samples_frames = 0
        self._lag_us: float | None = None
        self._trouble = ""
        self._warned = False
        self._refused: MeterError | None = None
        self._thread = threading.Thread(target=self._run, name="fsjoule-meter", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def refused(self) -> MeterError | None:
        """Why the stream was not read on: it is of another protocol."""
        return self._refused

    @property
    def counters(self) -> StreamCounters:
        return self._decoder.counters

    def close(self) -> None:
        """End the thread."""
        self._closing = True
        self._thread.join(timeout=5.0)

    def wait_info(self) -> MeterInfo:
        """See MeterDriver.info."""
        with self._news:
            self._wait(lambda: self._info is not None, "did not say what it is")
            assert self._info is not None
            return self._info.info

    def arm(self) -> None:
        """See MeterDriver.arm."""
        with self._news:
            self._wait(lambda: self._info is not None, "did not say what it is")
            self._builder = TraceBuilder(self._info)
            self._lag_us = None
            before = self._samples_frames
            self._arming = True
            try:
                self._wait(lambda: self._builder is not None and self._samples_frames > before, "sends no samples")
            except MeterError:
                self._builder = None
                raise
            finally:
                self._arming = False

    def disarm(self) -> Trace:
        """See MeterDriver.disarm."""
        with self._news:
            if self._builder is None:
                raise MeterError("the meter was not armed", hint="call arm() before disarm()")
            try:
                now_us = time.monotonic_ns() / 1e3
                # The least lag seen is the line's own; a meter on a busy host may be further behind at the moment.
                until_us = now_us - (self._lag_us or 0.0) + _MARGIN_US
                self._wait(lambda: self._samples_end_us >= until_us, "fell silent while it was recorded")
                return self._builder.build()
            finally:
                self._builder = None

    # ------------------------------------------------------------------------------------------------------------

    def _wait(self, condition: Callable[[], bool], complaint: str) -> None:
        """Wait until `condition` holds, as long as the meter says anything; at most 2 s of silence, 5 s in all."""
        begin = time.monotonic()
        while not condition():
            if self._refused is not None:
                raise self._refused
            now = time.monotonic()
            if now - self._heard_s > _SILENCE_S or now - begin > 2.5 * _SILENCE_S:
                raise MeterError(
                    f"the meter {complaint}{f' ({self._trouble})' if self._trouble else ''}",
                    transient=True,
                    hint="is it plugged in, and does the environment file bind the name that its port is exported by?",
                )
            self._news.wait(timeout=0.1)

    def _run(self) -> None:
        while not self._closing and time.monotonic() - self._connected_s < _RECONNECT_FOR_S:
            try:
                with self._open_stream() as stream:
                    self._forget_info()
                    self._receive(stream)
            except MeterError as error:
                _log.warning("%s", error.what)
                self._refused = error
                return
            except OSError as error:
                self._trouble = str(error)
                self._warn_of_silence()
                time.sleep(_RECONNECT_PAUSE_S)

    def _forget_info(self) -> None:
        """Behind a port that was opened again may be another meter; a recording that goes on keeps what it knows."""
        with self._news:
            if self._builder is None or self._arming:
                self._info = self._builder = self._lag_us = None

    def _receive(self, stream: Stream) -> None:
        while not self._closing:
            data = stream.read(_READ_TIMEOUT_S)
            now_s = time.monotonic()
            self._connected_s = now_s
            if not data:
                self._warn_of_silence()
                continue
            with self._news:
                self._heard_s = now_s
                self._trouble = ""
                self._warned = False
                self._take(self._decoder.feed(data), now_s)
                self._news.notify_all()

    def _warn_of_silence(self) -> None:
        if not self._warned and time.monotonic() - self._heard_s > _SILENCE_S:
            self._warned = True
            _log.warning("the meter is silent%s", f": {self._trouble}" if self._trouble else "")

    def _take(self, frames: list[Frame], now_s: float) -> None:
        for frame in frames:
            if isinstance(frame, InfoFrame):
                if self._info is not None and frame.boot_id != self._info.boot_id:
                    self._lag_us = None  # another meter, or the same after a restart: its clock began anew
                    self._builder = None if self._arming else self._builder
                self._info = frame
                if self._arming and self._builder is None:
                    self._builder = TraceBuilder(frame)
            elif isinstance(frame, SamplesFrame) and self._info is not None:
                self._samples_frames += 1
                self._samples_end_us = frame.first_time_us + frame.count * 1_000_000 // self._info.info.rate_hz
                lag_us = now_s * 1e6 - self._samples_end_us
                self._lag_us = lag_us if self._lag_us is None else min(self._lag_us, lag_us)
        if self._builder is not None:
            self._builder.add(frames)


def meter(target: Target) -> MeterDriver:
    """The meter of a labgrid target, active."""
    return target.get_driver("MeterDriver")
