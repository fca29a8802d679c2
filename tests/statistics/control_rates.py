#!/usr/bin/env python3
"""How often a place's control charts alarm falsely, and after how many checks they see a drift.

Emulated places have a check each night for some years. Each check has four figures: idle watts and a load's, which
share the meter's gain, and two durations. A figure's noise is normal. A stall is half a normal of 5 %, in one of fifty
boots (a check is the median of three) or of fifty checks. The change comes after a random night of the first year, from
the 30th on, in every check from then on; a drift begins with the first check.

An alarm that lasts and comes before the change is false. Then the place is taken to be calibrated: a new chart begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from output import Report, arguments

from fsjoule.statistics.control import FALSE_ALARMS, chart, limits_for

Floats = npt.NDArray[np.float64]

_FIGURES: Final = 4
_METERED: Final = 2
_YEAR: Final = 365
_FIRST: Final = 30
_LATE: Final = 90
_STALLS, _STALL = 0.02, 0.05
_BOOTS: Final = 3
_SD_OF_MEDIAN: Final = 0.6698  # of three from a normal distribution with a standard deviation of 1


@dataclass(frozen=True, slots=True)
class Kind:
    """A change: `watts` takes those of all checks, shape (checks, 2), and the first night with the change."""

    name: str
    watts: Callable[[Floats, int, np.random.Generator, float], Floats]
    stalled_boots: bool = False
    stalled_checks: bool = False
    drifts: bool = False


def _nothing(logs: Floats, _begin: int, _rng: np.random.Generator, _noise: float) -> Floats:
    return logs


def _step(size: float) -> Callable[[Floats, int, np.random.Generator, float], Floats]:
    def change(logs: Floats, begin: int, _rng: np.random.Generator, _noise: float) -> Floats:
        logs[begin:] += np.log1p(size)
        return logs

    return change


def _drift(logs: Floats, _begin: int, _rng: np.random.Generator, _noise: float) -> Floats:
    return logs + np.log1p(0.01) * np.arange(len(logs))[:, None] / _YEAR


def _wider(logs: Floats, begin: int, rng: np.random.Generator, noise: float) -> Floats:
    logs[begin:] += rng.normal(0, noise * 8**0.5, (len(logs) - begin, 1))
    return logs


def _jumps(logs: Floats, begin: int, rng: np.random.Generator, _noise: float) -> Floats:
    logs[begin:] -= 0.05 * (rng.random((len(logs) - begin, 1)) < 0.1)
    return logs


_KINDS: Final = (
    Kind("nothing", _nothing),
    Kind("nothing; boots stall", _nothing, stalled_boots=True),
    Kind("nothing; checks stall", _nothing, stalled_checks=True),
    *(Kind(f"gain +{100 * size:g} %", _step(size)) for size in (0.003, 0.005, 0.01)),
    Kind("gain +1 % a year", _drift, drifts=True),
    Kind("loose shunt: noise x3", _wider),
    Kind("loose shunt: -5 % in 10 % of checks", _jumps),
)


def main() -> None:
    parser = arguments(__doc__ or "", trials=100)
    parser.add_argument("--years", type=int, default=5)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    title = f"{asked.trials} places a row, {asked.years} years of nightly checks"
    report = Report(title, {"seed": asked.seed, "stated": f"{FALSE_ALARMS * _YEAR:.2f} false a place and year"})
    for kind in _KINDS:
        for noise in (0.002, 0.005, 0.01):
            report.rows.append(_row(kind, noise, asked.trials, asked.years * _YEAR, rng))
    report.show(as_json=asked.json)


def _row(kind: Kind, noise: float, places: int, nights: int, rng: np.random.Generator) -> dict[str, str | float | None]:
    false = ended = watched = 0
    delays: list[int] = []
    late = missed = 0
    for _ in range(places):
        changes = kind.watts is not _nothing
        begin = 0 if kind.drifts else int(rng.integers(_FIRST, _YEAR)) if changes else nights
        if kind.stalled_boots:
            boots = rng.normal(0, noise / _SD_OF_MEDIAN, (_BOOTS, nights, _FIGURES))
            logs = np.median(boots + _stalls(boots.shape, rng), axis=0)
        else:
            logs = rng.normal(0, noise, (nights, _FIGURES))
        if kind.stalled_checks:
            logs += _stalls(logs.shape, rng)
        logs[:, :_METERED] = kind.watts(logs[:, :_METERED], begin, rng, noise)
        start = 0
        while start < nights:
            alarm, single = _first(np.exp(logs[start:]), begin - start)
            ended += single
            if alarm is None or start + alarm >= begin:
                watched += min(begin, nights) - start
                if alarm is not None:
                    delays.append(start + alarm - begin)
                    late += delays[-1] > _LATE
                elif changes:
                    missed += 1
                break
            false += 1
            watched += alarm + 1
            start += alarm + 1
    per_year = _YEAR / watched if watched else 0.0
    return {
        "change": kind.name,
        "noise %": 100 * noise,
        "false a year": round(false * per_year, 2),
        "one check a year": round(ended * per_year, 2),
        "delay median": float(np.median(delays)) if delays else None,
        "delay 90 %": float(np.quantile(delays, 0.9)) if delays else None,
        "after 90": late if delays or missed else None,
        "missed": missed if delays or missed else None,
    }


def _stalls(shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    return np.where(rng.random(shape) < _STALLS, np.abs(rng.normal(0, _STALL, shape)), 0.0)


def _first(figures: Floats, begin: int) -> tuple[int | None, int]:
    """The first check at which an alarm of any figure lasts, and the alarms of single checks before the change."""
    limits = limits_for(_FIGURES)
    charts = [chart(figures[:, i], limits) for i in range(_FIGURES)]
    last = len(figures) - 1  # nobody knows yet whether its alarm lasts
    lasting = [each.alarm.signalled for each in charts if each.alarm and each.alarm.signalled < last]
    first = min(lasting, default=None)
    end = min(begin, len(figures) if first is None else first)
    return first, sum(not alarm.lasts and alarm.signalled < end for each in charts for alarm in each.alarms)


if __name__ == "__main__":
    main()
