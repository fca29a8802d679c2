"""Sequence numbers of the meter's frames: which frames are lost, late, duplicates, or of a meter that restarted. Pure.

Each frame names its stream, and so its power-up.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import astuple, dataclass, field
from typing import Final

from fsjoule.model.labels import counted

_U32_MODULUS: Final = 1 << 32
# Remembered frames, lost ones and others, to tell late frames, duplicates and a new start apart.
_REMEMBERED: Final = 4096
# A power-up numbers its streams one after the other, from a random number. So near are the streams of one power-up.
NEAR_STREAMS: Final = 1024
# After a restart as many frames at most are taken for lost; a meter with a higher number was not heard from its start.
_LOST_AT_START: Final = 256
# Power-ups that are remembered.
_POWER_UPS: Final = 3


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

    def since(self, before: StreamCounters) -> StreamCounters:
        """What was counted after `before`, which must be a copy."""
        return StreamCounters(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    @property
    def losses(self) -> str:
        """The frames that did not arrive whole, in words; empty if all did."""
        if not (self.lost or self.damaged):
            return ""
        twice = f", {self.duplicates} came twice" if self.duplicates else ""
        return f"{counted(self.lost, 'frame')} of the meter lost, {self.damaged} damaged{twice}: marks may be missing"


@dataclass(slots=True)
class _SequenceNumbers:
    """Numbers of one power-up, modulo 2^32. `seen` has the digests of frames that arrived."""

    counters: StreamCounters
    expected: int
    lost: OrderedDict[int, None] = field(default_factory=OrderedDict[int, None])
    seen: OrderedDict[int, int] = field(default_factory=OrderedDict[int, int])

    def is_ahead(self, seq: int) -> bool:
        return (seq - self.expected) % _U32_MODULUS < _U32_MODULUS // 2

    def advance(self, seq: int, digest: int) -> None:
        """Take a frame that is ahead; those before it may be lost."""
        ahead = (seq - self.expected) % _U32_MODULUS
        self.counters.lost += ahead
        for offset in range(max(0, ahead - _REMEMBERED), ahead):
            self.lost[(self.expected + offset) % _U32_MODULUS] = None
        while len(self.lost) > _REMEMBERED:
            self.lost.popitem(last=False)
        self.expected = (seq + 1) % _U32_MODULUS
        self._remember(seq, digest)

    def find(self, seq: int, digest: int) -> bool:
        """Take a frame that was given up as lost. False if it was not."""
        if seq not in self.lost:
            return False
        del self.lost[seq]
        self.counters.lost -= 1
        self.take_late(seq, digest)
        return True

    def take_late(self, seq: int, digest: int) -> None:
        self.counters.reordered += 1
        self._remember(seq, digest)

    def _remember(self, seq: int, digest: int) -> None:
        self.seen[seq] = digest
        while len(self.seen) > _REMEMBERED:
            self.seen.popitem(last=False)


@dataclass(slots=True)
class _PowerUp:
    numbers: _SequenceNumbers
    newest_stream: int


@dataclass(slots=True)
class Sequence:
    """Frames that name their stream. The power-ups that were heard last are remembered: their frames may come late."""

    counters: StreamCounters
    _power_ups: list[_PowerUp] = field(default_factory=list[_PowerUp])  # the one that was heard last first

    def accepts(self, seq: int, digest: int, stream_id: int) -> bool:
        """Whether the frame is new. `digest` belongs to its content."""
        power_up = self._power_up(seq, digest, stream_id)
        numbers = power_up.numbers
        if numbers.is_ahead(seq):
            numbers.advance(seq, digest)
        elif not numbers.find(seq, digest):
            if seq in numbers.seen:
                self.counters.duplicates += 1
                return False
            # From before the first one that was heard, or from before what is remembered.
            numbers.take_late(seq, digest)
        if stream_id != power_up.newest_stream and is_later(stream_id, power_up.newest_stream):
            self.counters.streams += 1
            power_up.newest_stream = stream_id
        return True

    def _power_up(self, seq: int, digest: int, stream_id: int) -> _PowerUp:
        for at, known in enumerate(self._power_ups):
            if is_near(stream_id, known.newest_stream):
                # Another frame with its number: the random number of a new power-up is near that of the one before.
                if known.numbers.seen.get(seq, digest) != digest:
                    break
                if at:
                    self._power_ups.insert(0, self._power_ups.pop(at))
                return known
        first = 0 if self._power_ups and seq < _LOST_AT_START else seq
        self.counters.streams += bool(self._power_ups)
        power_up = _PowerUp(_SequenceNumbers(self.counters, first), stream_id)
        self._power_ups = [power_up, *self._power_ups[: _POWER_UPS - 1]]
        return power_up


def is_near(stream_id: int, other: int) -> bool:
    """Whether two streams are of one power-up."""
    return (stream_id - other + NEAR_STREAMS) % _U32_MODULUS <= 2 * NEAR_STREAMS


def is_later(stream_id: int, other: int) -> bool:
    """Whether a stream came after another one of the same power-up, if it is of the same power-up at all."""
    return 0 < (stream_id - other) % _U32_MODULUS <= NEAR_STREAMS
