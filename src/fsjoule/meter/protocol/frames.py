"""The meter's frames: bytes in, frames out. docs/meter-protocol.md describes them byte by byte.

`FrameDecoder` decodes frames, and counts losses and damage. It does no I/O, and its memory does not grow.

All frames have COBS, head and checksum in common, in both directions. Source: Cheshire and Baker, "Consistent Overhead
Byte Stuffing", IEEE/ACM Transactions on Networking 7(2), 1999; the other parts are in docs/meter-protocol.md.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fsjoule.errors import MeterError
from fsjoule.meter.protocol.sequence import Sequence, StreamCounters
from fsjoule.model import CurrentMonitor, Ina219Info, InputCounts, MarkSource, MeterCalibration, MeterStatus, ResetCause

PROTOCOL: Final = 3
HEAD: Final = struct.Struct("<BBI")  # type, protocol, seq
DELIMITER: Final = b"\0"
_CRC_BYTES: Final = 4
# A frame has at most 253 bytes, and COBS adds one: no run needs the code 0xFF, which keeps decoding simple.
MAX_STUFFED_BYTES: Final = 254
_MAX_PAYLOAD_BYTES: Final = MAX_STUFFED_BYTES - 1 - HEAD.size - _CRC_BYTES


def packed(kind: int, seq: int, payload: bytes) -> bytes:
    """A frame's bytes on the line, with delimiter. Raises ValueError for a payload that is too long."""
    if len(payload) > _MAX_PAYLOAD_BYTES:
        raise ValueError(f"a frame takes at most {_MAX_PAYLOAD_BYTES} bytes of payload, not {len(payload)}")
    body = HEAD.pack(kind, PROTOCOL, seq) + payload
    content = body + zlib.crc32(body).to_bytes(_CRC_BYTES, "little")
    return b"".join(bytes((len(run) + 1,)) + run for run in content.split(DELIMITER)) + DELIMITER


def unpacked(piece: bytes) -> bytes | None:
    """Head and payload of the frame in a piece between two delimiters, or None if it is damaged."""
    content = _unstuffed(piece)
    if content is None or len(content) < HEAD.size + _CRC_BYTES:
        return None
    body = content[:-_CRC_BYTES]
    return body if zlib.crc32(body).to_bytes(_CRC_BYTES, "little") == content[-_CRC_BYTES:] else None


def _unstuffed(piece: bytes) -> bytes | None:
    """The content of a COBS-encoded frame without its delimiter, or None if it is invalid.

    In frames this short each code is the distance to the next zero, so decoding only restores the zeros.
    """
    size = len(piece)
    if size > MAX_STUFFED_BYTES:
        return None
    content = bytearray(piece)
    at = piece[0]
    while at < size:
        code = piece[at]
        content[at] = 0
        at += code
    return bytes(content[1:]) if at == size else None


TYPE_SAMPLES: Final = 1
TYPE_MARK: Final = 2
TYPE_INFO: Final = 3
TYPE_REPLY: Final = 4
TYPE_WIDE_SAMPLES: Final = 5
FLAG_OVERFLOW: Final = 0x01
FLAG_CLIPPED: Final = 0x02
FLAG_I2C_FAULT: Final = 0x04
FLAG_BUS_RESET: Final = 0x08
FLAG_EVENTS_LOST: Final = 0x10
FLAG_MARK_ERROR: Final = 0x20
MARK_CHECKED: Final = 0x01
MARK_DAMAGED: Final = 0x02
INFO_SIMULATED: Final = 0x01
INFO_SAMPLING: Final = 0x02
INFO_UNSAVED: Final = 0x04
INFO_SETTINGS_DAMAGED: Final = 0x08
_SAMPLE: Final = np.dtype([("shunt", "<i2"), ("bus", "<u2")])
# Three bytes each, of which numpy knows no type.
_WIDE_SAMPLE: Final = np.dtype([("shunt", "u1", 3), ("bus", "u1", 3)])
# The bits above the bus voltage are the sample's own flags.
_BUS_MASK: Final = 0x1FFF
_WIDE_BUS_MASK: Final = 0xFFFFF
_MAX_SAMPLES: Final = 20
_MAX_MARK_BYTES: Final = 16
# Ticks, times and the sum of bus are unsigned on the line; they will never reach 2^63.
_SAMPLES: Final = struct.Struct("<qqqqIBB")
_MARK: Final = struct.Struct("<qBBB")
# The last three: the chip, and the units of raw samples in pV.
_INFO: Final = struct.Struct("<IIHHBB16s16s2I3i3I5IBII")
_CHIPS: Final = (CurrentMonitor.INA219, CurrentMonitor.INA228)
_REPLY: Final = struct.Struct("<IBBiii")
_STREAM: Final = struct.Struct("<I")
# Types of commands begin here: they come back where a line echoes.
_FIRST_COMMAND: Final = 0x10
_MARK_SOURCES: Final[tuple[MarkSource, ...]] = (MarkSource.LINE, MarkSource.RISING, MarkSource.FALLING, MarkSource.HOST)
_RESET_CAUSES: Final[tuple[ResetCause, ...]] = (
    ResetCause.UNKNOWN,
    ResetCause.POWER,
    ResetCause.WATCHDOG,
    ResetCause.SOFTWARE,
    ResetCause.PIN,
    ResetCause.BROWN_OUT,
)


@dataclass(frozen=True, slots=True)
class SamplesFrame:
    """Samples of consecutive ticks, at most 20; no samples if the meter only reports missed ticks.

    `energy_raw` is raw shunt times raw bus and `bus_total` raw bus, summed over all samples before `first_tick`;
    `missed_total` counts ticks without a sample before `first_tick`, modulo 2^32. All three start with the stream.
    """

    seq: int
    first_tick: int
    first_time_us: int
    energy_raw: int
    bus_total: int
    missed_total: int
    flags: int
    samples: bytes
    stream_id: int
    wide: bool = False

    @property
    def count(self) -> int:
        return len(self.samples) // _sample_type(wide=self.wide).itemsize

    @property
    def shunt_raw(self) -> npt.NDArray[np.int32]:
        """Shunt voltages in the info frame's units, shape (count,)."""
        return raw_values(self.samples, wide=self.wide)[0]

    @property
    def bus_raw(self) -> npt.NDArray[np.int32]:
        """Bus voltages in the info frame's units, shape (count,)."""
        return raw_values(self.samples, wide=self.wide)[1]


@dataclass(frozen=True, slots=True)
class MarkFrame:
    """A moment in the meter's clock: a line from the board, an edge (without text), or a command from the host.

    The text of a `checked` line had a check, which was right. Of a `damaged` line it is what is left.
    """

    seq: int
    time_us: int
    text: str
    source: MarkSource = MarkSource.LINE
    checked: bool = False
    damaged: bool = False
    _: KW_ONLY
    stream_id: int


@dataclass(frozen=True, slots=True)
class InfoFrame:
    """The meter's info: facts of the whole stream, and status that may change."""

    seq: int
    info: Ina219Info
    status: MeterStatus


@dataclass(frozen=True, slots=True)
class ReplyFrame:
    """The reply to the command with seq `request`; `commands` explains `command` and `status`."""

    seq: int
    request: int
    command: int
    status: int
    values: tuple[int, int, int]
    stream_id: int


Frame = SamplesFrame | MarkFrame | InfoFrame | ReplyFrame


def raw_values(samples: bytes, *, wide: bool) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Raw shunts and raw bus voltages of samples as they are sent."""
    found = np.frombuffer(samples, _sample_type(wide=wide))
    if wide:
        return _of_24_bits(found["shunt"], signed=True), _of_24_bits(found["bus"], signed=False) & _WIDE_BUS_MASK
    return found["shunt"].astype(np.int32), found["bus"].astype(np.int32) & _BUS_MASK


def _sample_type(*, wide: bool) -> np.dtype[np.void]:
    return _WIDE_SAMPLE if wide else _SAMPLE


def _of_24_bits(parts: npt.NDArray[np.uint8], *, signed: bool) -> npt.NDArray[np.int32]:
    low, middle, high = parts.astype(np.int32).T
    value: npt.NDArray[np.int32] = low | middle << 8 | high << 16
    return value - (high >> 7 << 24) if signed else value


class FrameDecoder:
    """Turns the meter's byte stream, cut anywhere, into frames. It raises for no input but another protocol."""

    def __init__(self) -> None:
        self.counters = StreamCounters()
        self._partial = b""
        self._synchronised = False
        self._sequence = Sequence(self.counters)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes, in order of arrival. Raises MeterError for another protocol version."""
        pieces = (self._partial + data).split(DELIMITER)
        # A piece that is already too long can only get longer: its rest need not be kept.
        self._partial = pieces.pop()[: MAX_STUFFED_BYTES + 1]
        self.counters.bytes += len(data)
        frames: list[Frame] = []
        for piece in pieces:
            if piece:
                self._take(piece, frames)
            self._synchronised = True
        return frames

    def _take(self, piece: bytes, frames: list[Frame]) -> None:
        body = unpacked(piece)
        if body is None:
            self._damaged()
            return
        kind, protocol, seq = HEAD.unpack_from(body)
        if protocol != PROTOCOL:
            raise MeterError(
                f"the meter speaks protocol {protocol}; this version of fsjoule supports protocol {PROTOCOL}",
                hint="update fsjoule if the meter is newer, or the meter's firmware if it is older",
            )
        if kind >= _FIRST_COMMAND:
            self.counters.unknown += 1
            return
        payload = body[HEAD.size :]
        if len(payload) < _STREAM.size:
            self._damaged()
            return
        stream_id: int = _STREAM.unpack_from(payload)[0]
        parser = _PARSERS.get(kind)
        frame = parser(seq, payload[_STREAM.size :], stream_id) if parser else None
        if parser and frame is None:
            self._damaged()
        elif self._sequence.accepts(seq, hash(body), stream_id):
            self.counters.unknown += frame is None
            if frame is not None:
                self.counters.frames += 1
                self.counters.intact_bytes += len(piece) + len(DELIMITER)
                frames.append(frame)

    def _damaged(self) -> None:
        # Bytes before the first delimiter are the end of a frame that began before the connection.
        if self._synchronised:
            self.counters.damaged += 1


def _parse_wide_samples(seq: int, payload: bytes, stream_id: int) -> SamplesFrame | None:
    return _parse_samples(seq, payload, stream_id, wide=True)


def _parse_samples(seq: int, payload: bytes, stream_id: int, *, wide: bool = False) -> SamplesFrame | None:
    if len(payload) < _SAMPLES.size:
        return None
    tick, time_us, energy_raw, bus_total, missed, flags, count = _SAMPLES.unpack_from(payload)
    if tick < 0 or time_us < 0 or bus_total < 0:
        return None
    if count > _MAX_SAMPLES or len(payload) != _SAMPLES.size + count * _sample_type(wide=wide).itemsize:
        return None
    samples = payload[_SAMPLES.size :]
    return SamplesFrame(seq, tick, time_us, energy_raw, bus_total, missed, flags, samples, stream_id, wide)


def _parse_mark(seq: int, payload: bytes, stream_id: int) -> MarkFrame | None:
    if len(payload) < _MARK.size:
        return None
    fields: tuple[int, int, int, int] = _MARK.unpack_from(payload)
    time_us, number, flags, length = fields
    text = payload[_MARK.size :].decode("latin-1")
    if time_us < 0 or number >= len(_MARK_SOURCES) or length > _MAX_MARK_BYTES or len(text) != length:
        return None
    if not (text.isascii() and text.isprintable()):
        return None
    checked, damaged = bool(flags & MARK_CHECKED), bool(flags & MARK_DAMAGED)
    return MarkFrame(seq, time_us, text, _MARK_SOURCES[number], checked, damaged, stream_id=stream_id)


def _parse_info(seq: int, payload: bytes, stream_id: int) -> InfoFrame | None:
    if len(payload) < _INFO.size:  # a later firmware may say more
        return None
    fields: tuple[Any, ...] = _INFO.unpack_from(payload)
    rate_hz, shunt_uohm, range_mv, adc_config, flags, cause, firmware, serial = fields[:8]
    number: int
    number, shunt_pv, bus_pv = fields[21:]
    if 0 in (rate_hz, shunt_uohm, shunt_pv, bus_pv):
        return None
    info = Ina219Info(
        protocol=PROTOCOL,
        firmware=_name(firmware),
        serial_number=_name(serial),
        rate_hz=rate_hz,
        shunt_uohm=shunt_uohm,
        shunt_range_mv=range_mv,
        simulated=bool(flags & INFO_SIMULATED),
        adc_config=adc_config,
        calibration=MeterCalibration(*fields[10:16]),
        shunt_lsb_uv=shunt_pv / 1e6,
        bus_lsb_mv=bus_pv / 1e9,
        chip=_CHIPS[number] if number < len(_CHIPS) else CurrentMonitor.UNKNOWN,
    )
    status = MeterStatus(
        stream_id=stream_id,
        sampling=bool(flags & INFO_SAMPLING),
        unsaved=bool(flags & INFO_UNSAVED),
        settings_damaged=bool(flags & INFO_SETTINGS_DAMAGED),
        reset_cause=_reset_cause(cause),
        i2c_faults=fields[8],
        frames_dropped=fields[9],
        inputs=InputCounts(*fields[16:21]),
    )
    return InfoFrame(seq, info, status)


def _reset_cause(number: int) -> ResetCause:
    return _RESET_CAUSES[number] if number < len(_RESET_CAUSES) else ResetCause.UNKNOWN


def _parse_reply(seq: int, payload: bytes, stream_id: int) -> ReplyFrame | None:
    if len(payload) != _REPLY.size:
        return None
    request, command, status, *values = _REPLY.unpack_from(payload)
    first, second, third = values
    return ReplyFrame(seq, request, command, status, (first, second, third), stream_id)


# Each parses what comes after the head and the stream's number. It returns None if length and content disagree.
_PARSERS: Final[dict[int, Callable[[int, bytes, int], Frame | None]]] = {
    TYPE_SAMPLES: _parse_samples,
    TYPE_MARK: _parse_mark,
    TYPE_INFO: _parse_info,
    TYPE_REPLY: _parse_reply,
    TYPE_WIDE_SAMPLES: _parse_wide_samples,
}


def _name(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode("ascii", errors="replace")
