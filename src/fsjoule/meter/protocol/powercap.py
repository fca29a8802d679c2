"""Readings of a counter of the kernel's powercap class (RAPL of Intel and AMD) become a trace. Pure."""

from __future__ import annotations

import re
from typing import Final

from fsjoule.errors import MeterError
from fsjoule.meter.protocol.polled import PolledTrace
from fsjoule.model import Mark, MarkSource, PlainInfo, PlainTrace

POWERCAP: Final = "powercap"
UPDATE_US: Final = "update_us"
RANGE_UJ: Final = "range_uj"
# What a board has written of its own counter: nanoseconds since its boot, microjoules, and perhaps a mark.
_COUNTED: Final = re.compile(r"(\d+) (\d+) ?(\w*)")


class CounterTrace(PolledTrace):
    """Readings of one counter of microjoules, which counts from 0 again behind its range."""

    def __init__(self, info: PlainInfo, *, gaps: bool = True) -> None:
        super().__init__(info, gaps=gaps)
        self._last_uj: int | None = None
        self.wraps = 0

    def add(self, time_us: int, energy_uj: int) -> None:
        """Take a reading. Times ascend. One wrap-around between two readings is counted; more cannot be seen."""
        more_uj = 0 if self._last_uj is None else energy_uj - self._last_uj
        if more_uj < 0:
            self.wraps += 1
            more_uj += int(self._info.settings[RANGE_UJ])
        self._last_uj = energy_uj
        self.read(time_us, self.total_nj + more_uj * 1e3)


def counted(text: str, info: PlainInfo) -> PlainTrace:
    """The trace of the lines `NANOSECONDS MICROJOULES [MARK]` that a board has written of its own counter.

    Between two lines the energy lies on a straight line: it is exact at each of them, and so at each mark. Two programs
    write the lines: where they read at once, lines and counts may cross.
    Raises MeterError for a damaged line, and for a counter that stands still.
    """
    readings: list[tuple[int, int, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        found = _COUNTED.fullmatch(line)
        if found is None:
            raise MeterError(f"line {number} of what the board has read of its counter is damaged: {line[:60]!r}")
        readings.append((int(found[1]) // 1000, int(found[2]), found[3]))
    readings.sort()
    if len({energy_uj for _, energy_uj, _ in readings}) < 2:  # noqa: PLR2004 - one value
        raise MeterError("the board's energy counter stands still", hint="a virtual machine's counters may do so")
    trace, last_uj = CounterTrace(info, gaps=False), readings[0][1]
    for time_us, energy_uj, mark in readings:
        crossed = 0 < last_uj - energy_uj < info.settings[RANGE_UJ] / 2
        last_uj = last_uj if crossed else energy_uj
        trace.add(time_us, last_uj)
        if mark:
            trace.mark(Mark(time_us, mark, MarkSource.LINE))
    return trace.take()
