"""A meter on the board's own clock. The clock stops with the board, so nothing can wait for a time.

Instead, replies tell which frames have arrived: they follow all earlier frames of the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from labgrid import Target

from fsjoule.errors import ConfigError, MeterError
from fsjoule.lab.board_counter import BoardCounter, BoardCounterDriver, Simulate
from fsjoule.lab.instruments import MARK_LINE_DRIVER, HostMarked, MarkLineDriver
from fsjoule.lab.meterdriver import MeterDriver, NoMeter, board_counter, has_meter, instrument, meter
from fsjoule.lab.strategy import BoardStrategy
from fsjoule.meter.protocol import commands
from fsjoule.meter.protocol.commands import MeterCommand
from fsjoule.meter.protocol.frames import Frame, InfoFrame
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.model import MarkLine, MeterInfo, Trace
from fsjoule.ports import Meter, Shell

_HINT: Final = "call arm() before disarm()"


def board_meter(
    target: Target,
    diagnose: Callable[[], tuple[str, ...]] = tuple,
    shell: Callable[[], Shell | None] = lambda: None,
    simulate: Simulate | None = None,
) -> Meter:
    """The active meter of a labgrid target, suited to its board's time. `diagnose` lists what has died in the lab.

    A board whose environment file has no meter gets `NoMeter`. One that measures itself is asked over its `shell`, once
    it has booted; `simulate` starts the counter of an emulated one.
    """
    if not has_meter(target):
        return NoMeter()
    strategy: BoardStrategy = target.get_driver("BoardStrategy")
    line = MarkLine(strategy.mark_device, strategy.marks_on_console)
    own = board_counter(target)
    if (own is not None) != line.is_counter:
        raise ConfigError(
            f"BoardCounterDriver and mark_device {line.device} do not fit: a board that measures itself has both",
            hint="drivers: BoardCounterDriver: {}, and mark_device: /sys/class/powercap/ZONE/energy_uj",
        )
    if own is not None:
        return _counter(own, strategy, line, shell, simulate)
    return ExplainedMeter(MarksOfBoard(_meter_itself(target, guest_time=strategy.guest_time), line), diagnose)


def _meter_itself(target: Target, *, guest_time: bool) -> Meter:
    other = instrument(target)
    if other is None:
        return GuestTimeMeter(meter(target)) if guest_time else meter(target)
    if guest_time:
        raise ConfigError(
            "a board in guest time has its own clock, which only fsjoule's own meter follows", hint="use MeterDriver"
        )
    if not any(isinstance(each, MarkLineDriver) for each in target.drivers):
        return other
    return HostMarked(other, target.get_driver(MARK_LINE_DRIVER))


def _counter(
    driver: BoardCounterDriver,
    strategy: BoardStrategy,
    line: MarkLine,
    shell: Callable[[], Shell | None],
    simulate: Simulate | None,
) -> BoardCounter:
    if strategy.guest_time:
        raise ConfigError("a board in guest time has no counter of its own energy", hint="use MeterDriver")
    watts = driver.simulated_watts
    if watts and not strategy.simulated:
        raise ConfigError("simulated_watts is for emulated boards only", hint="leave it out: the board has a counter")
    starts = partial(simulate, device=line.device, watts=watts) if watts and simulate is not None else None
    return BoardCounter(line, strategy.board, shell, starts)


class MarksOfBoard:
    """ports.Meter whose traces have the board's marks only, where the meter listens to the board's console."""

    def __init__(self, meter: Meter, line: MarkLine) -> None:
        self._meter = meter
        self._line = line

    def info(self) -> MeterInfo:
        return self._meter.info()

    def arm(self) -> None:
        self._meter.arm()

    def disarm(self) -> Trace:
        trace = self._meter.disarm()
        return replace(trace, marks=self._line.marks(trace.marks))


class ExplainedMeter:
    """ports.Meter whose errors first name the dead programs of the lab."""

    def __init__(self, meter: Meter, diagnose: Callable[[], tuple[str, ...]]) -> None:
        self._meter = meter
        self._diagnose = diagnose

    def info(self) -> MeterInfo:
        with self._explained():
            return self._meter.info()

    def arm(self) -> None:
        with self._explained():
            self._meter.arm()

    def disarm(self) -> Trace:
        with self._explained():
            return self._meter.disarm()

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except MeterError as error:
            error.blame(self._diagnose())
            raise


class GuestTimeMeter:
    """ports.Meter for a board in guest time."""

    def __init__(self, driver: MeterDriver) -> None:
        self._driver = driver
        self._recording: ExitStack | None = None
        self._frames: list[Frame] = []
        self._stream: InfoFrame | None = None

    def info(self) -> MeterInfo:
        return self._driver.info()

    def arm(self) -> None:
        """See ports.Meter. Samples begin with the board's next instruction.

        Setting the present rate again begins a stream and the chip's conversions, with the same phase in every run.
        """
        self._end()
        client = self._driver.client()
        with ExitStack() as recording:
            self._frames = []
            recording.enter_context(client.receiver.listening(self._listen))
            rate_hz = client.info().info.rate_hz
            self._stream = client.change(MeterCommand.RATE, commands.rate(rate_hz))
            self._recording = recording.pop_all()

    def disarm(self) -> Trace:
        if self._recording is None or self._stream is None:
            raise MeterError("the meter was not armed", hint=_HINT)
        try:
            self._driver.client().info()
        finally:
            self._end()
        builder = TraceBuilder(self._stream)
        builder.add(self._of_stream(self._stream.status.stream_id))
        return builder.build()

    def _listen(self, frames: Sequence[Frame], _heard_s: float) -> None:
        self._frames += frames

    def _of_stream(self, stream_id: int) -> list[Frame]:
        """The frames of the stream. Leftovers of the stream before precede its first info frame."""
        for at, frame in enumerate(self._frames):
            if isinstance(frame, InfoFrame) and frame.status.stream_id == stream_id:
                return self._frames[at:]
        return []

    def _end(self) -> None:
        if self._recording is not None:
            self._recording.close()
            self._recording = None
