"""Differences between two sides' profiles, function by function, in time per MiB (or per operation)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import product
from typing import Final

from fsjoule.verdicts.explanation.functions import Executed, Function, is_whole

_TOP: Final = 10
# Names are compared among this many functions, the largest differences first; two are alike from this likeness on.
_COMPARED: Final = 200
_ALIKE: Final = 0.6


class Presence(StrEnum):
    """Where a function is. What a kernel lacks may be called otherwise there, or be part of its callers."""

    BOTH = "both"
    NEW = "new"  # the baseline's kernel has none of that name
    GONE = "gone"  # the candidate's has none
    CALLED_NOW = "called now"  # both have it, the candidate alone executed it
    NOT_CALLED = "not called"
    INLINED = "inlined"  # only parts that were split off are left in the candidate
    NOT_INLINED = "not inlined"  # only parts were there in the baseline


@dataclass(frozen=True, slots=True)
class TimeChange:
    """A function, or a group of them, on both sides, in ns per unit.

    `error_ns` is the difference's standard error by sampling; 0 where every instruction was counted.
    """

    name: str
    baseline_ns: float
    candidate_ns: float
    error_ns: float = field(default=0.0, kw_only=True)

    @property
    def difference_ns(self) -> float:
        return self.candidate_ns - self.baseline_ns


@dataclass(frozen=True, slots=True)
class FunctionChange(TimeChange):
    """A function. `module` is the candidate's, unless it is gone; `moved_from` is the baseline's, if that is another.

    `baseline_names` and `candidate_names` are what the kernels call it; they differ where a compiler made clones.
    `perhaps` is what a function that one side lacks may be called there: one of the same folder and of a like name.
    """

    module: str
    subsystem: str
    presence: Presence
    baseline_names: tuple[str, ...] = ()
    candidate_names: tuple[str, ...] = ()
    moved_from: str | None = None
    perhaps: str | None = None


@dataclass(frozen=True, slots=True)
class ExplainedSide:
    """A kernel, and its windows' mean times in ns per unit, one window a boot.

    `spread` is the busy time's range over the boots, relative to the mean; None for a single boot. `error_ns` is its
    standard error by sampling.
    """

    kernel: str
    boots: int
    window_ns: float
    busy_ns: float
    spread: float | None = None
    error_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a series has another figure: all functions that were executed on either side, largest difference first.

    `period_ns` is the time between two samples; 0 where every instruction was counted.
    """

    series: str
    unit: str
    simulated: bool
    baseline: ExplainedSide
    candidate: ExplainedSide
    functions: tuple[FunctionChange, ...]
    period_ns: int = 0

    @property
    def change_ns(self) -> float:
        """The difference of all functions together."""
        return sum(each.difference_ns for each in self.functions)

    @property
    def modules(self) -> tuple[TimeChange, ...]:
        return _grouped(self.functions, lambda each: each.module)

    @property
    def subsystems(self) -> tuple[TimeChange, ...]:
        return _grouped(self.functions, lambda each: each.subsystem)

    def explained(self, count: int = _TOP) -> float | None:
        """The share of the change that the functions with the largest differences make; None without a change."""
        change = self.change_ns
        return sum(each.difference_ns for each in self.functions[:count]) / change if change else None


@dataclass(frozen=True, slots=True)
class Windows:
    """One side: its kernel, and windows of its boots with how many units each moved (MiB, or one operation)."""

    kernel: str
    windows: Sequence[tuple[Executed, float]]


def explain(series: str, unit: str, baseline: Windows, candidate: Windows, *, simulated: bool) -> Explanation:
    """Explain a series by its differences. Each side has at least one window."""
    ours, theirs = _times(baseline), _times(candidate)
    errors, errors_too = _errors(baseline), _errors(candidate)
    known, known_too = _names(baseline), _names(candidate)
    places = {**_places(baseline), **_places(candidate)}
    moved = _moved(ours, theirs, known, known_too)
    changes: list[FunctionChange] = []
    for function in {**ours, **theirs}:
        if function in moved.values():
            continue
        other = moved.get(function, function)
        names, names_too = known.get(other, ()), known_too.get(function, ())
        times = ours.get(other, 0.0), theirs.get(function, 0.0)
        changes.append(
            FunctionChange(
                function.name,
                *times,
                module=function.module,
                subsystem=places[function],
                presence=_presence(times, names, names_too),
                baseline_names=names,
                candidate_names=names_too,
                moved_from=None if other is function else other.module,
                error_ns=math.hypot(errors.get(other, 0.0), errors_too.get(function, 0.0)),
            )
        )
    changes.sort(key=lambda each: (-abs(each.difference_ns), each.name, each.module))
    period_ns = max(window.period_ns for side in (baseline, candidate) for window, _ in side.windows)
    sides = _side(baseline), _side(candidate)
    return Explanation(series, unit, simulated, *sides, _with_likes(changes), period_ns)


def _times(side: Windows) -> dict[Function, float]:
    total: dict[Function, float] = {}
    for window, units in side.windows:
        for function, time_ns in window.times.items():
            total[function] = total.get(function, 0.0) + time_ns / units / len(side.windows)
    return total


def _errors(side: Windows) -> dict[Function, float]:
    """The standard error of each function's time: so many samples differ by their number's root (Poisson)."""
    variances: dict[Function, float] = {}
    for window, units in side.windows:
        for function, time_ns in window.times.items():
            variance = time_ns * window.period_ns / (units * len(side.windows)) ** 2
            variances[function] = variances.get(function, 0.0) + variance
    return {function: math.sqrt(variance) for function, variance in variances.items()}


def _names(side: Windows) -> dict[Function, tuple[str, ...]]:
    # Modules are loaded when they are needed: a later boot's may know more of them.
    return {function: names for window, _ in side.windows for function, names in window.names.items()}


def _places(side: Windows) -> dict[Function, str]:
    return {function: place for window, _ in side.windows for function, place in window.places.items()}


def _side(side: Windows) -> ExplainedSide:
    busy = [window.busy_ns / units for window, units in side.windows]
    mean = sum(busy) / len(busy)
    return ExplainedSide(
        side.kernel,
        len(busy),
        sum(window.window_ns / units for window, units in side.windows) / len(busy),
        mean,
        (max(busy) - min(busy)) / mean if len(busy) > 1 and mean else None,
        math.hypot(*_errors(side).values()),
    )


def _moved(
    ours: Mapping[Function, float],
    theirs: Mapping[Function, float],
    known: Mapping[Function, object],
    known_too: Mapping[Function, object],
) -> dict[Function, Function]:
    """Functions of the candidate that were in another module in the baseline, and what they were there."""
    gone: dict[str, list[Function]] = {}
    for function in ours:
        if function not in known_too and function not in theirs:
            gone.setdefault(function.name, []).append(function)
    new: dict[str, list[Function]] = {}
    for function in theirs:
        if function not in known and function not in ours:
            new.setdefault(function.name, []).append(function)
    # One each: else nobody knows which of them is which.
    return {found[0]: gone[name][0] for name, found in new.items() if len(found) == 1 and len(gone.get(name, ())) == 1}


def _with_likes(changes: Sequence[FunctionChange]) -> tuple[FunctionChange, ...]:
    """The same with what may be each other: a function that is gone and a new one, each most like the other."""
    told = changes[:_COMPARED]
    gone = [each for each in told if each.presence is Presence.GONE and each.moved_from is None]
    new = [each for each in told if each.presence is Presence.NEW and each.moved_from is None]
    pairs = {
        (a.name, b.name): SequenceMatcher(None, a.name, b.name, autojunk=False).ratio()
        for a, b in product(gone, new)
        if a.subsystem == b.subsystem
    }
    likes: dict[str, str] = {}
    for names, likeness in sorted(pairs.items(), key=lambda item: (-item[1], item[0])):
        if likeness >= _ALIKE and not likes.keys() & set(names):
            likes |= {names[0]: names[1], names[1]: names[0]}
    marked = {Presence.GONE, Presence.NEW}
    return tuple(
        replace(each, perhaps=likes[each.name]) if each.presence in marked and each.name in likes else each
        for each in changes
    )


def _presence(times: tuple[float, float], names: Sequence[str], names_too: Sequence[str]) -> Presence:
    if bool(names) != bool(names_too):
        return Presence.NEW if names_too else Presence.GONE
    whole, whole_too = any(map(is_whole, names)), any(map(is_whole, names_too))
    if whole != whole_too:
        return Presence.INLINED if whole else Presence.NOT_INLINED
    if all(times):
        return Presence.BOTH
    return Presence.NOT_CALLED if times[0] else Presence.CALLED_NOW


def _grouped(functions: Iterable[FunctionChange], group: Callable[[FunctionChange], str]) -> tuple[TimeChange, ...]:
    groups: dict[str, list[FunctionChange]] = {}
    for each in functions:
        groups.setdefault(group(each), []).append(each)
    changes = [
        TimeChange(
            name,
            sum(each.baseline_ns for each in members),
            sum(each.candidate_ns for each in members),
            error_ns=math.hypot(*(each.error_ns for each in members)),
        )
        for name, members in groups.items()
    ]
    return tuple(sorted(changes, key=lambda each: (-abs(each.difference_ns), each.name)))
