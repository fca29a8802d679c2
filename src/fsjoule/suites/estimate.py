"""Estimates a plan's time, bytes written (wear) and energy from a board's earlier runs, and the time left of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from fsjoule.model import CARD, Measurement, Planned, Run

# Phases of a run that are no measurement's: boots are counted apart, and `board_on` is the sum of others.
_NOT_AROUND: Final = ("setup", "flash", "boot", "board_on")
# The name of a storage device, and an I/O pattern or a timed operation.
_On = tuple[str, str]


@dataclass(frozen=True, slots=True)
class BoardRates:
    """A board's speed and power: MiB/s and seconds per storage device, seconds for a boot and around a measurement.

    "Around" is all that a measurement takes beside its own work, and on a board in guest time nearly all.
    `mib_per_s` is by the device's name and the I/O pattern, `timed_s` by its name and the timed operation. `runs` is
    the number of runs behind it; with 0 it is a guess for a small board with a card.
    """

    mib_per_s: dict[_On, float] = field(default_factory=dict[_On, float])
    timed_s: dict[_On, float] = field(default_factory=dict[_On, float])
    default_mib_per_s: float = 10.0
    boot_s: float = 20.0
    around_s: float = 6.0
    power_w: float = 1.4
    runs: int = 0


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    """The estimate for a whole plan. The energy is the board's while it is on."""

    measurements: int
    boots: int
    seconds: float
    written_bytes: int
    energy_j: float


def estimate(entries: Sequence[Planned], rates: BoardRates) -> PlanEstimate:
    boots = _boots_of(entries)
    seconds = boots * rates.boot_s + sum(_seconds_of(entry, rates) for entry in entries)
    written = sum(e.workload.written_bytes(_speed_mib_per_s(e, rates)) for e in entries)
    return PlanEstimate(len(entries), boots, seconds, written, seconds * rates.power_w)


def _boots_of(entries: Sequence[Planned]) -> int:
    """How often the board boots for these entries."""
    cuts = [e for e in entries if e.workload.cuts_power]
    others = [e for e in entries if not e.workload.cuts_power]
    boots = len({(e.repetition, e.kernel, e.provision, e.provision == "root" and e.filesystem) for e in others})
    return boots + len(cuts) + len({(e.kernel, e.provision) for e in cuts})


def learned(runs: Iterable[tuple[Run, Sequence[Measurement]]]) -> BoardRates:
    """A board's rates from valid measurements of its earlier runs; others keep their guessed values."""
    speeds: dict[_On, list[float]] = {}
    times: dict[_On, list[float]] = {}
    watts: list[float] = []
    around: list[float] = []
    boots: list[float] = []
    count = 0
    for run, measurements in runs:
        valid = [m for m in measurements if m.valid and m.duration_s]
        if not valid:
            continue
        count += 1
        storage = {entry.number: entry.storage for entry in run.plan.entries}
        for m in valid:
            assert m.duration_s is not None
            on = (storage.get(m.number, CARD), m.workload.operation.value)
            if m.fio is not None:
                speeds.setdefault(on, []).append(m.throughput_mib_per_s or 0.0)
            elif m.outcome is None:
                times.setdefault(on, []).append(m.duration_s)
        watts += [m.energy.mean_power_w.value for m in valid if m.energy]
        phases = run.phases_s
        booted = len({m.boot for m in measurements})
        boots.append((phases.get("boot", 0.0) + phases.get("flash", 0.0)) / booted)
        spent_s = sum(seconds for name, seconds in phases.items() if name not in _NOT_AROUND)
        around.append(max(0.0, spent_s - sum(m.duration_s or 0.0 for m in measurements)) / len(measurements))
    guess = BoardRates()
    return BoardRates(
        mib_per_s={key: fmean(values) for key, values in speeds.items()},
        timed_s={key: fmean(values) for key, values in times.items()},
        boot_s=fmean(boots) if boots else guess.boot_s,
        around_s=fmean(around) if around else guess.around_s,
        power_w=fmean(watts) if watts else guess.power_w,
        runs=count,
    )


def _speed_mib_per_s(entry: Planned, rates: BoardRates) -> float:
    return rates.mib_per_s.get((entry.storage, entry.workload.operation.value)) or rates.default_mib_per_s


def _seconds_of(entry: Planned, rates: BoardRates) -> float:
    """An entry's seconds without those of its boot."""
    if entry.workload.is_boot:
        return 0.0  # counted as a boot
    guess_s = entry.workload.seconds(_speed_mib_per_s(entry, rates))
    return rates.around_s + rates.timed_s.get((entry.storage, entry.workload.operation.value), guess_s)


# Fewer measurements say little: the first one also boots the board, and may write the card.
_ENOUGH: Final = 3
_MINUTE_S: Final = 60.0
_LONG_MINUTES: Final = 120


@dataclass
class Pace:
    """What entries and boots took in this run, and so what the entries that are left will take.

    An entry whose like (same workload and filesystem, else same workload) was measured takes as long as that. Any other
    one takes what `_seconds_of` guesses, corrected by how far its guesses were off here. `may_end_early`: not all
    entries need be measured.
    """

    entries: Sequence[Planned]
    may_end_early: bool = False
    _done: int = 0
    _noted: int = 0
    _like: dict[tuple[object, ...], list[float]] = field(default_factory=dict[tuple[object, ...], list[float]])
    _took_s: float = 0.0
    _guessed_s: float = 0.0
    _boots_s: float = 0.0

    def note(self, number: int, seconds: float, booting_s: float) -> None:
        """Entry `number` was stored, `seconds` after the one before; `booting_s` of them were boots of the board."""
        at = next((i for i, entry in enumerate(self.entries) if entry.number == number), None)
        if at is None:
            return
        entry, working_s = self.entries[at], max(0.0, seconds - booting_s)
        self._done, self._noted = at + 1, self._noted + 1
        for key in ((entry.workload, entry.storage), (entry.workload, entry.storage, entry.filesystem)):
            self._like.setdefault(key, []).append(working_s)
        self._took_s += working_s
        self._guessed_s += _seconds_of(entry, BoardRates())
        self._boots_s += booting_s

    @property
    def left_s(self) -> float | None:
        """The seconds that the rest takes, about; None until there is enough to learn from."""
        if self._noted < _ENOUGH:
            return None
        boots = _boots_of(self.entries[: self._done])
        boot_s = self._boots_s / boots if boots else 0.0
        more_boots = _boots_of(self.entries) - boots
        return more_boots * boot_s + sum(map(self._seconds, self.entries[self._done :]))

    @property
    def text(self) -> str:
        """`about 14 min left`, or nothing."""
        return "" if self._done == len(self.entries) else left_text(self.left_s, may_end_early=self.may_end_early)

    def _seconds(self, entry: Planned) -> float:
        on = (entry.workload, entry.storage)
        if known := self._like.get((*on, entry.filesystem)) or self._like.get(on):
            return fmean(known)
        if not self._guessed_s:
            return self._took_s / self._noted
        return _seconds_of(entry, BoardRates()) * self._took_s / self._guessed_s


def left_text(left_s: float | None, *, may_end_early: bool) -> str:
    """`about 14 min left`, or nothing if it is not known."""
    if left_s is None:
        return ""
    minutes = math.ceil(left_s / _MINUTE_S)
    length = f"{minutes} min" if minutes < _LONG_MINUTES else f"{left_s / _MINUTE_S / 60:.1f} h"
    return f"about {length} left{' at most' if may_end_early else ''}"
