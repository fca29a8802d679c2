"""Whose a window's energy is: the kernel's events, on the meter's clock, say who ran.

The board writes each mark into its trace, too, just before it sends it: so two times put its clock on the meter's.

A thread gets the energy of the whole board in the time in which it ran, several at once in equal parts; `idle` gets the
time in which no processor ran one. A meter reads the mean power of a tick. Threads that share a tick get its energy by
time. How far that may be wrong follows from the lowest and the highest power of the whole trace, between which each
one's is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fsjoule.errors import MeasurementInvalid
from fsjoule.meter.energy import instrument_of, source_of
from fsjoule.meter.energy.window import Floats, WindowTrace
from fsjoule.model import Trace, Window
from fsjoule.model.kernel_events import IDLE, KernelEvents, Switch

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class BoardClock:
    """The board's clock, seconds since its boot, put on the meter's, in us."""

    start_s: float
    start_us: float
    us_per_s: float

    def us(self, time_s: float) -> float:
        return self.start_us + (time_s - self.start_s) * self.us_per_s

    @property
    def fast_ppm(self) -> float:
        """How much faster than the meter's it runs. Over a short window that is the error of two marks."""
        return 1e6 * (1e6 / self.us_per_s - 1)


@dataclass(frozen=True, slots=True)
class EnergyShare:
    """A thread's part of a window. `seconds` are of all processors; its energy is from `least_mj` to `most_mj`."""

    seconds: float
    energy_mj: float
    least_mj: float
    most_mj: float


@dataclass(frozen=True, eq=False, slots=True)
class OwnedPower:
    """A window in pieces of one power and the same threads. All arrays have shape (n,), times ascending.

    `reading` numbers the meter's readings, `owner` indexes `owners`: those that have the piece together.
    `lowest_w` and `highest_w` are those of the whole trace.
    """

    begin_us: Floats
    seconds: Floats
    watts: Floats
    reading: npt.NDArray[np.intp]
    owner: npt.NDArray[np.intp]
    owners: Sequence[tuple[str, ...]]
    lowest_w: float
    highest_w: float

    @property
    def energy_mj(self) -> float:
        return float(1e3 * (self.watts @ self.seconds))

    def shares(self) -> dict[str, EnergyShare]:
        """Each thread's part, the largest first. All energies together are that of the window."""
        count = len(self.owners)
        cell, of = np.unique(self.reading * count + self.owner, return_inverse=True)
        seconds, joules = (np.bincount(of, each, len(cell)) for each in (self.seconds, self.seconds * self.watts))
        reading = np.unique(cell // count, return_inverse=True)[1]
        others_s = np.bincount(reading, seconds)[reading] - seconds
        together_j = np.bincount(reading, joules)[reading]
        least = np.maximum(self.lowest_w * seconds, together_j - self.highest_w * others_s)
        most = np.minimum(self.highest_w * seconds, together_j - self.lowest_w * others_s)
        sums = [np.bincount(cell % count, each, count) for each in (seconds, 1e3 * joules, 1e3 * least, 1e3 * most)]
        parts: dict[str, npt.NDArray[np.float64]] = {}
        for names, row in zip(self.owners, np.stack(sums, axis=1), strict=True):
            for name in names:  # each had all of the time, and one part of the energy
                parts[name] = parts.get(name, np.zeros(len(row))) + row / ([1] + [len(names)] * (len(row) - 1))
        found = {name: EnergyShare(*map(float, part)) for name, part in parts.items()}
        return dict(sorted(found.items(), key=lambda item: (-item[1].energy_mj, item[0])))

    def binned_w(self, edges_us: Floats, names: Sequence[str]) -> Floats:
        """The part that each of `names` has of the mean power between `edges_us`, in W, shape (names, spans)."""
        times_us = np.append(self.begin_us, self.begin_us[-1] + 1e6 * self.seconds[-1])
        rows = np.zeros((len(names), len(edges_us) - 1))
        for i, owners in enumerate(self.owners):
            joules = np.where(self.owner == i, self.seconds * self.watts, 0.0)
            between = np.diff(np.interp(edges_us, times_us, np.concatenate([[0.0], np.cumsum(joules)])))
            for j, name in enumerate(names):
                rows[j] += between * owners.count(name) / len(owners)
        return rows / (np.diff(edges_us) * 1e-6)


@dataclass(frozen=True, eq=False, slots=True)
class Timeline:
    """One measurement on one clock: its power by thread, and the kernel's events, whose times `clock` reads."""

    window: Window
    clock: BoardClock
    power: OwnedPower
    events: KernelEvents

    @property
    def processors(self) -> int:
        return len({each.cpu for each in self.events.switches})


def timeline(trace: Trace, window: Window, marks: tuple[str, str], events: KernelEvents) -> Timeline:
    """Put a measurement's events on the meter's clock; `marks` are the texts of its two marks in the kernel's trace.

    Raises MeasurementInvalid if the trace has no samples, or the events do not reach over the window.
    """
    missing = [mark for mark in marks if mark not in events.marks]
    if missing or "sched_switch" not in events.kinds:
        lost = f"{events.dropped} events found no room, and the last ones are missing" if events.dropped else ""
        why = lost or (f"mark {missing[0]} is not among them" if missing else "none says who ran")
        raise MeasurementInvalid("events", [f"the kernel's events do not reach over the window: {why}"])
    start_s, stop_s = (events.marks[mark] for mark in marks)
    if stop_s <= start_s:
        raise MeasurementInvalid("events", ["the window's end is before its start in the kernel's events"])
    clock = BoardClock(start_s, window.start_us, (window.stop_us - window.start_us) / (stop_s - start_s))
    return Timeline(window, clock, _owned_power(trace, window, *_owners(events.switches, clock)), events)


def by_function(energy_mj: float, times_ns: Mapping[K, int]) -> dict[K, float]:
    """The energy of the time in which threads ran, by what was executed: in proportion to its time, largest first."""
    whole = sum(times_ns.values())
    found = {each: energy_mj * time_ns / whole for each, time_ns in times_ns.items() if whole}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _owners(switches: Sequence[Switch], clock: BoardClock) -> tuple[Floats, list[tuple[str, ...]]]:
    """From when on which threads run, by the meter's clock in us."""
    running: dict[int, str] = {}
    begins: list[float] = []
    owners: list[tuple[str, ...]] = []
    for each in switches:
        running[each.cpu] = each.thread
        now = tuple(sorted(name for name in running.values() if name != IDLE)) or (IDLE,)
        if not owners or now != owners[-1]:
            begins.append(clock.us(each.time_s))
            owners.append(now)
    return np.array(begins), owners


def _owned_power(trace: Trace, window: Window, begin_us: Floats, owners: Sequence[tuple[str, ...]]) -> OwnedPower:
    recording = WindowTrace.of(trace)
    # Readings show what was some time before.
    shift_us = 1e6 * instrument_of(trace.info, source_of(trace)).shift_s
    known = recording.samples, recording.gaps
    first = np.concatenate([each.begin_us for each in known]) - shift_us
    order = np.argsort(first, kind="stable")
    first, watts = first[order], np.concatenate([each.watts for each in known])[order]
    # A tick of whole microseconds may lack a part of one: the reading before holds.
    cuts = np.clip(np.concatenate([first, begin_us]), window.start_us, window.stop_us)
    cuts = np.unique(np.concatenate([cuts, [window.start_us, window.stop_us]]))
    middle = (cuts[:-1] + cuts[1:]) / 2
    reading, stretch = (np.clip(np.searchsorted(each, middle, side="right") - 1, 0, None) for each in (first, begin_us))
    stretches: list[int] = stretch.tolist()
    kinds = list(dict.fromkeys(owners[i] for i in stretches))
    number = {names: i for i, names in enumerate(kinds)}
    return OwnedPower(
        begin_us=cuts[:-1],
        seconds=np.diff(cuts) * 1e-6,
        watts=watts[reading],
        reading=reading,
        owner=np.array([number[owners[i]] for i in stretches], np.intp),
        owners=kinds,
        lowest_w=recording.lowest_w,
        highest_w=recording.highest_w,
    )
