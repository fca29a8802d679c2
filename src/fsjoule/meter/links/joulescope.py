"""Joulescopes (JS110, JS220, JS320) through their maker's driver, `pyjoulescope_driver`.

An address is the model and the serial number: `js220/000415`. Power and voltage come at the full rate and are summed
here. Input 0 carries the marks. The current's range is left to the instrument. `FSJOULE_JOULESCOPE` names another
module with the driver's interface.
"""

from __future__ import annotations

import importlib.util
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from fsjoule.errors import ConfigError, MeterError
from fsjoule.host.extras import how_to_install
from fsjoule.meter.energy.stated import stated_limits
from fsjoule.meter.instrument_files import file_of, read_instrument_file
from fsjoule.meter.instruments import SearchResult
from fsjoule.meter.protocol.joulescope import JOULESCOPE, POWER, VOLTAGE, Message, StreamTrace
from fsjoule.model import PlainInfo, PlainTrace

_T = TypeVar("_T")
_MODULE: Final = "FSJOULE_JOULESCOPE"
_ROOT: Final = "u/"
# What a model needs beside its defaults.
_SETTINGS: Final = {
    "js110": (("s/i/range/select", "auto"),),
    "js220": (("s/i/range/mode", "auto"),),
    "js320": (),
}
_STREAMS: Final = {"s/p": POWER, "s/v": VOLTAGE}
_MARKS: Final = "s/gpi/0"
_REMOVED: Final = "@/!remove"
_VERSION: Final = "c/fw/version"
_RATE_HZ: Final = 1000
_PATIENCE_S: Final = 5.0
_LOOK_S: Final = 0.01
_SIMULATED: Final = "SIM"
_DOCS: Final = "docs/meter.md#joulescope"
_HINT: Final = f"does no other program use it, and may you use USB devices? {_DOCS}"


class JoulescopeMeter:
    """The meter of one instrument (`fsjoule.meter.instruments.InstrumentMeter`). Its traces have its own clock.

    Raises ConfigError without the driver, or if no instrument file states its accuracy; MeterError if it is not there.
    """

    def __init__(self, name: str) -> None:
        module = _module()
        self._now: Callable[[], int] = module.time64.now
        self._name = f"the Joulescope {name}"
        self._path = f"{_ROOT}{name}"
        self._lock = threading.Lock()
        self._trace: StreamTrace | None = None
        self._trouble: MeterError | None = None
        self._subscribed: list[tuple[str, Callable[[str, Any], None]]] = []
        self._driver: Any = self._checked(module.Driver, "the Joulescope driver does not start")
        try:
            self._info = self._opened(name)
        except BaseException:
            self._driver.finalize()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._stop()
            self._driver.close(self._path)
        except (RuntimeError, TimeoutError):
            pass  # it is gone, which was told
        finally:
            self._driver.finalize()

    def info(self) -> PlainInfo:
        return self._info

    def arm(self) -> None:
        """Start recording, and wait for the first whole tick. Raises MeterError."""
        self._checked(self._stop, f"{self._name} does not stop")
        with self._lock:
            self._trace = trace = StreamTrace(self._info)
        for topic, quantity in _STREAMS.items():
            self._listen(topic, lambda message, quantity=quantity: trace.stream(quantity, message))
        self._listen(_MARKS, trace.bits)
        self._wait(lambda: trace.begun)
        self._raise_trouble()

    def disarm(self) -> PlainTrace:
        """Stop recording. Returns everything since `arm` that was not taken, up to now."""
        self._wait_for_now()
        self._raise_trouble()
        self._checked(self._stop, f"{self._name} does not stop")
        taken = self._taken(last=True)
        with self._lock:
            self._trace = None
        return taken

    def take(self, *, whole: bool = False) -> PlainTrace:
        """The ticks since `arm` or the last call, with their marks; `whole` waits for those up to now.

        Raises MeterError if it was not armed, or if the instrument is gone and all ticks before that are taken.
        """
        if whole:
            self._wait_for_now()
        taken = self._taken()
        if not len(taken.ticks):
            self._raise_trouble()
        return taken

    def mark_now(self, text: str) -> Callable[[], None]:
        """Mark this moment; nothing need be waited for."""
        utc = self._now()
        with self._lock:
            if self._trace is not None:
                self._trace.mark(utc, text)
        return lambda: None

    def _opened(self, name: str) -> PlainInfo:
        model, _, serial = name.partition("/")
        present = [path.removeprefix(_ROOT) for path in self._checked(self._driver.device_paths, "no device is listed")]
        listed = ", ".join(f"joulescope:{each}" for each in present) or "none"
        if name not in present:
            raise MeterError(f"there is no Joulescope {name!r}", hint=f"connected: {listed}")
        if model not in _SETTINGS:
            raise MeterError(
                f"{name} is a model that this version does not know", hint=f"known: {', '.join(_SETTINGS)}"
            )
        file = read_instrument_file(serial)
        if file is None or file.accuracy is None:
            raise ConfigError(
                f"nothing is known of the accuracy of the Joulescope {name}",
                hint=f"write that of the range which the load needs into {file_of(serial)}: {_DOCS}",
            )
        self._checked(lambda: self._driver.open(self._path), f"{self._name} cannot be opened")
        self._driver.subscribe(_REMOVED, "pub", self._removed)
        for topic, value in _SETTINGS[model]:
            self._publish(topic, value)
        return PlainInfo(
            instrument=JOULESCOPE,
            firmware=f"{model.upper()} {self._version()}".strip(),
            serial_number=serial,
            rate_hz=_RATE_HZ,
            measures_voltage=True,
            simulated=serial.startswith(_SIMULATED),
            settings=stated_limits(file.accuracy),
        )

    def _version(self) -> str:
        """The firmware's version, u32: major 8, minor 8 and patch 16 bits; "" if the model has none."""
        try:
            version = int(self._driver.query(f"{self._path}/{_VERSION}"))
        except (RuntimeError, TimeoutError, TypeError):
            return ""
        return f"{version >> 24}.{version >> 16 & 0xFF}.{version & 0xFFFF}"

    def _listen(self, topic: str, take: Callable[[Message], None]) -> None:
        def received(_topic: str, message: Message) -> None:
            with self._lock:
                take(message)

        data = f"{self._path}/{topic}/!data"
        self._checked(lambda: self._driver.subscribe(data, "pub", received), f"{self._name} does not stream {topic}")
        self._subscribed.append((topic, received))
        self._publish(f"{topic}/ctrl", "on")

    def _stop(self) -> None:
        """Stop the streams. Raises RuntimeError, TimeoutError."""
        subscribed, self._subscribed = self._subscribed, []
        for topic, received in subscribed:
            self._driver.unsubscribe(f"{self._path}/{topic}/!data", received)
            self._driver.publish(f"{self._path}/{topic}/ctrl", "off")

    def _publish(self, topic: str, value: str) -> None:
        self._checked(
            lambda: self._driver.publish(f"{self._path}/{topic}", value), f"{self._name} refuses {topic} = {value}"
        )

    def _removed(self, _topic: str, path: str) -> None:
        if path == self._path:
            with self._lock:
                self._trouble = MeterError(f"{self._name} was unplugged", hint="plug it in, and start again")

    def _taken(self, *, last: bool = False) -> PlainTrace:
        with self._lock:
            if self._trace is None:
                raise MeterError("the meter was not armed", hint="call arm() before disarm()")
            return self._trace.take(last=last)

    def _wait_for_now(self) -> None:
        utc = self._now()
        trace = self._trace
        if trace is not None:
            self._wait(lambda: trace.end_us() >= trace.time_us(utc))

    def _wait(self, done: Callable[[], bool]) -> None:
        """Until it is so, or trouble."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with self._lock:
                if self._trouble is not None or done():
                    return
                if time.monotonic() > deadline:
                    self._trouble = MeterError(
                        f"{self._name} sent nothing for {_PATIENCE_S:g} s", transient=True, hint=_HINT
                    )
                    return
            time.sleep(_LOOK_S)

    def _raise_trouble(self) -> None:
        if self._trouble is not None:
            raise self._trouble

    def _checked(self, call: Callable[[], _T], what: str) -> _T:
        """The result of a call of the driver. Raises MeterError with its reason."""
        try:
            return call()
        except (RuntimeError, TimeoutError, ValueError) as error:
            raise MeterError(f"{what}: {error}", hint=_HINT) from error


def meter(name: str) -> JoulescopeMeter:
    """The meter at an address. Raises ConfigError, MeterError."""
    return JoulescopeMeter(name)


def find() -> list[SearchResult]:
    """The Joulescopes at USB, as the driver lists them. None is opened."""
    if not _is_installed():
        return []
    try:
        with _module().Driver() as driver:
            paths: list[str] = driver.device_paths()
    except (RuntimeError, TimeoutError) as error:
        raise MeterError(f"the Joulescope driver lists no devices: {error}", hint=_HINT) from error
    return [_found(path.removeprefix(_ROOT)) for path in sorted(paths)]


def _found(name: str) -> SearchResult:
    model, _, serial = name.partition("/")
    where = "emulated" if serial.startswith(_SIMULATED) else "at USB"
    return SearchResult(f"joulescope:{name}", f"Joulescope {model.upper()} {where}", serial, device=(serial,))


def _module() -> Any:  # noqa: ANN401 - a module without types
    try:
        return importlib.import_module(_module_name())  # an extra of fsjoule
    except ImportError as error:
        hint = f"{_MODULE} names it" if _MODULE in os.environ else how_to_install("joulescope")
        raise ConfigError(f"{_module_name()} is not installed", hint=hint) from error


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec(_module_name()) is not None
    except ModuleNotFoundError:  # nor is the package that it would be in
        return False


def _module_name() -> str:
    return os.environ.get(_MODULE) or "pyjoulescope_driver"
