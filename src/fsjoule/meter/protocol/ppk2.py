"""The wire format of Nordic's Power Profiler Kit II: commands, the metadata's text, and frames of samples. Pure.

Sources: Nordic's Power Profiler app (pc-nrfconnect-ppk, src/device and src/constants.ts) for commands, fields and the
calibration's formula; the PPK2's user guide for ranges and rates. docs/meter.md says what was tried.

Frames have 4 bytes, little endian, 100,000 a second: bits 0 to 13 are the converter's value, 14 to 16 the range, 17 is
not used, 18 to 23 count the samples, 24 to 31 are the logic inputs D0 to D7. Nothing marks a frame's begin, so it is
found by the counter.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

# Names of settings in `PlainInfo`: 1 for a source meter, and the voltage.
SOURCE: Final = "source"
VOLTS: Final = "volts"
# What its USB tells: vendor and product.
USB_IDS: Final = (0x1915, 0xC00A)
SAMPLE_HZ: Final = 100_000
SAMPLE_US: Final = 10
LEAST_MV: Final = 800
MOST_MV: Final = 5000
INPUTS: Final = 8
# The largest current of the instrument, and its range.
MOST_A: Final = 1.0
TOP_RANGE: Final = 4

START: Final = bytes((0x06,))
STOP: Final = bytes((0x07,))
GET_METADATA: Final = bytes((0x19,))
METADATA_END: Final = b"END"
AMPERE_MODE: Final = 1
SOURCE_MODE: Final = 2

FRAME_BYTES: Final = 4
_RANGES: Final = 5
_RANGE_SHIFT: Final = 14
_COUNTER_SHIFT: Final = 18
_LOGIC_SHIFT: Final = 24
_ADC_MASK: Final = 0x3FFF
_RANGE_MASK: Final = 0x7
_COUNTER_MASK: Final = 0x3F
_UNUSED_BIT: Final = 1 << 17
# The app counts in quarters of the converter's steps; 163840 of them are the reference of 1.8 V.
_QUARTERS: Final = 4.0
_VOLTS_PER_QUARTER: Final = 1.8 / 163840
# So many frames that count on prove where frames begin.
_PROVING_BYTES: Final = 8 * FRAME_BYTES

Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]


def power_mode(mode: int) -> bytes:
    """The command that makes it an ampere meter or a source meter."""
    return bytes((0x11, mode))


def supply_mv(millivolts: int) -> bytes:
    """The command that sets the output's voltage, or tells the voltage that it measures at as an ampere meter."""
    return struct.pack(">BH", 0x0D, millivolts)


def output(*, on: bool) -> bytes:
    """The command that connects the device under test, in either mode."""
    return bytes((0x0C, int(on)))


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Constants:
    """The calibration that the instrument stores, one value for each range; the names are the metadata's.

    With the converter's value a in quarters of a step, x = (a - O) / R in amperes, and
    I = UG (x (GS x + GI) + S V + I), where V is the supply in volts.
    """

    r: Floats
    gs: Floats
    gi: Floats
    o: Floats
    s: Floats
    i: Floats
    ug: Floats

    def amperes(self, words: Words, volts: float) -> Floats:
        """The current of each frame, without a filter. Ranges that there are not count as the top one."""
        ranges = np.minimum((words >> _RANGE_SHIFT) & _RANGE_MASK, TOP_RANGE)
        raw = (words & _ADC_MASK).astype(np.float64)
        offset = self.ug * (self.s * volts + self.i)
        # One polynomial of the raw value for each range, so that a sample costs three look-ups.
        step = _QUARTERS * _VOLTS_PER_QUARTER / self.r
        zero = self.o * _VOLTS_PER_QUARTER / self.r
        square = self.ug * self.gs * step * step
        slope = self.ug * step * (self.gi - 2 * self.gs * zero)
        level = offset + self.ug * zero * (self.gs * zero - self.gi)
        first = int(ranges[0]) if len(ranges) else 0
        if (ranges == first).all():
            return (square[first] * raw + slope[first]) * raw + level[first]
        return (square[ranges] * raw + slope[ranges]) * raw + level[ranges]

    def raw_of(self, amperes: Floats, ranges: npt.NDArray[np.int64], volts: float) -> Floats:
        """The converter's value for each current in a range; the inverse of `amperes`, for emulators and tests."""
        rest = amperes / self.ug[ranges] - self.s[ranges] * volts - self.i[ranges]
        gs, gi = self.gs[ranges], self.gi[ranges]
        root = np.sqrt(np.maximum(gi * gi + 4 * gs * rest, 0.0))
        x = 2 * rest / (gi + root)
        return (x * self.r[ranges] / _VOLTS_PER_QUARTER + self.o[ranges]) / _QUARTERS


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Metadata:
    """What the instrument tells of itself. `simulated` is said by emulators only."""

    constants: Constants
    hardware: str
    simulated: bool

    @property
    def identity(self) -> str:
        """A name that tells instruments apart: they tell no serial number, but no two have the same calibration.

        The user's gains are settings, and not part of it.
        """
        told = [getattr(self.constants, each.name) for each in fields(Constants) if each.name != "ug"]
        text = f"{self.hardware} {np.concatenate(told).tolist()}"
        return f"{'SIM' if self.simulated else 'PPK2'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def parse_metadata(reply: bytes) -> Metadata:
    """Read the reply to `GET_METADATA`: lines of `KEY: value`, then END. Raises ValueError with the fault."""
    values: dict[str, str] = {}
    for line in reply.decode("ascii", errors="replace").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            values[key.strip().lower()] = value.strip()

    def column(name: str) -> Floats:
        return np.array([_number(values, f"{name}{number}") for number in range(_RANGES)])

    constants = Constants(**{each.name: column(each.name) for each in fields(Constants)})
    for name, least in (("r", 0.0), ("ug", 0.0), ("gi", 0.0)):
        if not (getattr(constants, name) > least).all():
            raise ValueError(f"a value of {name.upper()} is not above 0")
    return Metadata(constants=constants, hardware=values.get("hw", ""), simulated=values.get("simulated") == "1")


def _number(values: dict[str, str], key: str) -> float:
    try:
        number = float(values[key])
    except KeyError:
        raise ValueError(f"{key.upper()} is missing") from None
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{key.upper()} is {values[key]!r}")
    return number


def logic(words: Words, number: int) -> npt.NDArray[np.bool_]:
    """The level of the logic input D`number` in each frame."""
    return (words >> (_LOGIC_SHIFT + number)) & 1 == 1


def ranges_of(words: Words) -> Words:
    return ((words >> _RANGE_SHIFT) & _RANGE_MASK).astype(np.uint32, copy=False)


def at_full_scale(words: Words) -> npt.NDArray[np.bool_]:
    """Frames of the top range whose converter is at its end."""
    return (words & _ADC_MASK == _ADC_MASK) & (ranges_of(words) >= TOP_RANGE)


@dataclass(frozen=True, eq=False, slots=True)
class FrameRun:
    """Frames without a loss among them. Before them `lost` were lost, modulo 64; `damaged` bytes were no frame."""

    words: Words
    lost: int
    damaged: int


class FrameReader:
    """Cuts a byte stream into frames, wherever it begins and whatever is lost of it."""

    def __init__(self) -> None:
        self._rest = b""
        self._next: int | None = None
        self._damaged = 0

    def feed(self, data: bytes) -> Iterator[FrameRun]:
        """The frames in `data` and in what was left before it.

        A frame is taken once the one behind it counts on, the first one behind a loss once seven do.
        """
        data = self._rest + data
        at = 0
        while True:
            words = _words(data[at:])
            good = self._leading(words)
            broken = at + good * FRAME_BYTES
            begin = broken if good == len(words) > 0 else _proved_at(data, broken)
            # Damage can look like the next frame: what was lost with it begins before it.
            sure = good if begin == broken and good < len(words) else max(good - 1, 0)
            if sure:
                yield self._taken(words[:sure], 0)
                at += sure * FRAME_BYTES
            if begin is None or good == len(words) > 0:
                break
            self._damaged += begin - at
            at = begin
            first = _words(data[at : at + FRAME_BYTES])
            lost = 0 if self._next is None else (int(_counters(first)[0]) - self._next) & _COUNTER_MASK
            yield self._taken(first, lost)
            at += FRAME_BYTES
        # What cannot be the begin of frames any more is let go.
        kept = at if good == len(words) else max(at, len(data) - _PROVING_BYTES + 1)
        self._damaged += kept - at
        self._rest = data[kept:]

    def _leading(self, words: Words) -> int:
        """How many of these frames follow the one before without a loss."""
        if self._next is None or not len(words):
            return 0
        wanted = (np.arange(len(words), dtype=np.uint32) + self._next) & _COUNTER_MASK
        wrong = (_counters(words) != wanted) | (words & _UNUSED_BIT != 0)
        return int(wrong.argmax()) if wrong.any() else len(words)

    def _taken(self, words: Words, lost: int) -> FrameRun:
        self._next = (int(_counters(words[-1:])[0]) + 1) & _COUNTER_MASK
        damaged, self._damaged = self._damaged, 0
        return FrameRun(words, lost, damaged)


def _words(data: bytes) -> Words:
    return np.frombuffer(data, dtype="<u4", count=len(data) // FRAME_BYTES).astype(np.uint32, copy=False)


def _counters(words: Words) -> Words:
    return ((words >> _COUNTER_SHIFT) & _COUNTER_MASK).astype(np.uint32, copy=False)


def _proved_at(data: bytes, begin: int) -> int | None:
    """Where frames begin that count on, from there on; None if no such place is known yet."""
    last = len(data) - _PROVING_BYTES
    return next((at for at in range(begin, last + 1) if _counts_on(data[at : at + _PROVING_BYTES])), None)


def _counts_on(data: bytes) -> bool:
    words = _words(data)
    if (words & _UNUSED_BIT).any():
        return False
    return bool(((np.diff(_counters(words).astype(np.int64)) & _COUNTER_MASK) == 1).all())
