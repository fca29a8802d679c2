"""Commands from the host to the meter: commands in, bytes out. docs/meter-protocol.md describes them. Pure.

`encode` makes a command's frame. Each command with a payload has a function here that makes it. The function refuses in
words what the meter could only refuse with a status.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from fsjoule.errors import ConfigError
from fsjoule.meter.protocol.frames import packed

RATE_MIN_HZ: Final = 100
RATE_MAX_HZ: Final = 2000
RANGES_MV: Final = (40, 80, 160, 320)
BUS_RANGES_V: Final = (16, 32)
SHUNT_MIN_UOHM: Final = 1000
SHUNT_MAX_UOHM: Final = 1_000_000
MARK_MAX_BYTES: Final = 16
_CLOCK_HZ: Final = 1_000_000
_U32_MAX: Final = (1 << 32) - 1
_I32_LIMIT: Final = 1 << 31
_PPM: Final = 1_000_000


class MeterCommand(IntEnum):
    INFO = 0x10
    START = 0x11
    STOP = 0x12
    RATE = 0x13
    RANGE = 0x14
    SHUNT = 0x15
    ZERO = 0x16
    GAIN = 0x17
    SAVE = 0x18
    RESET_ENERGY = 0x19
    SELF_TEST = 0x1A
    FORGET_CALIBRATION = 0x1B
    MARK = 0x1C
    BUS_RANGE = 0x1D

    @property
    def title(self) -> str:
        return self.name.lower().replace("_", "-" if self is MeterCommand.SELF_TEST else " ")


class ReplyStatus(IntEnum):
    DONE = 0
    UNKNOWN_COMMAND = 1
    WRONG_LENGTH = 2
    REFUSED = 3
    RATE = 4
    BUSY = 5
    CHIP_SILENT = 6
    NOT_STORED = 7
    DAMAGED = 8
    OTHER_PROTOCOL = 9

    @property
    def text(self) -> str:
        return _STATUS_TEXTS[self]


_STATUS_TEXTS: Final = {
    ReplyStatus.DONE: "done",
    ReplyStatus.UNKNOWN_COMMAND: "the meter does not know the command",
    ReplyStatus.WRONG_LENGTH: "the command's payload has the wrong length",
    ReplyStatus.REFUSED: "a value is out of range, or the measurement contradicts it",
    ReplyStatus.RATE: "the meter cannot sample at this rate",
    ReplyStatus.BUSY: "the meter is busy with a calibration",
    ReplyStatus.CHIP_SILENT: "the chip does not answer",
    ReplyStatus.NOT_STORED: "the settings could not be stored",
    ReplyStatus.DAMAGED: "the command arrived damaged or truncated",
    ReplyStatus.OTHER_PROTOCOL: "the meter speaks another version of the protocol",
}

_SELF_TEST_FAILURES: Final = {
    0x01: "the chip does not answer",
    0x02: "a register of the chip does not keep what is written, or it is another chip",
    0x04: "the chip's configuration is not as it was set",
    0x08: "no conversion ended within its longest time",
    0x10: "a reading is clipped: shunt or bus",
    0x20: "there is no storage for settings",
}


def status_text(status: int) -> str:
    """A reply's status in words, also for a status that only a newer meter knows."""
    try:
        return ReplyStatus(status).text
    except ValueError:
        return f"the meter answered with the unknown status {status}"


def self_test_failures(bits: int) -> tuple[str, ...]:
    known = tuple(text for bit, text in _SELF_TEST_FAILURES.items() if bits & bit)
    unknown = bits & ~sum(_SELF_TEST_FAILURES)
    return (*known, f"unknown failures 0x{unknown & _U32_MAX:02X}") if unknown else known


def encode(command: MeterCommand, seq: int, payload: bytes = b"") -> bytes:
    """A command's bytes on the line, with delimiter. The reply repeats `seq`, a u32."""
    return packed(command, seq, payload)


def rate(hz: int) -> bytes:
    """Payload of RATE. Raises ConfigError for a rate that the meter does not support."""
    if not RATE_MIN_HZ <= hz <= RATE_MAX_HZ or _CLOCK_HZ % hz:
        raise ConfigError(
            f"a rate of {hz} Hz is not possible",
            hint=f"use {RATE_MIN_HZ} to {RATE_MAX_HZ} Hz, a divisor of 1,000,000: {_near_rates(hz)}",
        )
    return struct.pack("<I", hz)


def _near_rates(hz: int) -> str:
    possible = [value for value in range(RATE_MIN_HZ, RATE_MAX_HZ + 1) if _CLOCK_HZ % value == 0]
    near = sorted(sorted(possible, key=lambda value: abs(value - hz))[:2])
    return " or ".join(str(value) for value in near)


def measuring_range(millivolts: int) -> bytes:
    """Payload of RANGE. Raises ConfigError for a range that no meter has. An INA228 takes all but 40 for its 163 mV."""
    if millivolts not in RANGES_MV:
        choices = ", ".join(str(value) for value in RANGES_MV)
        raise ConfigError(f"the meter has no range of {millivolts} mV", hint=f"choose from: {choices}")
    return struct.pack("<H", millivolts)


def bus_range(volts: int) -> bytes:
    """Payload of BUS_RANGE. Raises ConfigError for a range that no meter can be set to: an INA228 has one only."""
    if volts not in BUS_RANGES_V:
        raise ConfigError(f"the meter has no bus range of {volts} V", hint="choose from: 16, 32")
    return struct.pack("<H", volts)


def shunt(microohm: int) -> bytes:
    """Payload of SHUNT. Raises ConfigError for a resistor out of the meter's range."""
    if not SHUNT_MIN_UOHM <= microohm <= SHUNT_MAX_UOHM:
        raise ConfigError(
            f"a shunt of {microohm} microohm is not possible",
            hint=f"use {SHUNT_MIN_UOHM} to {SHUNT_MAX_UOHM} microohm; 0.1 Ohm is 100000",
        )
    return struct.pack("<I", microohm)


def zero(date: int) -> bytes:
    """Payload of ZERO; `date` is in seconds since 1970 UTC. Raises ConfigError for 0, which means "never"."""
    return struct.pack("<I", _date(date))


def gain(point: int, current_ua: int, bus_uv: int, uncertainty_ppm: int, date: int) -> bytes:
    """Payload of GAIN: a reference's reading at one of the two points, 1 for the low one and 2 for the high one.

    `uncertainty_ppm` is the standard uncertainty of the true power. Raises ConfigError for values out of range.
    """
    if point not in (1, 2):
        raise ConfigError(f"a gain calibration has no point {point}", hint="use 1 for the low one, 2 for the high one")
    if not -_I32_LIMIT <= current_ua < _I32_LIMIT:
        raise ConfigError(f"a current of {current_ua} uA is not possible", hint="use less than 2147 A")
    if not 0 < bus_uv <= _U32_MAX:
        raise ConfigError(f"a bus voltage of {bus_uv} uV is not possible", hint="the bus must have a voltage")
    if not 0 <= uncertainty_ppm <= _PPM:
        raise ConfigError(f"an uncertainty of {uncertainty_ppm} ppm is not possible", hint=f"use 0 to {_PPM} ppm")
    return struct.pack("<BiIII", point, current_ua, bus_uv, uncertainty_ppm, _date(date))


def mark(text: str) -> bytes:
    """Payload of MARK. Raises ConfigError for a text that the meter refuses."""
    if not 1 <= len(text) <= MARK_MAX_BYTES or not text.isascii() or not text.isprintable():
        raise ConfigError(f"{text!r} cannot be a mark", hint=f"use 1 to {MARK_MAX_BYTES} printable ASCII characters")
    return text.encode("ascii")


def _date(date: int) -> int:
    if not 0 < date <= _U32_MAX:
        raise ConfigError(f"{date} is not the date of a calibration", hint="use the seconds since 1970 UTC")
    return date
