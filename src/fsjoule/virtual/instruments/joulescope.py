"""Emulated Joulescopes behind the driver's publish/subscribe port, a module that FSJOULE_JOULESCOPE can name.

Neither USB nor the maker's driver runs: this is what `pyjoulescope_driver.Driver` offers, and no lower.

The driver has no emulated device of its own (its C code has an unfinished one, which is not built). Messages are the
dictionaries that its binding makes of a device's: float32 at 1 MHz out of a clock of 2 MHz, bits packed eight a byte.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from fsjoule.virtual.instruments.emulator import Emulator
from fsjoule.virtual.instruments.load import FeedLoad
from fsjoule.virtual.lab.files import lab_at

Floats = npt.NDArray[np.float64]
RATE: Final = 2_000_000
_BLOCK_S: Final = 0.05
_COORDINATOR: Final = "LG_COORDINATOR"


def __getattr__(name: str) -> object:
    """The driver's module `time64`, which only the user of a Joulescope has installed."""
    if name != "time64":
        raise AttributeError(name)
    return _time64()


@cache
def _time64() -> Any:  # noqa: ANN401 - a module without types
    return import_module("pyjoulescope_driver").time64


@dataclass
class Js220:
    """A JS220. `watts` and `gpi` are functions of the seconds by the monotonic clock; `drift` is its clock's.

    `lost` are spans of these seconds whose samples do not arrive (NaN).
    """

    watts: Callable[[Floats], Floats]
    path: str = "u/js220/SIM001"
    volts: float = 5.0
    gpi: Callable[[Floats], npt.NDArray[np.bool_]] | None = None  # low, at little cost
    lost: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    decimate: int = 20
    drift: float = 0.0
    busy: bool = False
    unplugged: threading.Event = field(default_factory=threading.Event)
    silent: threading.Event = field(default_factory=threading.Event)
    settings: dict[str, object] = field(default_factory=dict[str, object])
    opened: int = 0
    born_s: float = field(default_factory=time.monotonic)
    until_s: Callable[[], float] = time.monotonic  # up to when the load is known

    def seconds(self, counts: npt.NDArray[np.int64]) -> Floats:
        """When counts of the device's clock were, by the monotonic clock."""
        return self.born_s + counts / RATE / (1 + self.drift)

    def values(self, topic: str, begin: int, end: int) -> dict[str, Any]:
        """The message of a stream from one count to another."""
        step = 1 if "gpi" in topic else self.decimate
        if "gpi" in topic and self.gpi is None:
            data: npt.NDArray[Any] = np.zeros((end - begin + 7) // 8, dtype=np.uint8)
        else:
            data = self._data(topic, self.seconds(np.arange(begin, end, step, dtype=np.int64)))
        return {
            "sample_id": begin,
            "utc": 0,
            "sample_rate": RATE,
            "decimate_factor": step,
            "time_map": {
                "offset_time": _time64().as_time64(time.time() + self.born_s - time.monotonic()),
                "offset_counter": 0,
                "counter_rate": float(RATE * (1 + self.drift)),
            },
            "data": data,
        }

    def _data(self, topic: str, seconds: Floats) -> npt.NDArray[Any]:
        if "gpi" in topic:
            assert self.gpi is not None
            return np.packbits(self.gpi(seconds), bitorder="little")
        values = self.watts(seconds) if topic == "s/p" else np.full(len(seconds), self.volts)
        data = values.astype(np.float32)
        for first_s, last_s in self.lost:
            data[(seconds >= first_s) & (seconds < last_s)] = np.nan
        return data


class EmulatedDriver:
    """The stand-in for `pyjoulescope_driver.Driver`; a test compares the signatures of both."""

    devices: Sequence[Js220] = ()

    def __init__(self) -> None:
        self._subscribers: dict[str, list[Callable[[str, Any], None]]] = {}
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._next: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, type: object, value: object, traceback: object) -> None:  # noqa: A002 - the driver's own
        self.finalize()

    def finalize(self, timeout: float | None = None) -> None:
        del timeout
        self._ended.set()
        self._thread.join()

    def device_paths(self, timeout: float | None = None) -> list[str]:
        del timeout
        return [device.path for device in self.devices if not device.unplugged.is_set()]

    def open(self, device_prefix: str, mode: str | None = None, timeout: float | None = None) -> None:
        del mode, timeout
        device = self._device(device_prefix)
        if device.busy:
            raise RuntimeError(f"jsdrv_open failed 21 IN_USE | The requested resource is in use. | {device_prefix}")
        device.opened += 1

    def close(self, device_prefix: str, timeout: float | None = None) -> None:
        del timeout
        self._device(device_prefix).opened -= 1

    def publish(self, topic: str, value: object, timeout: float | None = None) -> None:
        del timeout
        device = self._device("/".join(topic.split("/")[:3]))
        if device.unplugged.is_set():
            raise TimeoutError(f"jsdrv_publish timed out | {topic}")
        device.settings[topic.removeprefix(f"{device.path}/")] = value

    def query(self, topic: str, timeout: float | None = None) -> object:
        del timeout
        if topic.endswith("c/fw/version"):
            return 0x01030002
        raise RuntimeError(f"jsdrv_query failed 16 NOT_FOUND | {topic}")

    def subscribe(
        self, topic: str, flags: object, fn: Callable[[str, Any], None], timeout: float | None = None
    ) -> None:
        del flags, timeout
        with self._lock:
            self._subscribers.setdefault(topic, []).append(fn)

    def unsubscribe(self, topic: str, fn: Callable[[str, Any], None], timeout: float | None = None) -> None:
        del timeout
        with self._lock:
            self._subscribers[topic].remove(fn)

    def _device(self, path: str) -> Js220:
        return next(device for device in self.devices if device.path == path)

    def _run(self) -> None:
        gone: set[str] = set()
        while not self._ended.wait(_BLOCK_S):
            with self._lock:
                for device in self.devices:
                    if device.unplugged.is_set():
                        if device.path not in gone:
                            gone.add(device.path)
                            self._tell("@/!remove", device.path)
                    elif not device.silent.is_set():
                        self._stream(device)

    def _stream(self, device: Js220) -> None:
        now = int((device.until_s() - device.born_s) * RATE * (1 + device.drift)) // 800 * 800
        for topic in ("s/p", "s/v", "s/gpi/0"):
            if device.settings.get(f"{topic}/ctrl") != "on":
                self._next.pop(topic, None)
                continue
            begin = self._next.setdefault(topic, now)
            if now > begin:
                self._next[topic] = now
                self._tell(f"{device.path}/{topic}/!data", device.values(topic, begin, now))

    def _tell(self, topic: str, value: object) -> None:
        for each in list(self._subscribers.get(topic, ())):
            each(topic, value)


class Driver(EmulatedDriver):
    """With a Joulescope at each board of the lab that LG_COORDINATOR names."""

    def __init__(self) -> None:
        lab = lab_at(os.environ.get(_COORDINATOR, ""))
        self.devices = [] if lab is None else [_beside(lab.devices_of(each.number), each.number) for each in lab.boards]
        super().__init__()


def _beside(devices: Path, number: int) -> Js220:
    load = FeedLoad(devices / "feed")
    volts = Js220.volts

    def watts(seconds: Floats) -> Floats:
        return load.amperes((seconds * 1e9).astype(np.int64)) * volts

    return Js220(watts, f"u/js220/SIM{number:03}", until_s=lambda: load.known_until_ns() * 1e-9)


EMULATOR: Final = Emulator(address="joulescope:js220/SIM{number:03}", variables={"FSJOULE_JOULESCOPE": __name__})
