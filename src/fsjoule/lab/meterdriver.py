"""The meter as a labgrid driver on a named serial port."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, cast

import attr
from labgrid import Target
from labgrid.driver import Driver
from labgrid.factory import target_factory
from labgrid.resource import SerialPort
from labgrid.step import step
from labgrid.util.proxy import proxymanager

from fsjoule.errors import LabError, MeterError
from fsjoule.lab.translate import lab_errors
from fsjoule.meter.links.client import MeterClient
from fsjoule.meter.links.receiver import Receiver
from fsjoule.meter.links.streams import NetworkStream, Stream, TtyStream
from fsjoule.meter.protocol.frames import StreamCounters
from fsjoule.model import MeterInfo, MeterStatus, Trace

_HINT: Final = "is it plugged in, and does the environment file bind the name that its port is exported by?"


@target_factory.reg_driver
@attr.s(eq=False)
class MeterDriver(Driver):
    """Receives the meter's stream in the background as long as it is active (ports.Meter), and sends it commands.

    It is not a console: a second ConsoleProtocol would break ShellDriver's binding. Bind it by the port's name:
    `MeterDriver: {bindings: {port: meter}}`. The receiving thread calls nothing of labgrid's, whose steps know one
    thread only.
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
            self._receiver = Receiver(opener, hint=_HINT)

    def on_deactivate(self) -> None:
        # labgrid deactivates drivers whose port is not there, at any activation of another one. That is when a
        # recording has to go on: the receiver waits for the port by itself.
        self._unplugged = not self.port.avail
        if not self._unplugged and self._receiver is not None:
            self._receiver.close()
            self._receiver = None

    @step(result=True)
    def info(self) -> MeterInfo:
        """What the meter says of itself. Raises MeterError if it is silent for 2 s."""
        return self._receiving().wait_info().info

    @step()
    def arm(self) -> None:
        """Start recording; returns when the first new sample has arrived. Raises MeterError if the meter is silent."""
        self._receiving().arm()

    @step()
    def disarm(self) -> Trace:
        """Stop recording and return everything since `arm`, with the samples up to now.

        Raises MeterError if the meter fell silent.
        """
        return self._active_receiver().disarm()

    @step(args=["rate_hz"])
    def set_rate(self, rate_hz: int) -> MeterInfo:
        """Set how many samples the meter takes a second. Raises MeterError if it cannot hold the rate."""
        return self.client().set_rate(rate_hz).info

    @step(args=["range_mv"])
    def set_range(self, range_mv: int) -> MeterInfo:
        """Set the shunt's full scale: 40, 80, 160 or 320 mV."""
        return self.client().set_range(range_mv).info

    @step(args=["text"])
    def mark(self, text: str) -> None:
        """Put a mark of the host's into the stream."""
        self.client().mark(text)

    def status(self) -> MeterStatus:
        """What may change while the meter runs, asked now."""
        return self.client().info().status

    def client(self) -> MeterClient:
        """All commands, for as long as the driver is active. Raises MeterError if the meter was given up."""
        return MeterClient(self._receiving())

    @property
    def counters(self) -> StreamCounters:
        """What became of the stream since the driver was activated."""
        return self._active_receiver().counters

    @Driver.check_active
    def _check(self) -> None:
        """Raise what labgrid raises for a driver that was not activated."""

    def _active_receiver(self) -> Receiver:
        if self._unplugged:
            with _meter_errors("finding the meter's port again"):
                self._labgrid.activate(self)
        self._check()
        assert self._receiver is not None
        return self._receiver

    def _receiving(self) -> Receiver:
        """The receiver, running: after it gave up, every use gives it a new chance, with the port's address of now.

        Raises MeterError if it gave up because the meter speaks another protocol, or because another program reads its
        port; the use after that tries again. Raises MeterError if the port is not there.
        """
        receiver = self._active_receiver()
        if not receiver.running:
            receiver.close()
            self._receiver = Receiver(self._opener(), hint=_HINT)
            if receiver.refused is not None:
                raise receiver.refused
        return self._receiver or receiver

    @property
    def _labgrid(self) -> Target:
        assert self.target is not None
        return self.target

    def _opener(self) -> Callable[[], Stream]:
        with _meter_errors("finding the meter's port"):
            self.port.poll()  # an exporter that was started anew serves it under another number
            if isinstance(self.port, SerialPort):
                path, speed = self.port.port, self.port.speed
                return lambda: TtyStream(path, speed)
            host, port = cast("tuple[str, int]", proxymanager.get_host_and_port(self.port))
            telnet = self.port.protocol == "rfc2217"
            return lambda: NetworkStream(host, port, telnet=telnet)


@contextmanager
def _meter_errors(doing: str) -> Generator[None]:
    """What labgrid cannot do about the port is the meter's failure to whoever uses the meter."""
    try:
        with lab_errors(doing):
            yield
    except LabError as error:
        raise MeterError(error.what, transient=True, hint=_HINT) from error


def meter(target: Target) -> MeterDriver:
    """The meter of a labgrid target, active."""
    return target.get_driver("MeterDriver")
