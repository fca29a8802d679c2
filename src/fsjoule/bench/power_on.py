"""A boot from power-on, cut into segments by lines of its console and by marks. Pure.

The meter must have recorded before the power came. An edge is a moment of the meter's clock, with a limit of how late
it may be: a mark is as late as the meter's marks are, and a line of the console also by what serial adapters and this
computer add, as far as that was seen. No line of a board in guest time is late.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from fsjoule.errors import MeasurementInvalid
from fsjoule.meter import energy
from fsjoule.meter.energy.instrument import HOST_LINE_S
from fsjoule.model import Trace, Window
from fsjoule.model.mark_line import read_line
from fsjoule.model.power_on import ConsoleLine, PowerOn
from fsjoule.model.workload import SegmentRule

# Where the power has come: a fifth of the way to the board's mean power.
_RISEN: Final = 0.2
# Of the board's mean power, what the meter may read without it.
_MOST_OFF: Final = 0.5
_LEAST_OFF: Final = 3  # samples
_FAR: Final = 2.0  # standard uncertainties
# The meter's times are whole microseconds, and so are those of its samples.
_APART_US: Final = 1e3


@dataclass(frozen=True, slots=True)
class Edge:
    """Where a segment begins, in the meter's clock, up to `late_s` too late."""

    name: str
    at_us: float
    late_s: float


@dataclass(frozen=True, slots=True)
class Segments:
    """The edges of a boot in their order, the last one its end. `short` are those whose next edge is as early."""

    edges: tuple[Edge, ...]
    rules: tuple[SegmentRule, ...]
    short: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        return any(edge.name == name for edge in self.edges)

    def window(self, name: str = "") -> tuple[Window, tuple[float, float]]:
        """The window of a segment that the boot has, or of the whole boot, and how late its two ends may be."""
        first, last = self.edges[0], self.edges[-1]
        if name:
            first, last = next(pair for pair in pairwise(self.edges) if pair[0].name == name)
        return Window(first.at_us, last.at_us), (first.late_s, last.late_s)

    def remark(self, name: str) -> str:
        """A word on a segment that the boot lacks, or on those that a segment has in it for that reason; else ""."""
        rules = {rule.name: rule for rule in self.rules}
        if name in self.short:
            return "left out: it is shorter than the times of its two ends are sure"
        if not self.has(name):
            return f"left out: {_sought(rules[name])}"
        names = list(rules)
        within: list[str] = []
        for other in names[names.index(name) + 1 :]:
            if self.has(other):
                break
            within += [other] if other not in self.short else []
        return f"{name} has {' and '.join(within)} in it, which the console does not show" if within else ""


def cut(
    rules: Sequence[SegmentRule], told: PowerOn, trace: Trace, heard_as: Mapping[str, str] | None = None
) -> Segments:
    """The segments of a boot. `heard_as` has the texts in the trace of marks that have other ones there.

    Raises MeasurementInvalid if the trace does not begin before the power, a rule finds nothing that is not optional,
    or the rules are not in the order in which they are met.
    """
    names = heard_as or {}
    own_s = energy.instrument_of(trace.info).mark_s
    board_us = _board_us(told, trace)

    def found(rule: SegmentRule, last: Edge | None = None) -> Edge | None:
        """Where a rule is met, if by a line then before the end `last`: what a shell says later is not the boot's."""
        mark = next((mark for mark in trace.marks if rule.mark and mark.text == names.get(rule.mark, rule.mark)), None)
        if mark is not None:
            return Edge(rule.name, float(mark.time_us), own_s)
        line = next((line for line in told.lines if rule.line and re.search(rule.line, line.text)), None)
        if line is None:
            return None
        at_us, late_s = _line_us(line, trace, board_us)
        edge = Edge(rule.name, at_us, own_s + late_s)
        return edge if last is None or edge.at_us <= last.at_us + (edge.late_s + last.late_s) * 1e6 else None

    end = found(rules[-1])
    met = {rule.name: found(rule, end) for rule in rules[1:-1]} | {rules[-1].name: end}
    edges = [_power_edge(rules[0].name, told, trace, board_us), *filter(None, met.values())]
    missing = [f"{rule.name}: {_sought(rule)}" for rule in rules[1:] if met[rule.name] is None and not rule.optional]
    if missing:
        said = f"the console said {len(told.lines)} lines"
        raise MeasurementInvalid("power-on", [f"a rule finds nothing: {'; '.join(missing)} ({said})"])
    return _ordered(edges, rules)


def _ordered(edges: Sequence[Edge], rules: Sequence[SegmentRule]) -> Segments:
    """The segments, without those that are too short to be seen. Raises MeasurementInvalid if one begins too early."""
    found, short = [edges[0]], list[str]()
    for edge in edges[1:]:
        last = found[-1]
        if edge.at_us > last.at_us:
            found.append(edge)
        elif last.at_us - edge.at_us <= (last.late_s + edge.late_s) * 1e6:
            short.append(last.name)
            found[-1] = Edge(edge.name, last.at_us, max(last.late_s, edge.late_s))
        else:
            at_s = [f"{each.name} begins {(each.at_us - edges[0].at_us) * 1e-6:.3f} s" for each in (last, edge)]
            what = f"the segments are not in the order of this boot: {at_s[0]} after power-on, and {at_s[1]}"
            raise MeasurementInvalid("power-on", [what])
    if len(found) == 1:
        raise MeasurementInvalid("power-on", ["the whole boot is shorter than the times of its two ends are sure"])
    return Segments(tuple(found), tuple(rules), tuple(short))


def reached(rules: Sequence[SegmentRule], told: PowerOn) -> str:
    """The last segment that the console of a board which did not come up has begun: `it came to u-boot`; else ""."""
    lines = [line.text for line in told.lines]
    begun = [rule.name for rule in rules if rule.line and any(re.search(rule.line, line) for line in lines)]
    return f"it came to {begun[-1]}" if begun else ""


def sum_complaints(trace: Trace, segments: Segments, idle: Window) -> list[str]:
    """Complaints unless the joules of all segments add up to those of the whole within their uncertainty.

    Raises MeasurementInvalid if one of them has no energy.
    """

    def gross(name: str) -> tuple[float, float]:
        window, late_s = segments.window(name)
        value = energy.energy(trace, window, idle, late_s=late_s).gross_mj
        return value.value, value.uncertainty

    whole_mj, uncertainty_mj = gross("")
    parts_mj = sum(gross(edge.name)[0] for edge in segments.edges[:-1])
    if abs(parts_mj - whole_mj) <= _FAR * uncertainty_mj:
        return []
    return [f"the segments have {parts_mj:.3f} mJ together, and the whole boot {whole_mj:.3f} mJ"]


def timed_lines(told: PowerOn) -> bytes:
    """The console with each line's seconds since power-on, and how late they may be."""
    return "".join(f"{line.at_s - told.begin_s:12.6f} {line.late_s:9.6f} {line.text}\n" for line in told.lines).encode()


def _sought(rule: SegmentRule) -> str:
    line = f"no line of the console matches {rule.line!r}" if rule.line else ""
    return " and ".join(filter(None, [line, f"the mark {rule.mark} was not heard" if rule.mark else ""]))


def _board_us(told: PowerOn, trace: Trace) -> float | None:
    """When the clock of a board in guest time was 0, in the meter's; None for another board.

    Both have heard the marks. Without any the meter's stream began with the board. Raises MeasurementInvalid.
    """
    if told.marks is None:
        return None
    heard = _once((mark.text, float(mark.time_us)) for mark in trace.marks)
    sent = _once((read_line(line.text)[0], line.at_s * 1e6) for line in told.marks)
    offsets = [heard[text] - sent[text] for text in heard.keys() & sent.keys()]
    if not offsets:
        return float(trace.times_us[0]) if len(trace.times_us) else 0.0
    if max(offsets) - min(offsets) > _APART_US:
        raise MeasurementInvalid("power-on", ["the clocks of the meter and of the board differ between two marks"])
    return float(np.median(offsets))


def _once(marks: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The marks that there are once."""
    every = list(marks)
    texts = [text for text, _ in every]
    return {text: at_us for text, at_us in every if texts.count(text) == 1}


def _line_us(line: ConsoleLine, trace: Trace, board_us: float | None) -> tuple[float, float]:
    """When a line began, in the meter's clock, and how late that may be, in s. Raises MeasurementInvalid."""
    if board_us is not None:
        return board_us + line.at_s * 1e6, 0.0
    if (clock := trace.host_clock) is None:
        what = "the instrument does not tell where this computer's clock is in its own"
        raise MeasurementInvalid("power-on", [f"{what}: its segments begin at marks, and not at lines"])
    return clock.meter_us(line.at_s), line.late_s + HOST_LINE_S + clock.late_s(line.at_s)


def _power_edge(name: str, told: PowerOn, trace: Trace, board_us: float | None) -> Edge:
    """Where the power comes, in the trace itself. Raises MeasurementInvalid for a meter that began too late."""
    tick_us, times_us, watts = trace.info.tick_us, trace.times_us, trace.power_w
    if board_us is not None:
        if not len(times_us) or times_us[0] > board_us + tick_us:
            raise _late(float(times_us[0]) - board_us if len(times_us) else 0.0)
        # Its power is known from its first millisecond on.
        return Edge(name, max(board_us, float(times_us[0])), tick_us * 1e-6)
    off = _LEAST_OFF
    if trace.host_clock is not None:
        off = int(np.searchsorted(times_us + tick_us, trace.host_clock.meter_us(told.begin_s)))
    if off < _LEAST_OFF or off >= len(times_us):
        raise _late(-off * tick_us)
    off_w, on_w = float(watts[:off].max()), float(watts[off:].mean())
    if off_w > _MOST_OFF * on_w:
        what = f"before power-on the meter read up to {off_w:.3f} W, and {on_w:.3f} W on average after it"
        raise MeasurementInvalid("power-on", [f"{what}: it began too late, or is not in this board's supply"])
    risen = off + int(np.argmax(watts[off:] > off_w + _RISEN * (on_w - off_w)))
    shown_late_us = energy.instrument_of(trace.info).shift_s * 1e6
    return Edge(name, float(times_us[risen]) - shown_late_us, tick_us * 1e-6)


def _late(by_us: float) -> MeasurementInvalid:
    what = "the meter's first sample came after the power"
    after = f", by {by_us * 1e-3:.0f} ms" if by_us > 0 else ""
    return MeasurementInvalid("power-on", [f"{what}{after}: the begin of the boot is not known. Measure it again"])
