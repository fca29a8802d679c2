"""Where a meter is: a terminal of this computer, a raw TCP port, or one that ser2net serves (as labgrid has it do)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.meter.links.streams import NetworkStream, Stream, TtyStream

_TELNET: Final = "rfc2217://"
_LARGEST_PORT: Final = 65535
FORMS: Final = "/dev/ttyUSB0, HOST:PORT for raw TCP, or rfc2217://HOST:PORT for one that ser2net serves"


def opener(address: str) -> Callable[[], Stream]:
    """What opens the meter at this address. Raises ConfigError if it is no address; an absent meter shows later."""
    if address.startswith("/"):
        return lambda: TtyStream(address)
    telnet = address.startswith(_TELNET)
    host, _, port = address.removeprefix(_TELNET).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) <= _LARGEST_PORT:
        raise ConfigError(f"{address!r} is no meter's address", hint=f"an address is {FORMS}")
    return lambda: NetworkStream(host, int(port), telnet=telnet)
