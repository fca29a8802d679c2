"""Addresses of meters: a terminal of this computer, a raw TCP port, or a port that ser2net serves (as labgrid uses)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.meter.instruments import ADDRESSES
from fsjoule.meter.links.streams import NetworkStream, Stream, TtyStream

_TELNET: Final = "rfc2217://"
_LARGEST_PORT: Final = 65535
FORMS: Final = "/dev/ttyUSB0, HOST:PORT for raw TCP, or rfc2217://HOST:PORT for a port that ser2net serves"


def opener(address: str) -> Callable[[], Stream]:
    """A function that opens the meter at this address; only then does an absent meter show. Raises ConfigError."""
    if address.startswith("/"):
        return lambda: TtyStream(address)
    telnet = address.startswith(_TELNET)
    host, _, port = address.removeprefix(_TELNET).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) <= _LARGEST_PORT:
        raise ConfigError(f"{address!r} is not a meter's address", hint=f"an address is {FORMS}, lab:NAME, {ADDRESSES}")
    return lambda: NetworkStream(host, int(port), telnet=telnet)
