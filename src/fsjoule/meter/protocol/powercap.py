"""Readings of a counter of the kernel's powercap class (RAPL of Intel and AMD) become a trace. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from fsjoule.errors import MeterError
from fsjoule.meter.protocol.polled import PolledTrace
from fsjoule.model import Mark, MarkSource, PlainInfo, PlainTrace
from fsjoule.model.trace import BY_THE_CLOCK

POWERCAP: Final = "powercap"
UPDATE_US: Final = "update_us"
RANGE_UJ: Final = "range_uj"
# More than one processor draws, beside a little for a late reading. Readings in time see each turn of any counter.
_MOST_W: Final = 1000.0
_SPARE_UJ: Final = 10e6
_APART_S: Final = 1.5
_FAULTS: Final = 3
# What a board has written of its own counter: nanoseconds since its boot, microjoules, and perhaps a mark.
_COUNTED: Final = re.compile(r"(\d+) (\d+) ?(\w*)")


class CounterTrace(PolledTrace):
    """Readings of counters of microjoules, each of which counts from 0 again behind its range; their sum is the energy.

    One wrap-around between two readings is counted. A second one, and a counter that was set back (by a suspend), are
    not seen: readings that are too far apart, and more power than a processor draws, are faults.
    """

    def __init__(self, info: PlainInfo, ranges_uj: Sequence[float] = (), *, gaps: bool = True) -> None:
        super().__init__(info, gaps=gaps)
        self._ranges_uj = ranges_uj or (info.settings[RANGE_UJ],)
        self._last_uj: tuple[int, ...] = ()
        self.wraps = 0

    def add(self, time_us: int, *energies_uj: int) -> None:
        """Take a reading of each counter. Times ascend."""
        apart_s = (time_us - self.end_us) * 1e-6 if self._last_uj else 0.0
        sum_uj = 0
        for now_uj, last_uj, range_uj in zip(energies_uj, self._last_uj, self._ranges_uj, strict=False):
            more_uj = now_uj - last_uj
            if more_uj < 0:
                self.wraps += 1
                more_uj += int(range_uj)
            most_uj = _MOST_W * apart_s * 1e6
            if not 0 <= more_uj <= most_uj + _SPARE_UJ or (apart_s > _APART_S and most_uj > range_uj):
                moved = f"moved by {more_uj * 1e-6:.0f} J within {apart_s:.3g} s {BY_THE_CLOCK}"
                fault = f"a counter of {range_uj * 1e-6:.0f} J {moved}: it was set back, or went round unseen"
                self.faults = (*self.faults[-_FAULTS:], fault)
            sum_uj += more_uj
        self._last_uj = energies_uj
        self.read(time_us, self.total_nj + sum_uj * 1e3)


def is_package(name: str) -> bool:
    """Whether a zone's name is that of a whole processor."""
    return name.startswith("package-")


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
        crossed = 0 < last_uj - energy_uj < min(_SPARE_UJ, info.settings[RANGE_UJ] / 2)
        last_uj = last_uj if crossed else energy_uj
        trace.add(time_us, last_uj)
        if mark:
            trace.mark(Mark(time_us, mark, MarkSource.LINE))
    return trace.take()
