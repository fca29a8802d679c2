"""Nordic's Power Profiler Kit II at a serial port of this computer, or one that ser2net serves.

An address says where it is and how it measures: `ppk2:/dev/ttyACM0,volts=5`, `ppk2:rfc2217://HOST:PORT,mode=source,
volts=3.3,marks=D0`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

from serial.tools import list_ports

from fsjoule.errors import ConfigError, MeterError
from fsjoule.host.clock import prefer_this_thread
from fsjoule.meter.energy.stated import stated_limits
from fsjoule.meter.instrument_files import read_instrument_file
from fsjoule.meter.instruments import SearchResult
from fsjoule.meter.links.pumped import PumpedTty
from fsjoule.meter.links.recording import RecordingMeter
from fsjoule.meter.links.streams import Stream, opener
from fsjoule.meter.protocol import ppk2
from fsjoule.meter.protocol.ppk2 import INPUTS, LEAST_MV, MOST_MV, SOURCE, USB_IDS, VOLTS, Metadata
from fsjoule.meter.protocol.ppk2_trace import RATE_HZ, Ppk2Trace
from fsjoule.model import Mark, MarkSource, PlainInfo, PlainTrace

_NAME: Final = "ppk2"
_DOCS: Final = "docs/meter.md#nordics-power-profiler-kit-ii"
_FORM: Final = "ppk2:/dev/ttyACM0,volts=5 and, as far as they differ, mode=ampere or source, marks=D0 to D7"
_PATIENCE_S: Final = 2.0
# So long a busy computer may need to read what has come.
_CATCH_UP_S: Final = 1.0
# A stopped instrument has sent what was on its way.
_QUIET_S: Final = 0.05
# So that bytes come in pieces worth decoding; the kernel holds more than a tenth of a second of them.
_GATHER_S: Final = 0.01
_READ_S: Final = 0.1
_SHOWN_BYTES: Final = 40
_FULL_BYTES: Final = 2048
_MOST_PIECES: Final = 8


@dataclass(frozen=True, slots=True)
class Ppk2Settings:
    """How it measures. `volts` is the supply of the device: set as a source meter, told as an ampere meter.

    `mark_input` is the number of the logic input whose edges are marks; None without one.
    """

    volts: float
    source: bool = False
    mark_input: int | None = None

    @classmethod
    def read(cls, words: dict[str, str]) -> Ppk2Settings:
        """The settings as an address or an environment file has them. Raises ConfigError."""
        if unknown := sorted(words.keys() - {"volts", "mode", "marks"}):
            raise ConfigError(f"a PPK2 has no setting {unknown[0]!r}", hint=_FORM)
        if "volts" not in words:
            raise ConfigError(
                "a PPK2 measures no voltage, and without the device's there are no joules",
                hint=f"{_FORM}: as a source meter it supplies this voltage",
            )
        try:
            volts = float(words["volts"])
        except ValueError:
            raise ConfigError(f"volts={words['volts']} is no number", hint=_FORM) from None
        if not LEAST_MV <= volts * 1e3 <= MOST_MV:
            raise ConfigError(f"volts={volts:g}: a PPK2 works with {LEAST_MV / 1e3} to {MOST_MV / 1e3} V", hint=_FORM)
        mode, marks = words.get("mode", "ampere"), words.get("marks", "")
        if mode not in ("ampere", "source"):
            raise ConfigError.unknown("mode of a PPK2", mode, ["ampere", "source"])
        inputs = [f"D{number}" for number in range(INPUTS)]
        if marks and marks not in inputs:
            raise ConfigError.unknown("logic input of a PPK2", marks, inputs)
        return cls(volts, mode == "source", inputs.index(marks) if marks else None)


def meter(name: str) -> Ppk2Meter:
    """The PPK2 at an address without its prefix. Raises ConfigError; it is opened by `with`."""
    where, *words = name.split(",")
    pairs = [word.partition("=") for word in words]
    settings = Ppk2Settings.read({key.strip(): value.strip() for key, _, value in pairs})
    if where.startswith("/") and not os.path.exists(where):  # noqa: PTH110 - a link to a terminal may be broken
        raise MeterError(f"there is no port {where}", hint="fsjoule meter list shows all meters")
    return Ppk2Meter((lambda: PumpedTty(where)) if where.startswith("/") else opener(where), where, settings)


def find() -> list[SearchResult]:
    """The PPK2s at this computer, by the numbers that their USB tells. None is opened.

    Newer firmware has a second port, a shell; samples come from the one with the lower interface.
    """
    first: dict[str, Any] = {}
    listed: list[Any] = list_ports.comports()
    for port in sorted(listed, key=lambda each: (each.location or "", each.device)):
        if (port.vid, port.pid) == USB_IDS:
            first.setdefault(port.serial_number or port.device, port)
    return [
        SearchResult(f"{_NAME}:{port.device}", "USB", f"PPK2 {number}", device=(number, port.device))
        for number, port in first.items()
    ]


class Ppk2Meter(RecordingMeter[Ppk2Trace]):
    """ports.Meter of one PPK2, for a `with` statement: it is asked what it is, set, and its output switched on.

    The clock of its traces is the instrument's own, and begins at the host's monotonic one. Errors are MeterError.
    """

    def __init__(self, open_stream: Callable[[], Stream], name: str, settings: Ppk2Settings) -> None:
        super().__init__(_PATIENCE_S, f"the PPK2 at {name} sends no samples", "unplug it and plug it in again")
        self._open_stream = open_stream
        self._name = name
        self._settings = settings
        self._closing = threading.Event()
        self._stream: Stream | None = None
        self._metadata: Metadata | None = None
        self._thread = threading.Thread(target=self._run, name="fsjoule-ppk2", daemon=True)

    def __enter__(self) -> Self:
        try:
            self._stream = self._open_stream()
        except OSError as error:
            raise MeterError(
                f"{self._name} cannot be opened: {error.strerror or error}", transient=True, hint="is it plugged in?"
            ) from error
        try:
            self._metadata = self._ask()
            self._info = _info(self._metadata, self._settings)
            self._set_up()
        except BaseException:
            self._stream.close()
            raise
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.set()
        self._thread.join(timeout=_PATIENCE_S)
        stream = self._opened
        try:
            stream.write(ppk2.STOP)
        except OSError:
            pass  # it is gone
        finally:
            stream.close()

    def arm(self) -> None:
        """Start recording; returns at the first samples. Raises MeterError."""
        assert self._metadata is not None
        settings = self._settings
        trace = Ppk2Trace(self._info, self._metadata.constants, settings.volts, settings.mark_input)
        self._send(ppk2.STOP)
        time.sleep(_QUIET_S)
        with self._lock:
            self._trace = trace
        self._send(ppk2.START)
        self._wait(lambda: trace.end_us > 0)

    def mark_now(self, text: str, source: MarkSource = MarkSource.HOST) -> Callable[[], None]:
        """Mark this moment; nothing need be waited for."""
        time_us = _now_us()
        with self._lock:
            if self._trace is not None and self._trace.end_us:
                self._trace.mark(Mark(time_us, text, source))
        return lambda: None

    @property
    def _opened(self) -> Stream:
        assert self._stream is not None
        return self._stream

    def _ask(self) -> Metadata:
        """What it is. It may have been left measuring, so it is stopped and its samples are drained first."""
        self._send(ppk2.STOP)
        drained = self._heard(lambda _data: False, _QUIET_S)
        self._send(ppk2.GET_METADATA)
        reply = self._heard(lambda data: ppk2.METADATA_END in data, _PATIENCE_S)
        hint = f"is it a PPK2, and its first port? {_DOCS} has addresses"
        if ppk2.METADATA_END not in reply:
            seen = reply or drained
            what = f"it answers {seen[:_SHOWN_BYTES]!r}" if seen else "it answers nothing"
            raise MeterError(f"{self._name} does not say that it is a PPK2: {what}", hint=hint)
        try:
            return ppk2.parse_metadata(reply)
        except ValueError as error:
            raise MeterError(f"the calibration that {self._name} tells cannot be used: {error}", hint=hint) from error

    def _heard(self, enough: Callable[[bytes], bool], quiet_s: float) -> bytes:
        """What arrives until it is enough, or until nothing has come for so long; at most 2 s."""
        heard, now_s = b"", time.monotonic()
        last_s = begin_s = now_s
        while now_s - last_s < quiet_s and now_s - begin_s < _PATIENCE_S:
            try:
                data = self._opened.read(quiet_s)
            except OSError as error:
                raise self._gone(error) from error
            # ser2net's own words are no data, and end a read, too.
            now_s = time.monotonic()
            last_s = now_s if data else last_s
            heard += data
            if enough(heard):
                break
        return heard

    def _set_up(self) -> None:
        settings = self._settings
        self._send(ppk2.power_mode(ppk2.SOURCE_MODE if settings.source else ppk2.AMPERE_MODE))
        self._send(ppk2.supply_mv(round(settings.volts * 1e3)))
        self._send(ppk2.output(on=True))

    def _send(self, command: bytes) -> None:
        try:
            self._opened.write(command)
        except OSError as error:
            raise self._gone(error) from error

    def _gone(self, error: OSError) -> MeterError:
        return MeterError(
            f"the PPK2 at {self._name} is gone: {error.strerror or error}",
            transient=True,
            hint="was it unplugged? A device that it supplies has lost its power",
        )

    def _wait_for_now(self, trace: Ppk2Trace) -> None:
        with self._lock:
            now_us, begin_us = trace.at(_now_us()), trace.end_us
        deadline = time.monotonic() + _CATCH_UP_S

        def has_come() -> bool:
            # Where samples are lost, they are late for ever.
            late = trace.end_us < now_us or trace.is_late
            return not late or (trace.end_us > begin_us and time.monotonic() > deadline)

        self._wait(has_come)

    def _rest(self, trace: Ppk2Trace) -> PlainTrace:
        with self._lock:
            taken = trace.take()
        self._send(ppk2.STOP)
        return taken

    def _run(self) -> None:
        prefer_this_thread()
        stream = self._opened
        while not self._closing.is_set():
            try:
                data = _all_of(stream)
            except OSError as error:
                with self._lock:
                    self._trouble = self._gone(error)
                return
            heard_us = _now_us()
            if data:
                with self._lock:
                    if self._trace is not None:
                        self._trace.feed(data, heard_us)
            self._closing.wait(_GATHER_S)


def _all_of(stream: Stream) -> bytes:
    """What has arrived, after waiting for it. A terminal hands out 4 KiB at once, and more may be behind it."""
    pieces = [stream.read(_READ_S)]
    while len(pieces[-1]) > _FULL_BYTES and len(pieces) < _MOST_PIECES:
        pieces.append(stream.read(_READ_S))
    return b"".join(pieces)


def _now_us() -> int:
    return time.monotonic_ns() // 1000


def _info(metadata: Metadata, settings: Ppk2Settings) -> PlainInfo:
    file = read_instrument_file(metadata.identity)
    limits = {} if file is None or file.accuracy is None else stated_limits(file.accuracy)
    gains = {f"user gain {number}": float(gain) for number, gain in enumerate(metadata.constants.ug)}
    return PlainInfo(
        instrument=_NAME,
        firmware=f"hardware {metadata.hardware}",
        serial_number=metadata.identity,
        rate_hz=RATE_HZ,
        measures_voltage=True,  # set or told: the uncertainty tells the difference
        simulated=metadata.simulated,
        settings={SOURCE: float(settings.source), VOLTS: settings.volts, **gains, **limits},
    )
