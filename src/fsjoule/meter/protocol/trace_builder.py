"""The meter's frames become a trace. Pure. Its memory grows by seven or nine bytes per sample until it is taken."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from fsjoule.errors import MeterError
from fsjoule.meter.protocol.frames import (
    FLAG_BUS_RESET,
    FLAG_CLIPPED,
    FLAG_EVENTS_LOST,
    FLAG_I2C_FAULT,
    FLAG_MARK_ERROR,
    FLAG_OVERFLOW,
    Frame,
    InfoFrame,
    MarkFrame,
    ReplyFrame,
    SamplesFrame,
    raw_values,
)
from fsjoule.meter.protocol.sequence import is_later
from fsjoule.model import CurrentMonitor, Ina219Info, Ina219Trace, Mark
from fsjoule.model.labels import counted
from fsjoule.model.mark_line import damaged_marks
from fsjoule.model.trace import EVENTS_LOST, MARK_LINE_ERRORS

_U32_MODULUS: Final = 1 << 32
_FAULTS: Final[dict[int, str]] = {
    FLAG_OVERFLOW: "the chip's arithmetic overflowed",
    FLAG_CLIPPED: "the shunt or the bus voltage reached the end of the meter's range",
    FLAG_I2C_FAULT: "the chip did not answer",
    FLAG_BUS_RESET: "the meter recovered its I2C bus",
    FLAG_EVENTS_LOST: EVENTS_LOST,
    FLAG_MARK_ERROR: MARK_LINE_ERRORS,
}
ANOTHER_STREAM: Final = (
    "the meter began another stream (a new start, or new settings); everything after that is left out"
)
# Whether a chip's samples are wide. Those of an unknown chip are of the type that comes first.
_IS_WIDE: Final = {CurrentMonitor.INA219: False, CurrentMonitor.INA228: True}


class _Head(IntEnum):
    """Columns of the kept heads of samples frames."""

    TICK = 0
    TIME = 1
    ENERGY = 2
    BUS = 3
    MISSED = 4
    FLAGS = 5
    COUNT = 6


class TraceBuilder:
    """Collects the frames of one stream. Frames may come late, but not twice: the decoder drops duplicates.

    `info` is an info frame that arrived before; without it, the frames must contain one, which may come later than the
    samples.
    """

    def __init__(self, info: InfoFrame | None = None) -> None:
        self._info = info
        # The stream that is collected, once its frames name it.
        self._stream_id: int | None = None
        self._newest: SamplesFrame | None = None
        self._ended = False
        self._identified = False
        self._heads = array("q")
        self._samples = bytearray()
        # Whether the stream's samples are wide, once there are some or the chip is known.
        self._wide: bool | None = None
        self._of_another_type = 0
        self._marks: list[Mark] = []
        self._damaged_marks: list[str] = []
        # End and flags of the samples that were already taken.
        self._taken_end: tuple[int, int] | None = None
        self._taken_frames = 0
        self._taken_flags = dict.fromkeys(_FAULTS, 0)

    @property
    def ended(self) -> bool:
        """Whether the meter has begun another stream. None of that stream is collected."""
        return self._ended

    @property
    def identified(self) -> bool:
        """Whether an info frame among the frames belongs to the collected stream."""
        return self._identified

    def add(self, frames: Iterable[Frame]) -> None:
        """Take frames, in the order of arrival. Frames of another stream are left out."""
        for frame in frames:
            if not isinstance(frame, ReplyFrame):
                self._add(frame)

    def _add(self, frame: SamplesFrame | MarkFrame | InfoFrame) -> None:
        stream_id = frame.status.stream_id if isinstance(frame, InfoFrame) else frame.stream_id
        if stream_id != self._stream_id and not self._turn_to(stream_id):
            return
        if isinstance(frame, InfoFrame):
            if self._identified and self._info is not None and frame.info != self._info.info:
                self._ended = True  # of all numbers another meter has chosen the same
                return
            self._info = frame
            self._identified = True
        elif isinstance(frame, MarkFrame):
            if frame.damaged:
                self._damaged_marks.append(frame.text)
            else:
                self._marks.append(Mark(frame.time_us, frame.text, frame.source, frame.checked))
        elif self._newest is None or frame.first_tick >= self._newest.first_tick + self._newest.count:
            self._newest = frame
            self._keep_samples(frame)
        elif self._has_room(frame):
            self._keep_samples(frame)

    def _turn_to(self, stream_id: int) -> bool:
        """Collect another stream, unless one is collected already, or what remains of an earlier one still comes."""
        known = self._stream_id if self._info is None else self._info.status.stream_id
        if known is not None and is_later(known, stream_id):
            return False
        if self._heads or self._taken_end is not None:
            self._ended = True
            return False
        self._stream_id = stream_id
        self._identified = False
        if self._info is not None and self._info.status.stream_id != stream_id:
            self._info = None
        self._marks.clear()
        return True

    def _keep_samples(self, frame: SamplesFrame) -> None:
        self._settle_type()
        if self._wide is None:
            self._wide = frame.wide
        elif frame.wide != self._wide:
            self._of_another_type += 1  # no meter sends this
            return
        # In the order of _Head.
        self._heads.extend(
            (
                frame.first_tick,
                frame.first_time_us,
                frame.energy_raw,
                frame.bus_total,
                frame.missed_total,
                frame.flags,
                frame.count,
            )
        )
        self._samples += frame.samples

    def _settle_type(self) -> None:
        """A stream has samples of its chip's type. Those that came before its info frame may be of the other."""
        wide = None if self._info is None else _IS_WIDE.get(self._info.info.chip)
        if wide is None or wide == self._wide:
            return
        self._of_another_type += len(self._heads) // len(_Head)
        self._heads = array("q")
        self._samples.clear()
        self._wide = wide

    def _has_room(self, frame: SamplesFrame) -> bool:
        """Whether a late frame has ticks that no other frame has, and that were not taken yet."""
        if self._taken_end is not None and frame.first_tick < self._taken_end[0]:
            return False
        heads = self._sorted_heads()
        ticks, ends = heads[:, _Head.TICK], heads[:, _Head.TICK] + heads[:, _Head.COUNT]
        after = int(np.searchsorted(ticks, frame.first_tick, side="right"))
        begins_free = after == 0 or frame.first_tick >= ends[after - 1]
        return begins_free and (after == len(ticks) or frame.first_tick + frame.count <= ticks[after])

    def build(self) -> Ina219Trace:
        """The trace of everything added and not taken yet, by ticks. Raises MeterError without an info frame."""
        if self._info is None:
            raise MeterError(
                "the meter sent no info frame, so its samples have no unit",
                hint="a meter sends one every second: record for longer, or check the line for damage",
            )
        self._settle_type()
        return self._built(self._info.info)

    def take(self) -> Ina219Trace:
        """Like `build`, and forget the result: a long recording is taken piece by piece.

        Missed and lost ticks of a piece include the gap after the piece before. Its faults count from the beginning.
        """
        piece = self.build()
        heads = self._sorted_heads()
        if len(heads):
            self._taken_end = _end(heads), int(heads[-1, _Head.MISSED])
            self._taken_frames += len(heads)
            for flag in _FAULTS:
                self._taken_flags[flag] += int(np.count_nonzero(heads[:, _Head.FLAGS] & flag))
        self._heads = array("q")
        self._samples.clear()
        self._marks.clear()
        return piece

    def _built(self, info: Ina219Info) -> Ina219Trace:
        heads = np.array(self._heads, dtype=np.int64).reshape(-1, len(_Head))
        shunt, bus = raw_values(bytes(self._samples), wide=bool(self._wide))
        counts = heads[:, _Head.COUNT]
        index = np.arange(len(shunt)) - np.repeat(np.cumsum(counts) - counts, counts)
        ticks = np.repeat(heads[:, _Head.TICK], counts) + index
        times_us = np.repeat(heads[:, _Head.TIME], counts) + index * 1_000_000 // info.rate_hz
        order = np.argsort(ticks, kind="stable")
        heads = self._sorted_heads()
        missed, lost = _missed_and_lost(heads, self._taken_end)
        return Ina219Trace(
            info=info,
            ticks=ticks[order],
            times_us=times_us[order],
            shunt_raw=shunt[order],
            bus_raw=bus[order],
            checkpoint_ticks=heads[:, _Head.TICK].copy(),
            checkpoint_raw=heads[:, _Head.ENERGY].copy(),
            checkpoint_bus=heads[:, _Head.BUS].copy(),
            checkpoint_missed=_unwrapped(heads[:, _Head.MISSED]),
            marks=tuple(sorted(self._marks, key=lambda mark: mark.time_us)),
            missed=missed,
            lost=lost,
            faults=self._faults(heads[:, _Head.FLAGS]),
        )

    def _sorted_heads(self) -> npt.NDArray[np.int64]:
        heads = np.array(self._heads, dtype=np.int64).reshape(-1, len(_Head))
        return heads[np.argsort(heads[:, _Head.TICK], kind="stable")]

    def _faults(self, flags: npt.NDArray[np.int64]) -> tuple[str, ...]:
        total = counted(self._taken_frames + len(flags), "frame")
        counts = {flag: self._taken_flags[flag] + int(np.count_nonzero(flags & flag)) for flag in _FAULTS}
        found = [f"{text} (in {counts[flag]} of {total})" for flag, text in _FAULTS.items() if counts[flag]]
        if self._of_another_type:
            left_out = counted(self._of_another_type, "frame")
            found.append(f"samples that its chip does not make were left out ({left_out}): update the meter's firmware")
        if self._damaged_marks:
            found.append(damaged_marks(self._damaged_marks))
        return (*found, ANOTHER_STREAM) if self._ended else tuple(found)


def _end(heads: npt.NDArray[np.int64]) -> int:
    return int((heads[:, _Head.TICK] + heads[:, _Head.COUNT]).max())


def _unwrapped(counter: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A counter modulo 2^32 as a continuous one, from its first value."""
    if not len(counter):
        return counter.copy()
    return counter[0] + np.concatenate([[0], np.cumsum(np.diff(counter) % _U32_MODULUS)])


def _missed_and_lost(heads: npt.NDArray[np.int64], before: tuple[int, int] | None) -> tuple[int, int]:
    """(missed, lost): ticks that were never sampled, and ticks whose frames did not arrive.

    They count from the first frame, or from `before`: the end of the samples before it, and their missed ticks.
    """
    if not len(heads):
        return 0, 0
    begin, missed_before = before or (int(heads[0, _Head.TICK]), int(heads[0, _Head.MISSED]))
    missed = (int(heads[-1, _Head.MISSED]) - missed_before) % _U32_MODULUS
    span = _end(heads) - begin
    return missed, max(0, span - int(heads[:, _Head.COUNT].sum()) - missed)
