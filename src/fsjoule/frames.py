"""The meter's wire format, protocol 1: bytes in, samples out. docs/meter-protocol.md describes it byte by byte.

`FrameDecoder` makes frames of bytes and counts what was damaged or lost on the way; `TraceBuilder` makes a trace of
frames. Neither does any I/O, and neither keeps more than it needs: the decoder's memory does not grow, the builder's by
seven bytes a sample.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.errors import MeterError
from fsjoule.model import Mark, MeterInfo, Trace

PROTOCOL: Final = 1
TYPE_SAMPLES: Final = 1
TYPE_MARK: Final = 2
TYPE_INFO: Final = 3
FLAG_OVERFLOW: Final = 0x01
FLAG_CLIPPED: Final = 0x02
FLAG_I2C_FAULT: Final = 0x04
_MAX_SAMPLES: Final = 20
_MAX_MARK_BYTES: Final = 16
_HEAD: Final = struct.Struct("<BBI")
# Ticks and times are unsigned on the line, and stay below 2^63 for as long as there are meters.
_SAMPLES: Final = struct.Struct("<qqqIBB")
_MARK: Final = struct.Struct("<qB")
_INFO: Final = struct.Struct("<IIHHB16s16sI")
_CRC_BYTES: Final = 4
_SAMPLE_TYPE: Final = np.dtype([("shunt", "<i2"), ("bus", "<u2")])
# A frame has at most 253 bytes, and COBS adds one: no run is long enough for the code 0xFF, and decoding is simple.
_MAX_STUFFED_BYTES: Final = 254
_U32_MODULUS: Final = 1 << 32
# How many lost sequence numbers are remembered, to know a late frame from one that came twice.
_REMEMBERED_LOST: Final = 4096


@dataclass(frozen=True, slots=True)
class SamplesFrame:
    """Samples of consecutive ticks, at most 20; none if the meter has only missed ticks to report.

    `energy_raw` is raw shunt times raw bus, summed over all samples before `first_tick`; `missed_total` counts the
    ticks before `first_tick` that have no sample, since the meter's start, modulo 2^32.
    """

    seq: int
    first_tick: int
    first_time_us: int
    energy_raw: int
    missed_total: int
    flags: int
    samples: bytes

    @property
    def count(self) -> int:
        return len(self.samples) // _SAMPLE_TYPE.itemsize

    @property
    def shunt_raw(self) -> npt.NDArray[np.int16]:
        """Shunt voltages in 10 uV, shape (count,)."""
        return np.frombuffer(self.samples, _SAMPLE_TYPE)["shunt"]

    @property
    def bus_raw(self) -> npt.NDArray[np.uint16]:
        """Bus voltages in 4 mV, shape (count,)."""
        return np.frombuffer(self.samples, _SAMPLE_TYPE)["bus"]


@dataclass(frozen=True, slots=True)
class MarkFrame:
    """A line of the board, with the arrival of its first byte in the meter's clock."""

    seq: int
    time_us: int
    text: str


@dataclass(frozen=True, slots=True)
class InfoFrame:
    """What the meter says of itself. `adc_config` is the INA219's CONFIG register; `boot_id` changes at every start."""

    seq: int
    info: MeterInfo
    adc_config: int
    boot_id: int


Frame = SamplesFrame | MarkFrame | InfoFrame


@dataclass(slots=True)
class StreamCounters:
    """What became of the stream: `bytes` that came in, `frames` that came out, and what was not right.

    `damaged` pieces between two delimiters were no frame; `lost` frames are missing by their sequence numbers, damaged
    ones included; `duplicates` came twice and were dropped; `reordered` ones came late, and no longer count as lost;
    `unknown` ones are whole, but of a type that this version does not know; `restarts` are those of the meter.
    """

    bytes: int = 0
    frames: int = 0
    damaged: int = 0
    lost: int = 0
    duplicates: int = 0
    reordered: int = 0
    unknown: int = 0
    restarts: int = 0


class FrameDecoder:
    """Turns the meter's byte stream, cut anywhere, into frames. No input but another protocol's makes it raise."""

    def __init__(self) -> None:
        self.counters = StreamCounters()
        self._partial = b""
        self._synchronised = False
        self._sequence = _Sequence(self.counters)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes, in the order of arrival.

        Raises MeterError if a whole frame is of another protocol version.
        """
        pieces = (self._partial + data).split(b"\0")
        # A piece that is already too long stays so when more is added: nothing is gained by keeping all of it.
        self._partial = pieces.pop()[: _MAX_STUFFED_BYTES + 1]
        self.counters.bytes += len(data)
        frames: list[Frame] = []
        for piece in pieces:
            if piece:
                self._take(piece, frames)
            self._synchronised = True
        return frames

    def _take(self, piece: bytes, frames: list[Frame]) -> None:
        body = _body(piece)
        if body is None:
            self._damaged()
            return
        kind, protocol, seq = _HEAD.unpack_from(body)
        _require_protocol(protocol)
        parser = _PARSERS.get(kind)
        frame = parser(seq, body) if parser else None
        if parser and frame is None:
            self._damaged()
        elif self._sequence.accepts(seq, frame.boot_id if isinstance(frame, InfoFrame) else None):
            self.counters.unknown += frame is None
            self.counters.frames += frame is not None
            frames += [frame] if frame else []

    def _damaged(self) -> None:
        # What comes before the first delimiter is the end of a frame that began before anybody listened.
        if self._synchronised:
            self.counters.damaged += 1


def _body(piece: bytes) -> bytes | None:
    """The frame in a piece of the stream, without its checksum, or None if it is damaged."""
    content = _unstuffed(piece)
    if content is None or len(content) < _HEAD.size + _CRC_BYTES:
        return None
    body = content[:-_CRC_BYTES]
    return body if zlib.crc32(body).to_bytes(_CRC_BYTES, "little") == content[-_CRC_BYTES:] else None


def _unstuffed(piece: bytes) -> bytes | None:
    """The content of a COBS-encoded frame without its delimiter, or None if it is not one.

    With frames this short every code is the distance to the next zero, and so decoding is putting the zeros back.
    """
    size = len(piece)
    if size > _MAX_STUFFED_BYTES:
        return None
    content = bytearray(piece)
    at = piece[0]
    while at < size:
        code = piece[at]
        content[at] = 0
        at += code
    return bytes(content[1:]) if at == size else None


def _require_protocol(protocol: int) -> None:
    if protocol != PROTOCOL:
        raise MeterError(
            f"the meter speaks protocol {protocol}; this version of fsjoule knows protocol {PROTOCOL}",
            hint="update fsjoule if the meter is newer, or the meter's firmware if it is older",
        )


def _parse_samples(seq: int, body: bytes) -> SamplesFrame | None:
    begin = _HEAD.size + _SAMPLES.size
    if len(body) < begin:
        return None
    tick, time_us, energy_raw, missed, flags, count = _SAMPLES.unpack_from(body, _HEAD.size)
    if tick < 0 or time_us < 0 or count > _MAX_SAMPLES or len(body) != begin + count * _SAMPLE_TYPE.itemsize:
        return None
    return SamplesFrame(seq, tick, time_us, energy_raw, missed, flags, body[begin:])


def _parse_mark(seq: int, body: bytes) -> MarkFrame | None:
    begin = _HEAD.size + _MARK.size
    if len(body) < begin:
        return None
    time_us, length = _MARK.unpack_from(body, _HEAD.size)
    text = body[begin:]
    if time_us < 0 or length > _MAX_MARK_BYTES or len(text) != length or not text.isascii():
        return None
    return MarkFrame(seq, time_us, text.decode("ascii"))


def _parse_info(seq: int, body: bytes) -> InfoFrame | None:
    if len(body) != _HEAD.size + _INFO.size:
        return None
    rate_hz, shunt_uohm, range_mv, adc_config, simulated, firmware, serial, boot_id = _INFO.unpack_from(
        body, _HEAD.size
    )
    if rate_hz == 0 or shunt_uohm == 0:
        return None
    info = MeterInfo(PROTOCOL, _name(firmware), _name(serial), rate_hz, shunt_uohm, range_mv, bool(simulated))
    return InfoFrame(seq, info, adc_config, boot_id)


# Each gives the frame in a body whose checksum is right, or None if its length contradicts its content.
_PARSERS: Final[dict[int, Callable[[int, bytes], Frame | None]]] = {
    TYPE_SAMPLES: _parse_samples,
    TYPE_MARK: _parse_mark,
    TYPE_INFO: _parse_info,
}


def _name(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode("ascii", errors="replace")


@dataclass(slots=True)
class _Sequence:
    """Follows sequence numbers, modulo 2^32, and counts what they tell."""

    counters: StreamCounters
    expected: int | None = None
    boot_id: int | None = None
    lost: OrderedDict[int, None] = field(default_factory=OrderedDict[int, None])

    def accepts(self, seq: int, boot_id: int | None) -> bool:
        """Whether the frame is new. `boot_id` is that of an info frame."""
        if seq == self.expected:
            self._advance(seq, boot_id)
            return True
        if self.expected is None or self._restarted(boot_id):
            self.lost.clear()
            self._advance(seq, boot_id)
            return True
        ahead = (seq - self.expected) % _U32_MODULUS
        if ahead < _U32_MODULUS // 2:
            self._lose(self.expected, ahead)
            self._advance(seq, boot_id)
            return True
        return self._accepts_late(seq)

    def _restarted(self, boot_id: int | None) -> bool:
        return boot_id is not None and self.boot_id is not None and boot_id != self.boot_id

    def _advance(self, seq: int, boot_id: int | None) -> None:
        self.expected = (seq + 1) % _U32_MODULUS
        if boot_id is not None:
            self.counters.restarts += self._restarted(boot_id)
            self.boot_id = boot_id

    def _lose(self, first: int, count: int) -> None:
        self.counters.lost += count
        for offset in range(max(0, count - _REMEMBERED_LOST), count):
            self.lost[(first + offset) % _U32_MODULUS] = None
        while len(self.lost) > _REMEMBERED_LOST:
            self.lost.popitem(last=False)

    def _accepts_late(self, seq: int) -> bool:
        if seq not in self.lost:
            self.counters.duplicates += 1
            return False
        del self.lost[seq]
        self.counters.lost -= 1
        self.counters.reordered += 1
        return True


_FAULTS: Final[dict[int, str]] = {
    FLAG_OVERFLOW: "the INA219's arithmetic overflowed",
    FLAG_CLIPPED: "the shunt voltage reached the end of the meter's range",
    FLAG_I2C_FAULT: "the INA219 did not answer",
}


class _Head(IntEnum):
    """Columns of what is kept of a samples frame besides its samples."""

    TICK = 0
    TIME = 1
    ENERGY = 2
    MISSED = 3
    FLAGS = 4
    COUNT = 5


class TraceBuilder:
    """Collects frames and makes a trace of them. Frames may come late, but not twice: the decoder sees to that.

    `info` is an info frame that arrived before; without one, one must be among the frames.
    """

    def __init__(self, info: InfoFrame | None = None) -> None:
        self._info = info
        self._restarted = False
        self._heads = array("q")
        self._samples = bytearray()
        self._marks: list[Mark] = []

    def add(self, frames: Iterable[Frame]) -> None:
        """Take frames, in the order of arrival. What a meter sends after a restart belongs to another trace."""
        for frame in frames:
            if isinstance(frame, InfoFrame):
                self._restarted |= self._info is not None and frame.boot_id != self._info.boot_id
                self._info = self._info or frame
            elif self._restarted:
                continue
            elif isinstance(frame, SamplesFrame):
                self._add_samples(frame)
            else:
                self._marks.append(Mark(frame.time_us, frame.text))

    def _add_samples(self, frame: SamplesFrame) -> None:
        # In the order of _Head.
        self._heads.extend(
            (frame.first_tick, frame.first_time_us, frame.energy_raw, frame.missed_total, frame.flags, frame.count)
        )
        self._samples += frame.samples

    def build(self) -> Trace:
        """The trace of all that was added so far, in order of ticks.

        Raises MeterError if there was no info frame.
        """
        if self._info is None:
            raise MeterError(
                "the meter sent no info frame, without which its samples have no unit",
                hint="it sends one every second: record for longer, or check the line for damage",
            )
        info = self._info.info
        heads = np.array(self._heads, dtype=np.int64).reshape(-1, len(_Head))
        samples = np.frombuffer(bytes(self._samples), _SAMPLE_TYPE)
        counts = heads[:, _Head.COUNT]
        index = np.arange(len(samples)) - np.repeat(np.cumsum(counts) - counts, counts)
        ticks = np.repeat(heads[:, _Head.TICK], counts) + index
        times_us = np.repeat(heads[:, _Head.TIME], counts) + index * 1_000_000 // info.rate_hz
        order = np.argsort(ticks, kind="stable")
        heads = heads[np.argsort(heads[:, _Head.TICK], kind="stable")]
        missed, lost = _missed_and_lost(heads)
        return Trace(
            info=info,
            ticks=ticks[order],
            times_us=times_us[order],
            shunt_raw=samples["shunt"][order],
            bus_raw=samples["bus"][order],
            checkpoint_ticks=heads[:, _Head.TICK].copy(),
            checkpoint_raw=heads[:, _Head.ENERGY].copy(),
            marks=tuple(sorted(self._marks, key=lambda mark: mark.time_us)),
            missed=missed,
            lost=lost,
            faults=self._faults(heads[:, _Head.FLAGS]),
        )

    def _faults(self, flags: npt.NDArray[np.int64]) -> tuple[str, ...]:
        found = [
            f"{text} (in {frames} of {len(flags)} frames)"
            for flag, text in _FAULTS.items()
            if (frames := int(np.count_nonzero(flags & flag)))
        ]
        if self._restarted:
            found.append("the meter restarted; what it sent afterwards is left out")
        return tuple(found)


def _missed_and_lost(heads: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Ticks from the first to the last of the trace that were never sampled, and ticks whose frames did not arrive."""
    if not len(heads):
        return 0, 0
    missed = int(heads[-1, _Head.MISSED] - heads[0, _Head.MISSED]) % _U32_MODULUS
    end = int((heads[:, _Head.TICK] + heads[:, _Head.COUNT]).max())
    span = end - int(heads[0, _Head.TICK])
    return missed, max(0, span - int(heads[:, _Head.COUNT].sum()) - missed)
