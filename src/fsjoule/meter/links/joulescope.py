"""Joulescopes (JS110, JS220, JS320) through their maker's driver, `pyjoulescope_driver`.

An address is the model and the serial number: `js220/000415`. Power and voltage come at the full rate and are summed
here. Input 0 carries the marks. The current's range is left to the instrument. `FSJOULE_JOULESCOPE` names another
module with the driver's interface.

A message has `data` from `sample_id` on, one sample per `decimate_factor` counts of a clock of `sample_rate`. The power
is summed into ticks, so no sample is left out; NaN is a sample that did not arrive. Digital inputs come as bits, eight
a byte, the earliest lowest: a message is only as long as the next one's `sample_id` allows.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import numpy as np
import numpy.typing as npt

from fsjoule.errors import ConfigError, MeterError
from fsjoule.host.extras import how_to_install
from fsjoule.meter.energy.stated import stated_limits
from fsjoule.meter.instrument_files import file_of, read_instrument_file
from fsjoule.meter.instruments import SearchResult
from fsjoule.meter.links.recording import RecordingMeter
from fsjoule.model import Mark, MarkSource, PlainInfo, PlainTrace

JOULESCOPE: Final = "joulescope"
POWER: Final = "p"
VOLTAGE: Final = "v"

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
_SIMULATED: Final = "SIM"
_DOCS: Final = "docs/meter.md#joulescope"
_HINT: Final = f"does no other program use it, and may you use USB devices? {_DOCS}"

# A tick with fewer samples than this part of them is missed: too little is known of it.
_LEAST_PART: Final = 0.5
# The ends of its largest ranges (User's Guides of JS110 and JS220).
_MOST_V: Final = 15.0
_MOST_A: Final = 10.0

Floats = npt.NDArray[np.float64]
Message = Mapping[str, Any]


class JoulescopeMeter(RecordingMeter["StreamTrace"]):
    """The meter of one instrument (`fsjoule.meter.instruments.InstrumentMeter`). Its traces have its own clock.

    Raises ConfigError without the driver, or if no instrument file states its accuracy; MeterError if it is not there.
    """

    def __init__(self, name: str) -> None:
        module = _module()
        self._now: Callable[[], int] = module.time64.now
        self._name = f"the Joulescope {name}"
        super().__init__(_PATIENCE_S, f"{self._name} sent nothing for {_PATIENCE_S:g} s", _HINT)
        self._path = f"{_ROOT}{name}"
        self._subscribed: list[tuple[str, Callable[[str, Any], None]]] = []
        self._driver: Any = self._checked(module.Driver, "the Joulescope driver does not start")
        try:
            self._info = self._opened(name)
        except BaseException:
            self._driver.finalize()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._stop()
            self._driver.close(self._path)
        except (RuntimeError, TimeoutError):
            pass  # it is gone, which was told
        finally:
            self._driver.finalize()

    def arm(self) -> None:
        """Start recording, and wait for the first whole tick. Raises MeterError."""
        self._checked(self._stop, f"{self._name} does not stop")
        with self._lock:
            self._trace = trace = StreamTrace(self._info)
        for topic, quantity in _STREAMS.items():
            self._listen(topic, lambda message, quantity=quantity: trace.stream(quantity, message))
        self._listen(_MARKS, trace.bits)
        self._wait(lambda: trace.begun)

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

    def _wait_for_now(self, trace: StreamTrace) -> None:
        utc = self._now()
        self._wait(lambda: trace.end_us() >= trace.time_us(utc))

    def _rest(self, trace: StreamTrace) -> PlainTrace:
        self._checked(self._stop, f"{self._name} does not stop")
        with self._lock:
            return trace.take(last=True)

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


@dataclass(slots=True)
class _TickSums:
    """Sums and counts of one quantity's samples in each tick from `first` on."""

    first: int | None = None
    end_count: int = 0
    chunks: list[tuple[int, Floats, Floats]] | None = None

    def add(self, message: Message, tick_us: float) -> int:
        """Add a message's samples. Returns how many of them are missing."""
        step, rate = int(message["decimate_factor"]), int(message["sample_rate"])
        values = np.asarray(message["data"], dtype=np.float64)
        begin = int(message["sample_id"])
        per_tick = _counts_per_tick(rate, tick_us)
        ticks = (begin + np.arange(len(values), dtype=np.int64) * step) // per_tick
        self.end_count = begin + len(values) * step
        valid = np.isfinite(values)
        if len(ticks):
            at = ticks - ticks[0]
            length = int(at[-1]) + 1
            sums = np.bincount(at[valid], weights=values[valid], minlength=length).astype(np.float64)
            counts = np.bincount(at[valid], minlength=length).astype(np.float64)
            if self.chunks is None:
                # A first tick that is not whole is left out.
                self.first, self.chunks = -(-begin // per_tick), []
            self.chunks.append((int(ticks[0]), sums, counts))
        return len(values) - int(np.count_nonzero(valid))

    def between(self, begin: int, end: int) -> tuple[Floats, Floats]:
        """Sums and counts of the ticks from `begin` to `end`, which are forgotten then."""
        sums, counts = np.zeros(end - begin), np.zeros(end - begin)
        kept: list[tuple[int, Floats, Floats]] = []
        for first, chunk, valid in self.chunks or ():
            low, high = max(first, begin), min(first + len(chunk), end)
            if low < high:
                sums[low - begin : high - begin] += chunk[low - first : high - first]
                counts[low - begin : high - begin] += valid[low - first : high - first]
            if first + len(chunk) > end:
                kept.append((first, chunk, valid))
        self.chunks = kept
        return sums, counts


def _counts_per_tick(rate: int, tick_us: float) -> int:
    """Counts of the instrument's clock, which has whole kHz, in a tick of a millisecond."""
    return round(rate * tick_us * 1e-6)


class StreamTrace:
    """Collects the messages of one instrument, from several threads only with a lock."""

    def __init__(self, info: PlainInfo) -> None:
        self._info = info
        self._sums = {POWER: _TickSums(), VOLTAGE: _TickSums()}
        self._per_tick = 0.0
        self._rate = 0
        self._map: Mapping[str, Any] = {}
        self._next_tick: int | None = None
        self._nj = self._missed = self._missing = 0
        self._marks: list[Mark] = []
        self._host: list[tuple[int, str]] = []
        self._bits: Message | None = None
        self._level: int | None = None

    @property
    def begun(self) -> bool:
        return self._end_tick() is not None

    def stream(self, quantity: str, message: Message) -> None:
        """Take a message of the power or the voltage."""
        self._rate, self._map = int(message["sample_rate"]), message["time_map"]
        self._per_tick = self._info.tick_us * 1e-6 * self._rate / int(message["decimate_factor"])
        missing = self._sums[quantity].add(message, self._info.tick_us)
        self._missing += missing if quantity == POWER else 0

    def bits(self, message: Message) -> None:
        """Take a message of the digital input that carries the marks."""
        before, self._bits = self._bits, message
        if before is not None:
            self._edges(before, int(message["sample_id"]))

    def mark(self, utc: int, text: str) -> None:
        """A mark of the host, at a time of the driver's: 2**30 a second."""
        self._host.append((utc, text))

    def time_us(self, utc: int) -> float:
        """A time of the driver's in the instrument's clock, by its newest comparison of both; 0 without one."""
        if not self._map:
            return 0.0
        seconds = (utc - self._map["offset_time"]) / 2**30
        return (self._map["offset_counter"] + seconds * self._map["counter_rate"]) / self._rate * 1e6

    def end_us(self) -> float:
        """Up to where ticks are whole; 0 without one."""
        end = self._end_tick()
        return 0.0 if end is None else end * self._info.tick_us

    def take(self, *, last: bool = False) -> PlainTrace:
        """The ticks that are whole and not taken yet, with their marks; `last`: nothing more will come."""
        if last and self._bits is not None:
            self._edges(self._bits, None)
            self._bits = None
        end = self._end_tick()
        begin = self._next_tick
        if begin is None:
            firsts = [each.first for each in self._sums.values() if each.first is not None]
            begin = max(firsts) if len(firsts) == len(self._sums) else 0
        end = begin if end is None else max(begin, end)
        energy, counts = self._sums[POWER].between(begin, end)
        volts, volt_counts = self._sums[VOLTAGE].between(begin, end)
        kept = np.minimum(counts, volt_counts) >= max(1.0, _LEAST_PART * self._per_tick)
        ticks = np.arange(begin, end, dtype=np.int64)
        tick_nj = np.zeros(len(ticks), dtype=np.int64)
        mean_v, mean_w = volts[kept] / volt_counts[kept], energy[kept] / counts[kept]
        tick_nj[kept] = np.round(mean_w * self._info.tick_us * 1e3)
        before_nj = self._nj + np.concatenate([[0], np.cumsum(tick_nj)])
        before_missed = self._missed + np.concatenate([[0], np.cumsum(~kept)])
        # A gap lies behind the samples of its checkpoint.
        behind = np.flatnonzero(kept & np.concatenate([[False], ~kept])[: len(kept)])
        told = np.unique(np.concatenate([[0, len(kept)], behind])).astype(np.int64)
        full = (np.abs(mean_v) >= _MOST_V) | (np.abs(mean_w) >= np.abs(mean_v) * _MOST_A) & (mean_w != 0)
        faults = (f"{self._missing} samples of the Joulescope did not arrive",) if self._missing else ()
        if end > begin:
            self._next_tick, self._nj, self._missed = end, int(before_nj[-1]), int(before_missed[-1])
        return PlainTrace(
            info=self._info,
            ticks=ticks[kept],
            times_us=ticks[kept] * round(self._info.tick_us),
            energy_nj=tick_nj[kept],
            voltage_uv=np.round(mean_v * 1e6).astype(np.int64),
            clipped_samples=full.astype(np.uint8),
            checkpoint_ticks=begin + told,
            checkpoint_nj=before_nj[told],
            checkpoint_missed=before_missed[told],
            marks=self._taken_marks(),
            missed=int(np.count_nonzero(~kept)),
            lost=0,
            faults=faults,
        )

    def _end_tick(self) -> int | None:
        if not self._rate or any(each.first is None for each in self._sums.values()):
            return None
        per_tick = _counts_per_tick(self._rate, self._info.tick_us)
        return min(each.end_count // per_tick for each in self._sums.values())

    def _edges(self, message: Message, until: int | None) -> None:
        step, rate, begin = int(message["decimate_factor"]), int(message["sample_rate"]), int(message["sample_id"])
        levels = np.unpackbits(np.asarray(message["data"], dtype=np.uint8), bitorder="little").astype(np.int8)
        if until is not None:
            levels = levels[: max(0, (until - begin) // step)]
        if not len(levels):
            return
        before = levels[0] if self._level is None else self._level
        for at in np.flatnonzero(np.diff(levels, prepend=before)).tolist():
            source = MarkSource.RISING if levels[at] else MarkSource.FALLING
            self._marks.append(Mark(round((begin + at * step) * 1e6 / rate), "", source))
        self._level = int(levels[-1])

    def _taken_marks(self) -> tuple[Mark, ...]:
        host = [Mark(round(self.time_us(utc)), text, MarkSource.HOST) for utc, text in self._host]
        marks = tuple(sorted([*self._marks, *host], key=lambda mark: mark.time_us))
        self._marks, self._host = [], []
        return marks
