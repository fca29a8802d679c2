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
    OLD_PROTOCOL,
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
# Limits for the distance of time and ticks in one stream: both are rounded, and drift by up to one in a thousand.
_TICKS_APART: Final = 2
_DRIFT: Final = 1e-3
# No line delays a mark for longer.
_LATEST_US: Final = 1_000_000


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

    `info` is an info frame that arrived before; without it, the frames must contain one. It may come later than the
    samples, except in protocol 2, whose samples do not name their stream: there ticks and times tell what belongs
    together.
    """

    def __init__(self, info: InfoFrame | None = None) -> None:
        self._info = info
        # The stream that is collected, once its frames name it.
        self._stream_id: int | None = None
        # An info frame of another stream. The next samples show whether it was late or ours is over.
        self._next_info: InfoFrame | None = None
        self._next_marks: list[Mark] = []
        self._newest: SamplesFrame | None = None
        self._newest_seq = 0
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
            if isinstance(frame, ReplyFrame):
                continue
            stream_id = _named_stream(frame)
            if stream_id is not None:
                self._add_named(frame, stream_id)
            elif self._ended:
                return
            elif isinstance(frame, SamplesFrame):
                self._add_samples(frame)
            elif isinstance(frame, MarkFrame):
                self._add_mark(frame)
            else:
                self._add_info(frame)

    def _add_named(self, frame: SamplesFrame | MarkFrame | InfoFrame, stream_id: int) -> None:
        """Take a frame that names its stream."""
        if stream_id != self._stream_id and not self._turn_to(stream_id):
            return
        if isinstance(frame, InfoFrame):
            if self._identified and self._info is not None and frame.info != self._info.info:
                self._ended = True  # of all numbers another meter has chosen the same
                return
            self._info = frame
            self._identified = True
        elif isinstance(frame, MarkFrame):
            self._keep_mark(frame, self._marks)
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

    def _keep_mark(self, frame: MarkFrame, marks: list[Mark]) -> None:
        if frame.damaged:
            self._damaged_marks.append(frame.text)
        else:
            marks.append(Mark(frame.time_us, frame.text, frame.source, frame.checked))

    def _add_mark(self, frame: MarkFrame) -> None:
        if self._newest is not None and self._is_late(frame.seq):
            late_us = self._newest.first_time_us - frame.time_us
            if late_us > _LATEST_US:  # not late: the clock was reset
                return
        marks = self._marks if self._next_info is None else self._next_marks
        self._keep_mark(frame, marks)

    def _is_late(self, seq: int) -> bool:
        return self._newest is not None and (seq - self._newest_seq) % _U32_MODULUS >= _U32_MODULUS // 2

    def _add_info(self, frame: InfoFrame) -> None:
        if self._info is not None and _of_one_stream(frame, self._info):
            self._identified = True
            return
        self._next_info = frame
        self._newest_seq = frame.seq
        if self._newest is None and self._taken_end is None:
            self._adopt(frame)

    def _add_samples(self, frame: SamplesFrame) -> None:
        if self._is_late(frame.seq):
            # A meter that restarted counts from 0 again, and sends its info within a second.
            if not self._fills_a_gap(frame):
                return
        else:
            if self._newest is not None and not self._continues(self._newest, frame):
                self._ended = True
                self._next_info = None
                return
            if self._next_info is not None:
                self._adopt(self._next_info)
            self._newest, self._newest_seq = frame, frame.seq
        self._keep_samples(frame)

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
        info = self._info or self._next_info
        wide = None if info is None else _IS_WIDE.get(info.info.chip)
        if wide is None or wide == self._wide:
            return
        self._of_another_type += len(self._heads) // len(_Head)
        self._heads = array("q")
        self._samples.clear()
        self._wide = wide

    def _adopt(self, info: InfoFrame) -> None:
        """Samples around an info frame belong together: the info frame that began their stream was lost."""
        self._info, self._next_info, self._identified = info, None, True
        self._marks += self._next_marks
        self._next_marks.clear()

    def _fills_a_gap(self, frame: SamplesFrame) -> bool:
        """Whether a late frame of protocol 2 belongs between two frames of the collected stream."""
        ticks = self._sorted_heads()[:, _Head.TICK]
        if not len(ticks) or frame.first_tick < ticks[0] or not self._has_room(frame):
            return False
        return frame.first_tick <= ticks[-1] or self._newest is None or self._continues(self._newest, frame)

    def _has_room(self, frame: SamplesFrame) -> bool:
        """Whether a late frame has ticks that no other frame has, and that were not taken yet."""
        if self._taken_end is not None and frame.first_tick < self._taken_end[0]:
            return False
        heads = self._sorted_heads()
        ticks, ends = heads[:, _Head.TICK], heads[:, _Head.TICK] + heads[:, _Head.COUNT]
        after = int(np.searchsorted(ticks, frame.first_tick, side="right"))
        begins_free = after == 0 or frame.first_tick >= ends[after - 1]
        return begins_free and (after == len(ticks) or frame.first_tick + frame.count <= ticks[after])

    def _continues(self, before: SamplesFrame, frame: SamplesFrame) -> bool:
        """Whether two frames are of one stream: each stream restarts its ticks, which then follow the clock."""
        ticks = frame.first_tick - before.first_tick
        if ticks < before.count:
            return False
        info = self._next_info or self._info
        if info is None:
            return True
        tick_us = info.info.tick_us
        apart_us = abs(frame.first_time_us - before.first_time_us - ticks * tick_us)
        return apart_us <= _TICKS_APART * tick_us + _DRIFT * ticks * tick_us

    def build(self) -> Ina219Trace:
        """The trace of everything added and not taken yet, by ticks. Raises MeterError without an info frame."""
        info = self._info or self._next_info
        if info is None:
            raise MeterError(
                "the meter sent no info frame, so its samples have no unit",
                hint="a meter sends one every second: record for longer, or check the line for damage",
            )
        self._settle_type()
        return self._built(info.info)

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
        shunt, bus = raw_values(bytes(self._samples), wide=bool(self._wide), flags=self._stream_id is not None)
        counts = heads[:, _Head.COUNT]
        index = np.arange(len(shunt)) - np.repeat(np.cumsum(counts) - counts, counts)
        ticks = np.repeat(heads[:, _Head.TICK], counts) + index
        times_us = np.repeat(heads[:, _Head.TIME], counts) + index * 1_000_000 // info.rate_hz
        order = np.argsort(ticks, kind="stable")
        heads = self._sorted_heads()
        missed, lost = _missed_and_lost(heads, self._taken_end)
        marks = self._marks if self._info is not None else self._marks + self._next_marks
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
            marks=tuple(sorted(marks, key=lambda mark: mark.time_us)),
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
        over = self._ended or (self._next_info is not None and self._info is not None)
        return (*found, ANOTHER_STREAM) if over else tuple(found)


def _named_stream(frame: SamplesFrame | MarkFrame | InfoFrame) -> int | None:
    """The stream that a frame names; None in protocol 2, where info frames alone do not help."""
    if isinstance(frame, InfoFrame):
        return None if frame.info.protocol == OLD_PROTOCOL else frame.status.stream_id
    return frame.stream_id


def _of_one_stream(one: InfoFrame, other: InfoFrame) -> bool:
    """Two meters choose their stream numbers independently, so the rest of their info must agree, too."""
    return one.status.stream_id == other.status.stream_id and one.info == other.info


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
