"""The meter's wire format written a second time, from docs/meter-protocol.md alone: the encoder that the tests need.

It shares no code with the C core or with fsjoule's own modules, so that an error has to be made twice to go unseen.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Any

SAMPLES, MARK, INFO, REPLY, WIDE_SAMPLES = 1, 2, 3, 4, 5
LINE, RISING, FALLING, HOST = 0, 1, 2, 3
SIMULATED, SAMPLING, UNSAVED, DAMAGED = 1, 2, 4, 8
CHECKED, BROKEN = 1, 2
OVERFLOW_BIT, CLIPPED_BIT = 0x4000, 0x8000
INA219, INA228 = 0, 1


def cobs(content: bytes) -> bytes:
    """Consistent Overhead Byte Stuffing by its definition: runs without zero, each led by its length plus one."""
    out = b""
    for run in content.split(b"\0"):
        assert len(run) < 254
        out += bytes([len(run) + 1]) + run
    return out


def uncobs(encoded: bytes) -> bytes:
    """The content of a COBS-encoded frame without its delimiter."""
    out, at = b"", 0
    while at < len(encoded):
        out += encoded[at + 1 : at + encoded[at]] + b"\0"
        at += encoded[at]
    return out[:-1]


def frame(kind: int, seq: int, payload: bytes, *, protocol: int = 3) -> bytes:
    """A frame as it goes over the line, its delimiter included. Commands are frames too."""
    content = bytes([kind, protocol]) + seq.to_bytes(4, "little") + payload
    return cobs(content + binascii.crc32(content).to_bytes(4, "little")) + b"\0"


def samples(
    seq: int,
    *,
    first_tick: int,
    first_time_us: int,
    energy_raw: int,
    missed_total: int,
    flags: int,
    values: Sequence[Sequence[int]],
    bus_total: int = 0,
    stream_id: int = 1,
    wide: bool = False,
) -> bytes:
    """A frame of samples; `values` are pairs of raw shunt and raw bus, the bits of the sample's own flags included."""
    size = 3 if wide else 2
    payload = _u32(stream_id) + _u64(first_tick) + _u64(first_time_us)
    payload += energy_raw.to_bytes(8, "little", signed=True) + _u64(bus_total) + _u32(missed_total)
    payload += bytes([flags, len(values)])
    for shunt, bus in values:
        payload += shunt.to_bytes(size, "little", signed=True) + bus.to_bytes(size, "little")
    return frame(WIDE_SAMPLES if wide else SAMPLES, seq, payload)


def wide_samples(seq: int, **fields: Any) -> bytes:
    """As `samples`, of an INA228."""
    return samples(seq, wide=True, **fields)


def mark(seq: int, *, time_us: int, text: str, source: int = LINE, flags: int = 0, stream_id: int = 1) -> bytes:
    """A mark."""
    payload = _u32(stream_id) + _u64(time_us) + bytes([source])
    payload += bytes([flags, len(text)]) + text.encode("ascii")
    return frame(MARK, seq, payload)


def info(
    seq: int,
    *,
    rate_hz: int = 1000,
    shunt_uohm: int = 100_000,
    shunt_range_mv: int = 80,
    adc_config: int = 0x091F,
    flags: int = SIMULATED | SAMPLING,
    reset_cause: int = 1,
    firmware: str = "0.1.0",
    serial_number: str = "SIM0",
    stream_id: int = 1,
    i2c_faults: int = 0,
    frames_dropped: int = 0,
    shunt_offset_nv: int = 0,
    current_gain_ppm: int = 0,
    bus_gain_ppm: int = 0,
    gain_uncertainty_ppm: int = 0,
    zero_date: int = 0,
    gain_date: int = 0,
    events_lost: int = 0,
    mark_framing: int = 0,
    mark_overruns: int = 0,
    mark_noise: int = 0,
    marks_damaged: int = 0,
    chip: int = INA219,
    shunt_unit_pv: int = 10_000_000,
    bus_unit_pv: int = 4_000_000_000,
) -> bytes:
    """What the meter says of itself."""
    payload = _u32(stream_id) + _u32(rate_hz) + _u32(shunt_uohm) + _u16(shunt_range_mv) + _u16(adc_config)
    payload += bytes([flags, reset_cause]) + _name(firmware) + _name(serial_number)
    payload += _u32(i2c_faults) + _u32(frames_dropped)
    payload += _i32(shunt_offset_nv) + _i32(current_gain_ppm) + _i32(bus_gain_ppm)
    payload += _u32(gain_uncertainty_ppm) + _u32(zero_date) + _u32(gain_date)
    payload += _u32(events_lost) + _u32(mark_framing) + _u32(mark_overruns) + _u32(mark_noise) + _u32(marks_damaged)
    payload += bytes([chip]) + _u32(shunt_unit_pv) + _u32(bus_unit_pv)
    return frame(INFO, seq, payload)


def reply(
    seq: int,
    *,
    request: int,
    command: int,
    status: int = 0,
    values: Sequence[int] = (0, 0, 0),
    stream_id: int = 1,
) -> bytes:
    """The meter's answer to a command."""
    assert len(values) == 3
    payload = _u32(stream_id) + _u32(request) + bytes([command, status])
    return frame(REPLY, seq, payload + b"".join(_i32(value) for value in values))


def checked(text: str) -> str:
    """A line of the mark line with its check, without LF."""
    digits = "".join(str("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz".index(c)) for c in text)
    return f"~{text}~{1000 * len(text) + int(digits) % 997}"


# The payload of each command that has one.


def rate(*, rate_hz: int) -> bytes:
    return _u32(rate_hz)


def shunt_range(*, range_mv: int) -> bytes:
    return _u16(range_mv)


def bus_range(*, range_v: int) -> bytes:
    return _u16(range_v)


def shunt(*, shunt_uohm: int) -> bytes:
    return _u32(shunt_uohm)


def zero(*, date: int) -> bytes:
    return _u32(date)


def gain(*, point: int, true_ua: int, true_uv: int, uncertainty_ppm: int, date: int) -> bytes:
    return bytes([point]) + _i32(true_ua) + _u32(true_uv) + _u32(uncertainty_ppm) + _u32(date)


def host_mark(*, text: str) -> bytes:
    return text.encode("ascii")


def _u16(value: int) -> bytes:
    return value.to_bytes(2, "little")


def _u32(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _u64(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _i32(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def _name(text: str) -> bytes:
    return text.encode("ascii").ljust(16, b"\0")
