#!/usr/bin/env python3
"""What a bad line between meter and host costs: no whole frame may be dropped, no damaged one taken, none taken twice.

A trial is a power-up of the meter at a load that never changes, so that the frames of all power-ups are equal but for
what names their stream: the worst case for telling a duplicate from a restart. It lasts up to a hundred frames. Half of
all power-ups lose their first frames, the info frame among them. On the line frames get lost, have bits flipped or
bytes overwritten, lose bytes (and with them the end that divides them from the next), come twice, change places with
the next one, or come up to twenty frames late, over restarts too; and noise comes between them.

`whole` are the frames that arrived whole at least once. Each of them must come out of the decoder once, with its
content: `dropped` did not, `twice` came out again, `wrong` came out and was not among them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from output import Report, arguments, told

from fsjoule.meter.protocol.frames import Frame, FrameDecoder, InfoFrame, MarkFrame, ReplyFrame, SamplesFrame

_LONGEST: Final = 100
_POWER_UPS_AT_ONCE: Final = 200
_FED_BYTES: Final = 4096
_CHIP: Final = struct.pack("<BII", 0, 10_000_000, 4_000_000_000)  # an INA219, and its units in pV
_PROTOCOL: Final = 3
# What becomes of a frame, and how often.
_FATES: Final = {
    "lost": 0.01,
    "flipped": 0.01,
    "overwritten": 0.005,
    "cut": 0.005,
    "twice": 0.01,
    "swapped": 0.01,
    "late": 0.005,
    "noise": 0.005,
}


@dataclass
class Counts:
    sent: int = 0
    power_ups: int = 0
    hit: int = 0
    whole: int = 0
    dropped: int = 0
    twice: int = 0
    wrong: int = 0


def payloads() -> list[tuple[int, bytes]]:
    """Type, and payload without the stream's number, of each frame of a power-up, by its number."""
    made: list[tuple[int, bytes]] = []
    for seq in range(_LONGEST):
        if seq % 50 == 0:
            head = struct.pack("<IIHHBB16s16s", 1000, 100_000, 80, 0x091F, 3, 1, b"0.4.0", b"SIM0")
            made.append((3, head + bytes(8) + bytes(24) + bytes(20) + _CHIP))
        elif seq % 17 == 0:
            text = b"S%d" % seq
            head = struct.pack("<QBBB", 20_000 * seq, 0, 1, len(text))
            made.append((2, head + text))
        elif seq % 29 == 0:
            made.append((4, struct.pack("<IBBiii", 0, 0, 8, 0, 0, 0)))
        else:
            head = struct.pack("<QQqQIBB", 20 * seq, 20_000 * seq, 62_500_000 * seq, 25_000 * seq, 0, 0, 20)
            made.append((1, head + struct.pack("<hH", 2500, 1250) * 20))
    return made


def frame(kind: int, seq: int, stream: bytes, payload: bytes) -> bytes:
    """A frame as it goes over the line, its delimiter included."""
    body = struct.pack("<BBI", kind, _PROTOCOL, seq) + stream + payload
    content = body + zlib.crc32(body).to_bytes(4, "little")
    return b"".join([bytes((len(run) + 1,)) + run for run in content.split(b"\0")]) + b"\0"


class Line:
    """Damages what a meter sends."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._names = list(_FATES)
        self._shares = np.array([1 - sum(_FATES.values()), *_FATES.values()])
        self.hit = 0

    def number(self, below: int) -> int:
        return int(self._random.integers(below))

    def carry(self, frames: list[bytes]) -> bytes:
        """What arrives of some frames."""
        out = [*frames, b""]
        fates = self._random.choice(len(self._shares), size=len(frames), p=self._shares)
        for at in np.flatnonzero(fates).tolist():
            self._befall(self._names[fates[at] - 1], out, at)
            self.hit += 1
        return b"".join(out)

    def _befall(self, fate: str, out: list[bytes], at: int) -> None:
        piece = out[at]
        place, size = self.number(len(piece) + 1), 1 + self.number(50)
        if fate == "lost":
            out[at] = b""
        elif fate == "flipped":
            changed = bytearray(piece)
            for _ in range(1 + self.number(8)):
                if changed:
                    changed[self.number(len(changed))] ^= 1 << self.number(8)
            out[at] = bytes(changed)
        elif fate == "overwritten":
            out[at] = piece[:place] + self._random.bytes(len(piece[place : place + size])) + piece[place + size :]
        elif fate == "cut":
            out[at] = piece[:place] + piece[place + size :]
        elif fate == "twice":
            out[at] = piece * 2
        elif fate == "swapped":
            out[at], out[at + 1] = out[at + 1], piece
        elif fate == "late":
            out[at] = b""
            out[min(at + 2 + self.number(20), len(out) - 1)] += piece
        else:
            out[at] = piece + self._random.bytes(size)


@dataclass
class Comparison:
    """Follows what arrived and what came out of the decoder."""

    counts: Counts = field(default_factory=Counts)
    decoder: FrameDecoder = field(default_factory=FrameDecoder)
    _partial: bytes = b""

    def __post_init__(self) -> None:
        stream = bytes(4)
        self._made = payloads()
        self._likes = [
            FrameDecoder().feed(frame(kind, seq, stream, payload))[0] for seq, (kind, payload) in enumerate(self._made)
        ]

    def power_up(self, stream_id: int, begin: int, end: int) -> dict[bytes, tuple[int, int]]:
        """The frames `begin` to `end` of a power-up, each with its stream and its number."""
        stream = struct.pack("<I", stream_id)
        return {
            frame(kind, seq, stream, payload): (stream_id, seq)
            for seq, (kind, payload) in enumerate(self._made[:end])
            if seq >= begin
        }

    def take(self, sent: dict[bytes, tuple[int, int]], arrived: bytes) -> None:
        """Compare what arrived of the frames that were sent with what is decoded."""
        pieces = (self._partial + arrived).split(b"\0")
        self._partial = pieces.pop()
        names = [sent[name] for piece in pieces if (name := piece + b"\0") in sent]
        whole = set(names)
        decoded = [
            each
            for at in range(0, len(arrived), _FED_BYTES)
            for each in self.decoder.feed(arrived[at : at + _FED_BYTES])
        ]
        counts = self.counts
        counts.whole += len(whole)
        right = {_name(each) for each in decoded if _name(each) in whole and self._is_like(each)}
        counts.dropped += len(whole) - len(right)
        counts.wrong += sum(_name(each) not in right for each in decoded)
        counts.twice += len(decoded) - len({_name(each) for each in decoded})

    def _is_like(self, decoded: Frame) -> bool:
        like = self._likes[decoded.seq]
        if isinstance(decoded, SamplesFrame):
            return isinstance(like, SamplesFrame) and _content(decoded) == _content(like)
        if isinstance(decoded, MarkFrame):
            return isinstance(like, MarkFrame) and (decoded.time_us, decoded.text) == (like.time_us, like.text)
        if isinstance(decoded, ReplyFrame):
            return isinstance(like, ReplyFrame) and (decoded.request, decoded.status) == (like.request, like.status)
        return isinstance(like, InfoFrame) and decoded.info == like.info


def _content(samples: SamplesFrame) -> tuple[int, int, int, int, bytes]:
    return samples.first_tick, samples.first_time_us, samples.energy_raw, samples.bus_total, samples.samples


def _name(decoded: Frame) -> tuple[int, int]:
    stream_id = decoded.status.stream_id if isinstance(decoded, InfoFrame) else decoded.stream_id
    return stream_id, decoded.seq


def compare(trials: int, seed: int) -> Counts:
    """Send so many power-ups over a bad line."""
    line, comparison = Line(seed), Comparison()
    counts = comparison.counts
    for size in told(_bunches(trials), -(-trials // _POWER_UPS_AT_ONCE), "frames over a bad line"):
        sent: dict[bytes, tuple[int, int]] = {}
        frames: list[bytes] = []
        for _ in range(size):
            begin = 1 + line.number(49) if line.number(2) else 0
            end = begin + 1 + line.number(_LONGEST - begin)
            made = comparison.power_up(line.number(1 << 32), begin, end)
            sent |= made
            frames += made
        comparison.take(sent, line.carry(frames))
        counts.sent += len(frames)
        counts.power_ups += size
    counts.hit = line.hit
    return counts


def _bunches(trials: int) -> Iterator[int]:
    for begin in range(0, trials, _POWER_UPS_AT_ONCE):
        yield min(_POWER_UPS_AT_ONCE, trials - begin)


def main() -> None:
    options = arguments(str(__doc__), trials=270_000).parse_args()
    report = Report("Frames over a bad line", {"trials": options.trials, "seed": options.seed})
    report.rows.append(vars(compare(options.trials, options.seed)))
    report.show(as_json=options.json)


if __name__ == "__main__":
    main()
