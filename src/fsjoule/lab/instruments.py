"""Other instruments than fsjoule's own meter as labgrid drivers, and marks that the host stamps for them.

`Ppk2Driver` has a serial port of its exporter, `InstrumentDriver` any address of `fsjoule meter`. An instrument without
an input for marks needs a `MarkLineDriver`: it listens to the board's mark line, a serial port, too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final, Self, cast

import attr
from labgrid.binding import BindingState
from labgrid.driver import Driver
from labgrid.factory import target_factory
from labgrid.resource import Resource, SerialPort
from labgrid.step import step
from labgrid.util.proxy import proxymanager

from fsjoule.errors import ConfigError, LabError, MeterError
from fsjoule.lab.arguments import number, text
from fsjoule.lab.energy_analyzer import Analyzer
from fsjoule.lab.translate import lab_errors
from fsjoule.meter.instruments import InstrumentMeter, addresses, kind_at
from fsjoule.meter.links.mark_listener import MarkListener
from fsjoule.meter.links.ppk2 import Ppk2Meter, Ppk2Settings
from fsjoule.meter.links.pumped import PumpedTty
from fsjoule.meter.links.streams import NetworkStream, Stream, TtyStream
from fsjoule.model import MarkSource, PlainInfo, PlainTrace
from fsjoule.model.mark_line import damaged_marks, read_line

MARK_LINE_DRIVER: Final = "MarkLineDriver"
HINT: Final = "is it plugged in, and does the environment file bind the name that its port is exported by?"


class InstrumentBase(Driver, Analyzer):
    """ports.Meter of an instrument, which is opened when it is first used, and again after it was gone."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._open: InstrumentMeter | None = None

    @abstractmethod
    def opened(self) -> InstrumentMeter:
        """The instrument, not entered yet. Raises ConfigError, MeterError."""

    @property
    @abstractmethod
    def where(self) -> tuple[str, str]:
        """What a run notes of it: a class of labgrid, and an address."""

    def on_deactivate(self) -> None:
        self._close()

    @step(result=True)
    def info(self) -> PlainInfo:
        """The instrument's info. Raises MeterError if it does not answer."""
        with self._used() as instrument:
            return instrument.info()

    @step()
    def arm(self) -> None:
        """Start recording, and wait for the first sample. Raises MeterError."""
        with self._used() as instrument:
            instrument.arm()

    @step()
    def disarm(self) -> PlainTrace:
        """Stop recording. Returns everything since `arm`, up to now. Raises MeterError."""
        with self._used() as instrument:
            return instrument.disarm()

    def take(self, *, whole: bool = False) -> PlainTrace:
        """See `InstrumentMeter`."""
        with self._used() as instrument:
            return instrument.take(whole=whole)

    def mark_now(self, text: str) -> Callable[[], None]:
        """Mark this moment; without effect if nothing is recorded."""
        return (lambda: None) if self._open is None else self._open.mark_now(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """It stays open for as long as the driver is active."""

    @contextmanager
    def _used(self) -> Generator[InstrumentMeter]:
        _activate(self)
        try:
            if self._open is None:
                opened = self.opened()
                opened.__enter__()
                self._open = opened
            yield self._open
        except MeterError:
            self._close()
            raise

    def _close(self) -> None:
        was, self._open = self._open, None
        if was is not None:
            was.__exit__(None, None, None)


def _activate(driver: Driver) -> None:
    """Labgrid deactivates a driver whose port is away for a moment. Raises MeterError if the port is not back."""
    if driver.state is BindingState.active:
        return
    assert driver.target is not None
    with meter_errors("finding the meter's port again"):
        driver.target.activate(driver)


def _mode() -> Any:  # noqa: ANN401 - like attrs
    def check(_owner: object, _attribute: object, value: object) -> None:
        if value != "ampere":
            raise ValueError(
                "a bench has mode: ampere. As a source meter it would supply the board after its boot only"
            )

    return attr.ib(default="ampere", validator=check)


@target_factory.reg_driver
@attr.s(eq=False)
class Ppk2Driver(InstrumentBase):
    """Nordic's Power Profiler Kit II at a serial port: `Ppk2Driver: {bindings: {port: ppk2}, volts: 5.0, marks: D0}`.

    `volts` is the board's supply. As a source meter (`mode: source`) it works at the desk only: here it is opened when
    it is first used, after the boot. `marks` is the logic input that the board's GPIO is wired to.
    """

    bindings = {"port": {"SerialPort", "NetworkSerialPort"}}  # noqa: RUF012 - labgrid's way
    volts: float = number()
    mode: str = _mode()
    marks: str = text("")

    def opened(self) -> InstrumentMeter:
        words = {"volts": str(self.volts), "mode": self.mode, "marks": self.marks}
        settings = Ppk2Settings.read(words)
        name = " ".join(filter(None, self.where))
        return Ppk2Meter(port_opener(self.port, lambda path, _speed: PumpedTty(path)), name, settings)

    @property
    def where(self) -> tuple[str, str]:
        port: Any = self.port
        host, number = getattr(port, "host", None), getattr(port, "port", None)
        return type(port).__name__, str(number or "") if host is None else f"{host}:{number}"


def _address(default: object = attr.NOTHING) -> Any:  # noqa: ANN401 - like attrs
    def check(_owner: object, _attribute: object, value: object) -> None:
        if value != default and (not isinstance(value, str) or kind_at(value) is None):
            raise ValueError(f"an address is {addresses()}")

    return attr.ib(default=default, validator=check)


@target_factory.reg_resource
@attr.s(eq=False)
class Instrument(Resource):
    """An instrument that belongs to a place, by the address at which its users reach it: not one at a serial port."""

    address: str = _address()


@target_factory.reg_driver
@attr.s(eq=False)
class InstrumentDriver(InstrumentBase):
    """An instrument by its address: `InstrumentDriver: {address: 'powercap:intel-rapl:0'}`.

    Or the one that the place has, a resource `Instrument`: `InstrumentDriver: {bindings: {instrument: NAME}}`.
    """

    bindings = {"instrument": {"Instrument", None}}  # noqa: RUF012 - labgrid's way
    address: str = _address("")

    def opened(self) -> InstrumentMeter:
        _, address = self.where
        kind = kind_at(address)
        if kind is None:
            # labgrid says nothing of a binding that may be missing: of a wrong name, or of several resources.
            target: Any = self.target
            known = [str(each.name) for each in target.resources if isinstance(each, Instrument)]
            if known:
                what = f"InstrumentDriver is bound to none of the place's instruments: {', '.join(known)}"
                raise ConfigError(what, hint=f"bindings: {{instrument: {known[0]}}}")
            raise ConfigError("InstrumentDriver has no address", hint="give it one, or the place an Instrument")
        return kind.link().meter(address.removeprefix(kind.prefix))

    @property
    def where(self) -> tuple[str, str]:
        bound: Instrument | None = self.instrument
        return type(self).__name__, self.address if self.address or bound is None else bound.address


@target_factory.reg_driver
@attr.s(eq=False)
class MarkLineDriver(Driver):
    """The board's mark line at a serial port of its exporter, whose lines the host stamps when they arrive."""

    bindings = {"port": {"SerialPort", "NetworkSerialPort"}}  # noqa: RUF012 - labgrid's way

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._listener: MarkListener | None = None

    def on_deactivate(self) -> None:
        with suppress(MeterError):  # the line went with its port
            self.stop()

    def start(self, heard: Callable[[str], object]) -> None:
        """Listen; `heard` is called with the text of each line as it comes. Raises MeterError."""
        self.stop()
        _activate(self)
        self._listener = MarkListener(port_opener(self.port), heard)

    def stop(self) -> None:
        """Stop listening. Raises MeterError if the line was lost meanwhile."""
        was, self._listener = self._listener, None
        if was is not None:
            was.close()


class HostMarked:
    """ports.Meter of an instrument whose marks are those of a line that the host listens to."""

    def __init__(self, instrument: InstrumentBase, line: MarkLineDriver) -> None:
        self._instrument = instrument
        self._line = line

    def info(self) -> PlainInfo:
        return self._instrument.info()

    def arm(self) -> None:
        self._instrument.arm()
        self._line.start(self._instrument.mark_now)

    def disarm(self) -> PlainTrace:
        self._line.stop()
        trace = self._instrument.disarm()
        heard = [(each, *read_line(each.text)) for each in trace.marks if each.source is MarkSource.HOST]
        marks = tuple(
            replace(each, text=text, source=MarkSource.LINE, checked=checked)
            for each, text, checked, damaged in heard
            if not damaged
        )
        lost = [text for _, text, _, damaged in heard if damaged]
        return replace(trace, marks=marks, faults=(*trace.faults, damaged_marks(lost)) if lost else trace.faults)


def port_opener(
    port: Any,  # noqa: ANN401 - labgrid has no types
    terminal: Callable[[str, int], Stream] = TtyStream,
) -> Callable[[], Stream]:
    """A function that opens the port, at its present address; `terminal` opens one of this computer.

    Raises MeterError if labgrid does not know where the port is.
    """
    with meter_errors("finding the meter's port"):
        port.poll()  # a restarted exporter serves it under another number
        if isinstance(port, SerialPort):
            path, speed = port.port, port.speed
            return lambda: terminal(path, speed)
        host, number = cast("tuple[str, int]", proxymanager.get_host_and_port(port))
        telnet = port.protocol == "rfc2217"
        return lambda: NetworkStream(host, number, telnet=telnet)


@contextmanager
def meter_errors(doing: str) -> Generator[None]:
    """Errors of labgrid about the port become the meter's errors."""
    try:
        with lab_errors(doing):
            yield
    except LabError as error:
        raise MeterError(error.what, transient=True, hint=HINT) from error
