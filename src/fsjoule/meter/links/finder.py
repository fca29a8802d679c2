"""Search for meters: listen to every serial port that no other program has open, all at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from serial.tools import list_ports

from fsjoule.errors import MeterError
from fsjoule.meter.instruments import SearchResult
from fsjoule.meter.links.streams import Stream, opener
from fsjoule.meter.protocol import ppk2
from fsjoule.meter.protocol.frames import FrameDecoder, InfoFrame

_LISTEN_S: Final = 1.5  # a meter sends its info every second
_LIMIT_S: Final = 5.0  # opening a port can be slow
_READ_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place where a meter may be; `where` describes it to people."""

    address: str
    where: str
    open: Callable[[], Stream]
    device: tuple[str, ...] = ()


def serial_ports() -> list[Candidate]:
    """The serial ports, less those that their USB tells to be another instrument's."""
    ports: list[Any] = sorted(list_ports.comports(), key=lambda port: port.device)
    return [
        Candidate(port.device, _where(port), opener(port.device), _known_by(port))
        for port in ports
        if (port.vid, port.pid) != ppk2.USB_IDS
    ]


def find(candidates: Iterable[Candidate]) -> list[SearchResult]:
    """Listen at all of them for 1.5 s. Nothing is sent, and no port is opened that another program has open."""
    probes = [_Probe(candidate) for candidate in candidates]
    deadline = time.monotonic() + _LIMIT_S
    return [probe.result(deadline) for probe in probes]


class _Probe:
    """Listens at one place, in a thread that is abandoned if opening hangs."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._found: SearchResult | None = None
        self._thread = threading.Thread(target=self._run, name="fsjoule-probe", daemon=True)
        self._thread.start()

    def result(self, deadline_s: float) -> SearchResult:
        self._thread.join(max(0.0, deadline_s - time.monotonic()))
        return self._found or self._nothing("opening it takes too long")

    def _nothing(self, why: str) -> SearchResult:
        return SearchResult(self._candidate.address, self._candidate.where, why_not=why, device=self._candidate.device)

    def _run(self) -> None:
        try:
            with self._candidate.open() as stream:
                self._found = self._listen(stream)
        except MeterError as error:
            self._found = self._nothing(error.what)
        except OSError as error:
            self._found = self._nothing(f"cannot be opened: {error.strerror or error}")

    def _listen(self, stream: Stream) -> SearchResult:
        decoder = FrameDecoder()
        deadline = time.monotonic() + _LISTEN_S
        while time.monotonic() < deadline:
            for frame in decoder.feed(stream.read(_READ_S)):
                if isinstance(frame, InfoFrame):
                    info, place = frame.info, self._candidate
                    return SearchResult(
                        place.address,
                        place.where,
                        info.serial_number,
                        info,
                        frame=frame,
                        device=place.device,
                    )
        return self._nothing("silent" if not decoder.counters.bytes else "not a meter")


def _known_by(port: Any) -> tuple[str, ...]:  # noqa: ANN401 - pyserial ships no types
    """What labgrid's USBSerialPort matches (ID_SERIAL_SHORT), and the names that udev gives the port."""
    links = [str(link) for link in Path("/dev/serial").glob("*/*") if link.resolve() == Path(port.device).resolve()]
    return tuple(each for each in (port.serial_number, *sorted(links)) if each)


def _where(port: Any) -> str:  # noqa: ANN401 - pyserial ships no types
    words = [port.manufacturer, port.product or (port.description if port.description != "n/a" else None)]
    return " ".join(word for word in words if word) or "serial port"
