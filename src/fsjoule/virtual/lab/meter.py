"""The meter of a virtual lab for callers outside labgrid, without taking bytes from the lab."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fsjoule.errors import ConfigError, LabError
from fsjoule.meter.links.streams import NetworkStream, Stream, TtyStream
from fsjoule.virtual.lab.files import LabPaths

_LISTENS: Final = re.compile(r"tcp,(?:127\.0\.0\.1,)?(\d+)$", re.MULTILINE)


def meter_opener(name: str) -> Callable[[], Stream]:
    """A function that opens the meter of the lab `name`, each time in the right way. NAME/2 is that of its board 2.

    While the lab's place is acquired, the exporter's ser2net has the meter's terminal and serves its bytes to all
    clients; otherwise the terminal is free. Raises LabError if the lab is down.
    """
    lab, _, number = name.partition("/")
    record = LabPaths.of(lab).read()
    if record is None or not record.ready:
        raise LabError(f"the lab {lab!r} is down", hint=f"fsjoule lab up --name {lab}")
    known = {"": 1} | {str(each.number): each.number for each in record.boards}
    if number not in known:
        raise ConfigError.unknown(f"board of the lab {lab!r}", number, list(known)[1:])
    terminal = record.devices_of(known[number]) / "meter"

    def opened() -> Stream:
        port = _served_at(terminal)
        return TtyStream(str(terminal)) if port is None else NetworkStream("127.0.0.1", port, telnet=True)

    return opened


def _served_at(terminal: Path) -> int | None:
    """The port on which a ser2net of this computer serves the terminal, from its arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().decode(errors="replace").replace("\0", "\n")
        except OSError:
            continue
        if f",{terminal}," in arguments and (found := _LISTENS.search(arguments)):
            return int(found.group(1))
    return None
