"""The meter of a labgrid target: fsjoule's own as a driver on a named serial port, and suited to the board's time.

The clock of a board in guest time stops with the board, so nothing can wait for a time. Instead, replies tell which
frames have arrived: they follow all earlier frames of the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

import attr
from labgrid import Target
from labgrid.driver import Driver
from labgrid.factory import target_factory
from labgrid.step import step

from fsjoule.errors import ConfigError, MeterError, NoMeterError, Part
from fsjoule.lab.board_counter import BoardCounter, BoardCounterDriver, Simulate
from fsjoule.lab.energy_analyzer import Analyzer
from fsjoule.lab.instruments import (
    HINT,
    MARK_LINE_DRIVER,
    HostMarked,
    InstrumentBase,
    MarkLineDriver,
    meter_errors,
    port_opener,
)
from fsjoule.lab.strategy import BoardStrategy
from fsjoule.meter.links.client import MeterClient
from fsjoule.meter.links.receiver import Receiver
from fsjoule.meter.links.streams import Stream
from fsjoule.meter.protocol import commands
from fsjoule.meter.protocol.commands import MeterCommand
from fsjoule.meter.protocol.frames import Frame, InfoFrame
from fsjoule.meter.protocol.sequence import StreamCounters
from fsjoule.meter.protocol.trace_builder import TraceBuilder
from fsjoule.model import Ina219Info, Ina219Trace, MarkLine, MeterInfo, MeterStatus, Trace
from fsjoule.ports import LabHealth, Meter, Shell

METER_DRIVER: Final = "MeterDriver"
_HINT: Final = "call arm() before disarm()"


@target_factory.reg_driver
@attr.s(eq=False)
class MeterDriver(Driver, Analyzer):
    """Receives the meter's stream in the background while it is active (ports.Meter), and sends it commands.

    It is not a console: a second ConsoleProtocol would break ShellDriver's binding. Bind it by the port's name:
    `MeterDriver: {bindings: {port: meter}}`. The receiving thread does not call labgrid.
    """

    bindings = {"port": {"SerialPort", "NetworkSerialPort"}}  # noqa: RUF012 - labgrid's way

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._receiver: Receiver | None = None
        self._unplugged = False

    def on_activate(self) -> None:
        self._unplugged = False
        opener = self._opener()
        if self._receiver is not None and self._receiver.running:
            self._receiver.reopen(opener)
        else:
            self._receiver = Receiver(opener, hint=HINT)

    def on_deactivate(self) -> None:
        # labgrid deactivates drivers without a port whenever it activates another driver. A recording must survive
        # that: the receiver itself waits for the port.
        self._unplugged = not self.port.avail
        if not self._unplugged and self._receiver is not None:
            self._receiver.close()
            self._receiver = None

    @step(result=True)
    def info(self) -> Ina219Info:
        """The meter's info. Raises MeterError after 2 s of silence."""
        return self._receiving().wait_info().info

    @step()
    def arm(self) -> None:
        """Start recording, and wait for the first new sample. Raises MeterError if the meter is silent."""
        self._receiving().arm()

    @step()
    def disarm(self) -> Ina219Trace:
        """Stop recording. Returns everything since `arm`, up to now. Raises MeterError if the meter fell silent."""
        return self._active_receiver().disarm()

    @step(args=["rate_hz"])
    def set_rate(self, rate_hz: int) -> Ina219Info:
        """Set the samples per second. Raises MeterError if the meter refuses."""
        return self.client().set_rate(rate_hz).info

    @step(args=["range_mv"])
    def set_range(self, range_mv: int) -> Ina219Info:
        return self.client().set_range(range_mv).info

    @step(args=["text"])
    def mark(self, text: str) -> None:
        self.client().mark(text)

    def status(self) -> MeterStatus:
        return self.client().info().status

    def client(self) -> MeterClient:
        """A client for all commands, valid while the driver is active. Raises MeterError if the meter was given up."""
        return MeterClient(self._receiving())

    @property
    def counters(self) -> StreamCounters:
        """Counts of the stream since the driver was activated."""
        return self._active_receiver().counters

    @Driver.check_active
    def _check(self) -> None:
        """Let labgrid raise its error if the driver is not active."""

    def _active_receiver(self) -> Receiver:
        if self._unplugged:
            with meter_errors("finding the meter's port again"):
                self._labgrid.activate(self)
        self._check()
        assert self._receiver is not None
        return self._receiver

    def _receiving(self) -> Receiver:
        """The running receiver. If it gave up, each use starts a new one at the port's present address.

        Raises MeterError once if it gave up because the meter speaks another protocol or another program reads its
        port; the next use tries again. Raises MeterError if the port is missing.
        """
        receiver = self._active_receiver()
        if not receiver.running:
            receiver.close()
            self._receiver = Receiver(self._opener(), hint=HINT)
            if receiver.refused is not None:
                raise receiver.refused
        return self._receiver or receiver

    @property
    def _labgrid(self) -> Target:
        assert self.target is not None
        return self.target

    def _opener(self) -> Callable[[], Stream]:
        return port_opener(self.port)


# Drivers that are a board's meter.
METERS: Final = (MeterDriver, InstrumentBase, BoardCounterDriver)


class NoMeter:
    """ports.Meter of a board without one: a measurement keeps its throughput and says that it has no energy."""

    def info(self) -> MeterInfo:
        raise NoMeterError

    def arm(self) -> None:
        raise NoMeterError

    def disarm(self) -> Trace:
        raise NoMeterError


def has_meter(target: Target) -> bool:
    """Whether the environment file has a meter, present or not."""
    return any(isinstance(each, METERS) for each in target.drivers)


def meter(target: Target) -> MeterDriver:
    """The active meter of a target. Raises ConfigError if its environment file has none, or another instrument."""
    if not has_meter(target):
        raise ConfigError(
            "the environment file has no meter", hint="add MeterDriver with bindings: {port: meter} to its drivers"
        )
    if board_counter(target) is not None:
        raise ConfigError(
            "the board measures itself with its own counter, which is read over its shell in a bench",
            hint="fsjoule bench measures with it",
        )
    if other := instrument(target):
        raise ConfigError(
            f"the environment file's meter is an instrument behind {type(other).__name__}, without settings to change",
            hint="fsjoule meter info, watch, record and run take it",
        )
    return target.get_driver(METER_DRIVER)


def instrument(target: Target) -> InstrumentBase | None:
    """The active instrument of a target that has another one than fsjoule's own meter; None without one."""
    found = next((each for each in target.drivers if isinstance(each, InstrumentBase)), None)
    if found is not None:
        target.activate(found)
    return found


def board_counter(target: Target) -> BoardCounterDriver | None:
    """The driver of a board that measures itself; None for another one."""
    return next((each for each in target.drivers if isinstance(each, BoardCounterDriver)), None)


def board_meter(
    target: Target,
    health: LabHealth | None = None,
    shell: Callable[[], Shell | None] = lambda: None,
    simulate: Simulate | None = None,
) -> Meter:
    """The active meter of a labgrid target, suited to its board's time. `health` names what has died in the lab.

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
    marked = MarksOfBoard(_meter_itself(target, guest_time=strategy.guest_time), line)
    return marked if health is None else ExplainedMeter(marked, health)


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

    def __init__(self, meter: Meter, health: LabHealth) -> None:
        self._meter = meter
        self._health = health

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
            error.blame(self._health.faults(Part.METER))
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
