"""The meter as a labgrid driver on a named serial port."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attr
from labgrid import Target
from labgrid.driver import Driver
from labgrid.factory import target_factory
from labgrid.step import step

from fsjoule.errors import ConfigError, NoMeterError
from fsjoule.lab.board_counter import BoardCounterDriver
from fsjoule.lab.instruments import InstrumentBase
from fsjoule.lab.port_stream import HINT, meter_errors, port_opener
from fsjoule.meter.links.client import MeterClient
from fsjoule.meter.links.receiver import Receiver
from fsjoule.meter.links.streams import Stream
from fsjoule.meter.protocol.sequence import StreamCounters
from fsjoule.model import Ina219Info, Ina219Trace, MeterInfo, MeterStatus, Trace

METER_DRIVER: Final = "MeterDriver"


@target_factory.reg_driver
@attr.s(eq=False)
class MeterDriver(Driver):
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
