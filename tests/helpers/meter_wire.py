"""The meter's wire format written a second time, from docs/meter-protocol.md alone: the encoder that the tests need.

It shares no code with the C core or with fsjoule.frames, so that an error has to be made twice to go unseen.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence

SAMPLES, MARK, INFO = 1, 2, 3


def cobs(content: bytes) -> bytes:
    """Consistent Overhead Byte Stuffing by its definition: runs without zero, each led by its length plus one."""
    out = b""
    for run in content.split(b"\0"):
        assert len(run) < 254
        out += bytes([len(run) + 1]) + run
    return out


def frame(kind: int, seq: int, payload: bytes, *, protocol: int = 1) -> bytes:
    """A frame as it goes over the line, its delimiter included."""
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
) -> bytes:
    """A frame of samples; `values` are pairs of raw shunt and raw bus."""
    payload = first_tick.to_bytes(8, "little") + first_time_us.to_bytes(8, "little")
    payload += energy_raw.to_bytes(8, "little", signed=True) + missed_total.to_bytes(4, "little")
    payload += bytes([flags, len(values)])
    for shunt, bus in values:
        payload += shunt.to_bytes(2, "little", signed=True) + bus.to_bytes(2, "little")
    return frame(SAMPLES, seq, payload)


def mark(seq: int, *, time_us: int, text: str) -> bytes:
    """A mark."""
    return frame(MARK, seq, time_us.to_bytes(8, "little") + bytes([len(text)]) + text.encode("ascii"))


def info(
    seq: int,
    *,
    rate_hz: int = 1000,
    shunt_uohm: int = 100_000,
    shunt_range_mv: int = 80,
    adc_config: int = 0x091F,
    simulated: int = 1,
    firmware: str = "0.1.0",
    serial_number: str = "SIM0",
    boot_id: int = 1,
) -> bytes:
    """What the meter says of itself."""
    payload = rate_hz.to_bytes(4, "little") + shunt_uohm.to_bytes(4, "little")
    payload += shunt_range_mv.to_bytes(2, "little") + adc_config.to_bytes(2, "little") + bytes([simulated])
    payload += firmware.encode().ljust(16, b"\0") + serial_number.encode().ljust(16, b"\0")
    return frame(INFO, seq, payload + boot_id.to_bytes(4, "little"))
