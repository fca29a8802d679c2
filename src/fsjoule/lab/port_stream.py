"""A labgrid serial port as a byte stream: of this computer, or served by an exporter's ser2net."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, cast

from labgrid.resource import SerialPort
from labgrid.util.proxy import proxymanager

from fsjoule.errors import LabError, MeterError
from fsjoule.lab.translate import lab_errors
from fsjoule.meter.links.streams import NetworkStream, Stream, TtyStream

HINT: Final = "is it plugged in, and does the environment file bind the name that its port is exported by?"


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
