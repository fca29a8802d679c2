"""Whether a damaged frame is ever taken for a whole one: millions of them, damaged in every way that a line can.

Each is one of the frames of a real stream with bits flipped, bytes overwritten, cut off, taken out, put in, moved, or
with the tail of another frame. A frame that comes out of the decoder and was not sent is a failure, and so is one of
unknown type or of another protocol.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
from common import meter_stream, show

from fsjoule.errors import MeterError
from fsjoule.meter.protocol.frames import Frame, FrameDecoder, packed

_BATCH = 20_000
_STREAM_S = 60
_STREAM = bytes(4)  # its number, in frames that are not the meter's own


@dataclass(frozen=True)
class Outcome:
    """What became of some damaged frames: `accepted` ones that were not sent, in hexadecimal."""

    frames: int
    accepted: tuple[str, ...]


def main() -> None:
    """Damage, decode, count, and print; exits with 1 if a damaged frame was accepted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=10_000_000, help="how many damaged frames (10000000)")
    parser.add_argument("--seed", type=int, default=1, help="of the damage (1)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many at once (all cores)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    begin = time.monotonic()
    whole = _whole_frames()
    batches = -(-arguments.frames // _BATCH)
    seeds = np.random.SeedSequence(arguments.seed).spawn(batches)
    with ProcessPoolExecutor(arguments.processes) as pool:
        outcomes = list(pool.map(_batch, [whole] * batches, seeds, chunksize=8))
    accepted = [text for outcome in outcomes for text in outcome.accepted]
    result = {
        "damaged_frames": sum(outcome.frames for outcome in outcomes),
        "accepted": len(accepted),
        "whole_frames_that_were_damaged": len(whole),
        "took_s": time.monotonic() - begin,
    }
    show("Damaged frames", result | ({"accepted_frames": accepted} if accepted else {}), as_json=arguments.json)
    sys.exit(1 if accepted else 0)


def _whole_frames() -> tuple[bytes, ...]:
    """Frames as they go over the line, without delimiter: a minute of a stream, marks of all lengths, and replies."""
    with meter_stream(_STREAM_S) as stream:
        data = stream.read()
    marks = [
        packed(
            2,
            100_000 + size,
            _STREAM + (size * 12_345_678).to_bytes(8, "little") + bytes([size % 4, 0, size]) + b"S" * size,
        )
        for size in range(17)
    ]
    replies = [
        packed(4, 200_000 + n, _STREAM + n.to_bytes(4, "little") + bytes([0x16, 0]) + bytes(12)) for n in range(16)
    ]
    pieces = (data + b"".join(marks + replies)).split(b"\0")
    return tuple(piece for piece in pieces if piece)


def _batch(whole: tuple[bytes, ...], seed: np.random.SeedSequence) -> Outcome:
    """One batch of damaged frames."""
    random = np.random.default_rng(seed)
    sent = set(whole)
    chosen = random.integers(len(whole), size=(_BATCH, 2)).tolist()
    kinds = random.integers(len(_DAMAGES), size=_BATCH).tolist()
    numbers = random.random((_BATCH, 4)).tolist()
    noise = random.bytes(_BATCH + 64)
    damaged: list[bytes] = []
    for i, ((one, other), kind, (a, b, c, d)) in enumerate(zip(chosen, kinds, numbers, strict=True)):
        piece = _DAMAGES[kind](whole[one], whole[other], (a, b, c, d), noise[i : i + 64])
        if not piece or piece in sent:  # the damage took all of it, or has changed nothing
            piece = bytes([whole[one][0] ^ 1]) + whole[one][1:]
        damaged.append(piece)
    return Outcome(len(damaged), tuple(_accepted(damaged, whole)))


def _accepted(damaged: list[bytes], whole: tuple[bytes, ...]) -> list[str]:
    decoder = FrameDecoder()
    try:
        frames = decoder.feed(b"\0" + b"\0".join(damaged) + b"\0")
    except MeterError as error:
        return [str(error)]
    if not frames and not decoder.counters.unknown:
        return []
    # Damage may have put a delimiter at the end of a frame, which then is whole.
    known: set[Frame] = {frame for piece in whole for frame in FrameDecoder().feed(b"\0" + piece + b"\0")}
    found = [repr(frame) for frame in frames if frame not in known]
    return found + ["a frame of unknown type"] * decoder.counters.unknown


Numbers = tuple[float, float, float, float]


def _flipped(one: bytes, other: bytes, numbers: Numbers, noise: bytes) -> bytes:
    """One to eight bits flipped, anywhere."""
    del other
    content = bytearray(one)
    for k in range(1 + int(numbers[0] * 8)):
        at = int.from_bytes(noise[4 * k : 4 * k + 4], "little")
        content[at % len(one)] ^= 1 << (at >> 29)
    return bytes(content)


def _overwritten(one: bytes, other: bytes, numbers: Numbers, noise: bytes) -> bytes:
    """A burst of up to 32 bytes."""
    del other
    at, size = int(numbers[0] * len(one)), 1 + int(numbers[1] * 32)
    return one[:at] + noise[: min(size, len(one) - at)] + one[at + size :]


def _cut(one: bytes, other: bytes, numbers: Numbers, noise: bytes) -> bytes:
    """The beginning or the end of a frame is missing."""
    del other, noise
    at = 1 + int(numbers[0] * (len(one) - 1))
    return one[:at] if numbers[1] < 0.5 else one[at:]


def _shortened(one: bytes, other: bytes, numbers: Numbers, noise: bytes) -> bytes:
    """Up to eight bytes are missing somewhere."""
    del other, noise
    at, size = int(numbers[0] * len(one)), 1 + int(numbers[1] * 8)
    return one[:at] + one[at + size :]


def _lengthened(one: bytes, other: bytes, numbers: Numbers, noise: bytes) -> bytes:
    """Up to eight bytes too many somewhere."""
    del other
    at, size = int(numbers[0] * (len(one) + 1)), 1 + int(numbers[1] * 8)
    return one[:at] + noise[:size] + one[at:]


def _moved(one: bytes, other: bytes, numbers: Numbers, noise: bytes) -> bytes:
    """Two stretches have changed places."""
    del other, noise
    low, middle, high = sorted(int(number * (len(one) + 1)) for number in numbers[:3])
    return one[:low] + one[middle:high] + one[low:middle] + one[high:]


def _spliced(one: bytes, other: bytes, numbers: Numbers, noise: bytes) -> bytes:
    """What lies between the middle of one frame and the middle of another one is missing."""
    del noise
    return one[: int(numbers[0] * (len(one) + 1))] + other[int(numbers[1] * (len(other) + 1)) :]


_DAMAGES = (_flipped, _overwritten, _cut, _shortened, _lengthened, _moved, _spliced)


if __name__ == "__main__":
    main()
