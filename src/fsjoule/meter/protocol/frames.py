"""The meter's frames, protocol 2: bytes in, frames out. docs/meter-protocol.md describes them byte by byte.

`FrameDecoder` decodes frames and counts losses and damage. It does no I/O, and its memory does not grow.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.errors import MeterError
from fsjoule.meter.protocol.framing import DELIMITER, HEAD, MAX_STUFFED_BYTES, PROTOCOL, unpacked
from fsjoule.model import Ina219Info, MarkSource, MeterCalibration, MeterStatus, ResetCause

TYPE_SAMPLES: Final = 1
TYPE_MARK: Final = 2
TYPE_INFO: Final = 3
TYPE_REPLY: Final = 4
FLAG_OVERFLOW: Final = 0x01
FLAG_CLIPPED: Final = 0x02
FLAG_I2C_FAULT: Final = 0x04
FLAG_BUS_RESET: Final = 0x08
INFO_SIMULATED: Final = 0x01
INFO_SAMPLING: Final = 0x02
INFO_UNSAVED: Final = 0x04
INFO_SETTINGS_DAMAGED: Final = 0x08
SAMPLE_TYPE: Final = np.dtype([("shunt", "<i2"), ("bus", "<u2")])
_MAX_SAMPLES: Final = 20
_MAX_MARK_BYTES: Final = 16
# Ticks, times and the sum of bus are unsigned on the line; they will never reach 2^63.
_SAMPLES: Final = struct.Struct("<qqqqIBB")
_MARK: Final = struct.Struct("<qBB")
_INFO: Final = struct.Struct("<IIHHBB16s16sIIIiiiIII")
_REPLY: Final = struct.Struct("<IBBiii")
_MARK_SOURCES: Final[tuple[MarkSource, ...]] = (MarkSource.LINE, MarkSource.RISING, MarkSource.FALLING, MarkSource.HOST)
_RESET_CAUSES: Final[tuple[ResetCause, ...]] = (
    ResetCause.UNKNOWN,
    ResetCause.POWER,
    ResetCause.WATCHDOG,
    ResetCause.SOFTWARE,
    ResetCause.PIN,
    ResetCause.BROWN_OUT,
)
_U32_MODULUS: Final = 1 << 32
# Remembered frames, lost ones and others, to tell late frames, duplicates and a new start apart.
_REMEMBERED: Final = 4096


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

    @property
    def count(self) -> int:
        return len(self.samples) // SAMPLE_TYPE.itemsize

    @property
    def shunt_raw(self) -> npt.NDArray[np.int16]:
        """Shunt voltages in 10 uV, shape (count,)."""
        return np.frombuffer(self.samples, SAMPLE_TYPE)["shunt"]

    @property
    def bus_raw(self) -> npt.NDArray[np.uint16]:
        """Bus voltages in 4 mV, shape (count,)."""
        return np.frombuffer(self.samples, SAMPLE_TYPE)["bus"]


@dataclass(frozen=True, slots=True)
class MarkFrame:
    """A moment in the meter's clock: a line from the board, an edge (without text), or a command from the host."""

    seq: int
    time_us: int
    text: str
    source: MarkSource = MarkSource.LINE


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


Frame = SamplesFrame | MarkFrame | InfoFrame | ReplyFrame


@dataclass(slots=True)
class StreamCounters:
    """Counts of one line: `bytes` received, `frames` decoded, of `intact_bytes` with delimiters, and everything wrong.

    `damaged`: pieces between two delimiters that are not a frame. `lost`: missing sequence numbers, damaged frames
    included. `duplicates` came twice and were dropped. `reordered` came late and no longer count as lost. `unknown`:
    whole frames of a type unknown to this version. `streams`: how often the meter began another stream.
    """

    bytes: int = 0
    frames: int = 0
    intact_bytes: int = 0
    damaged: int = 0
    lost: int = 0
    duplicates: int = 0
    reordered: int = 0
    unknown: int = 0
    streams: int = 0


class FrameDecoder:
    """Turns the meter's byte stream, cut anywhere, into frames. It raises for no input but another protocol."""

    def __init__(self) -> None:
        self.counters = StreamCounters()
        self._partial = b""
        self._synchronised = False
        self._sequence = _Sequence(self.counters)

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
        _require_protocol(protocol)
        parser = _PARSERS.get(kind)
        frame = parser(seq, body) if parser else None
        if parser and frame is None:
            self._damaged()
        elif self._sequence.accepts(seq, hash(body), frame.status.stream_id if isinstance(frame, InfoFrame) else None):
            self.counters.unknown += frame is None
            if frame is not None:
                self.counters.frames += 1
                self.counters.intact_bytes += len(piece) + len(DELIMITER)
                frames.append(frame)

    def _damaged(self) -> None:
        # Bytes before the first delimiter are the end of a frame that began before the connection.
        if self._synchronised:
            self.counters.damaged += 1


def _require_protocol(protocol: int) -> None:
    if protocol != PROTOCOL:
        raise MeterError(
            f"the meter speaks protocol {protocol}; this version of fsjoule supports protocol {PROTOCOL}",
            hint="update fsjoule if the meter is newer, or the meter's firmware if it is older",
        )


def _parse_samples(seq: int, body: bytes) -> SamplesFrame | None:
    begin = HEAD.size + _SAMPLES.size
    if len(body) < begin:
        return None
    tick, time_us, energy_raw, bus_total, missed, flags, count = _SAMPLES.unpack_from(body, HEAD.size)
    if tick < 0 or time_us < 0 or bus_total < 0:
        return None
    if count > _MAX_SAMPLES or len(body) != begin + count * SAMPLE_TYPE.itemsize:
        return None
    return SamplesFrame(seq, tick, time_us, energy_raw, bus_total, missed, flags, body[begin:])


def _parse_mark(seq: int, body: bytes) -> MarkFrame | None:
    begin = HEAD.size + _MARK.size
    if len(body) < begin:
        return None
    fields: tuple[int, int, int] = _MARK.unpack_from(body, HEAD.size)
    time_us, source, length = fields
    text = body[begin:].decode("latin-1")
    if time_us < 0 or source >= len(_MARK_SOURCES) or length > _MAX_MARK_BYTES or len(text) != length:
        return None
    if not (text.isascii() and text.isprintable()):
        return None
    return MarkFrame(seq, time_us, text, _MARK_SOURCES[source])


def _parse_info(seq: int, body: bytes) -> InfoFrame | None:
    if len(body) != HEAD.size + _INFO.size:
        return None
    (
        rate_hz,
        shunt_uohm,
        range_mv,
        adc_config,
        flags,
        cause,
        firmware,
        serial,
        stream_id,
        i2c_faults,
        frames_dropped,
        *calibration,
    ) = _INFO.unpack_from(body, HEAD.size)
    if rate_hz == 0 or shunt_uohm == 0:
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
        calibration=MeterCalibration(*calibration),
    )
    status = MeterStatus(
        stream_id=stream_id,
        sampling=bool(flags & INFO_SAMPLING),
        unsaved=bool(flags & INFO_UNSAVED),
        settings_damaged=bool(flags & INFO_SETTINGS_DAMAGED),
        reset_cause=_reset_cause(cause),
        i2c_faults=i2c_faults,
        frames_dropped=frames_dropped,
    )
    return InfoFrame(seq, info, status)


def _reset_cause(number: int) -> ResetCause:
    return _RESET_CAUSES[number] if number < len(_RESET_CAUSES) else ResetCause.UNKNOWN


def _parse_reply(seq: int, body: bytes) -> ReplyFrame | None:
    if len(body) != HEAD.size + _REPLY.size:
        return None
    request, command, status, *values = _REPLY.unpack_from(body, HEAD.size)
    first, second, third = values
    return ReplyFrame(seq, request, command, status, (first, second, third))


# Each parses a body with a correct checksum. It returns None if length and content disagree.
_PARSERS: Final[dict[int, Callable[[int, bytes], Frame | None]]] = {
    TYPE_SAMPLES: _parse_samples,
    TYPE_MARK: _parse_mark,
    TYPE_INFO: _parse_info,
    TYPE_REPLY: _parse_reply,
}


def _name(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode("ascii", errors="replace")


@dataclass(slots=True)
class _Sequence:
    """Follows sequence numbers, modulo 2^32, and counts losses. `seen` has the digests of frames that arrived."""

    counters: StreamCounters
    expected: int | None = None
    stream_id: int | None = None
    lost: OrderedDict[int, None] = field(default_factory=OrderedDict[int, None])
    seen: OrderedDict[int, int] = field(default_factory=OrderedDict[int, int])

    def accepts(self, seq: int, digest: int, stream_id: int | None) -> bool:
        """Whether the frame is new. `digest` belongs to its content, `stream_id` to an info frame."""
        ahead = 0 if self.expected is None else (seq - self.expected) % _U32_MODULUS
        if ahead < _U32_MODULUS // 2:
            self._lose(seq - ahead, ahead)
            self._advance(seq, digest, stream_id)
            return True
        if seq in self.lost:
            del self.lost[seq]
            self.counters.lost -= 1
            self.counters.reordered += 1
            self._remember(seq, digest)
            return True
        if self.seen.get(seq) == digest:
            self.counters.duplicates += 1
            return False
        # The number belonged to another frame: the meter restarted, or is another one, and counts from 0 again. Its
        # first info frame may have been lost.
        self.lost.clear()
        self.seen.clear()
        self._advance(seq, digest, stream_id)
        return True

    def _remember(self, seq: int, digest: int) -> None:
        self.seen[seq] = digest
        while len(self.seen) > _REMEMBERED:
            self.seen.popitem(last=False)

    def _advance(self, seq: int, digest: int, stream_id: int | None) -> None:
        self._remember(seq, digest)
        self.expected = (seq + 1) % _U32_MODULUS
        if stream_id is not None and stream_id != self.stream_id:
            self.counters.streams += self.stream_id is not None
            self.stream_id = stream_id

    def _lose(self, first: int, count: int) -> None:
        self.counters.lost += count
        for offset in range(max(0, count - _REMEMBERED), count):
            self.lost[(first + offset) % _U32_MODULUS] = None
        while len(self.lost) > _REMEMBERED:
            self.lost.popitem(last=False)
