#!/usr/bin/env python3
"""Series of several steps, asked once at their end: our detector and Otava on the same draws.

*Right*: every step within three nights, and nothing else. *Other*: something that is no step. *Ever*: the same of a
quarter of the series without a step, asked after each night. Irregular series have
levels of random length and size: one kind like the public demonstration series of a database (calm plateaus of a few
per cent, lone nights far below), one annotated with steps of 3 to 30 % in tails, stalls and an outage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
from change_points import NEAR, follow
from detectors import OtavaFinder
from memory_rates import remembering
from output import Report, Row, arguments, told

from fsjoule.statistics.changepoints import ChangePointFinder
from fsjoule.statistics.finder import RupturesFinder

Floats = npt.NDArray[np.float64]
# A series and the nights at which its levels begin.
Annotated = tuple[Floats, tuple[int, ...]]
Noise = Callable[[np.random.Generator, int], Floats]

_FEWER: Final = 4

SHAPES: Final[dict[str, tuple[tuple[float, ...], tuple[int, ...]]]] = {
    "100": ((100,), (76,)),
    "100, 80, 64": ((100, 80, 64), (40, 20, 16)),
    "100, 110, 121": ((100, 110, 121), (40, 20, 16)),
    "100, 80, 88": ((100, 80, 88), (40, 20, 16)),
    "100, 50, 45": ((100, 50, 45), (40, 20, 16)),
    "an outage: 100, 70, 100": ((100, 70, 100), (40, 12, 24)),
    "four of -5 %": ((100, 95, 90.25, 85.7, 81.5), (20,) * 5),
    "seven of +10 %": (tuple(100 * 1.1**k for k in range(8)), (10,) * 8),
}


def _stalled(values: Floats, rng: np.random.Generator) -> Floats:
    stalled = rng.random(len(values)) < 0.05
    return values + np.where(stalled, np.log1p(-rng.uniform(0.05, 0.5, len(values))), 0)


def _white(sd: float, stalls: bool) -> Noise:
    def drawn(rng: np.random.Generator, nights: int) -> Floats:
        values = rng.normal(0, sd, nights)
        return _stalled(values, rng) if stalls else values

    return drawn


NOISES: Final[dict[str, Noise]] = {
    **{f"{sd:.1%}": _white(sd, False) for sd in (0, 0.001, 0.01, 0.02, 0.05)},
    **{f"{sd:.1%}, 5 % stalls": _white(sd, True) for sd in (0, 0.001, 0.01, 0.02, 0.05)},
    **{f"1.0%, AR {phi}": partial(remembering, phi=phi, sd=0.01) for phi in (0.5, 0.9)},
}


def _plateaus(rng: np.random.Generator, least: float, most: float, lengths: tuple[int, int], count: int) -> Annotated:
    """Levels that differ by `least` to `most`, up or down, of random lengths."""
    parts = rng.integers(*lengths, count)
    steps = np.exp(rng.uniform(math.log(least), math.log(most), count - 1)) * rng.choice((-1, 1), count - 1)
    return np.repeat(np.concatenate([[0.0], np.cumsum(np.log1p(steps))]), parts), tuple(np.cumsum(parts)[:-1].tolist())


def database(rng: np.random.Generator) -> Annotated:
    values, starts = _plateaus(rng, 0.02, 0.2, (10, 60), 7)
    values = values + rng.normal(0, rng.uniform(0.005, 0.012), len(values))
    lone = rng.random(len(values)) < 0.01
    return values + np.where(lone, np.log(rng.uniform(0.5, 0.9, len(values))), 0), starts


def annotated(rng: np.random.Generator) -> Annotated:
    values, starts = _plateaus(rng, 0.03, 0.3, (12, 50), int(rng.integers(2, 7)))
    sd = rng.uniform(0.003, 0.02)
    values = _stalled(values + sd / 1.3 * rng.standard_t(3, len(values)), rng)
    before, outage = int(rng.integers(10, 30)), int(rng.integers(8, 15))
    level = sd / 1.3 * rng.standard_t(3, before + outage)
    level[before:] += math.log(0.7)
    return np.concatenate([level, values]), (before, before + outage, *(start + before + outage for start in starts))


IRREGULAR: Final = {"like a database's": database, "annotated": annotated}


def staircase(shape: str, noise: str, count: int, seed: int) -> list[Annotated]:
    rng = np.random.default_rng([seed, *shape.encode(), *noise.encode()])
    sizes, lengths = SHAPES[shape]
    level = np.log(np.repeat(sizes, lengths))
    starts = tuple(np.cumsum(lengths)[:-1].tolist())
    return [(level + NOISES[noise](rng, len(level)), starts) for _ in range(count)]


def matched(found: Sequence[int], starts: Sequence[int]) -> int:
    """How many steps were found, each by a place of its own."""
    left = list(found)
    for start in starts:
        near = [place for place in left if abs(place - start) <= NEAR]
        if near:
            left.remove(min(near, key=lambda place: abs(place - start)))
    return len(found) - len(left)


def ever(finder: ChangePointFinder, drawn: Sequence[Floats]) -> float:
    return round(100 * float(np.mean([bool(follow(finder, values).places) for values in drawn])), 1)


def row(finder: ChangePointFinder, drawn: Sequence[Annotated], name: str) -> Row:
    found = [finder.find(values) for values, _ in drawn]
    hits = [matched(one, starts) for one, (_, starts) in zip(found, drawn, strict=True)]
    others = [len(one) - hit for one, hit in zip(found, hits, strict=True)]
    steps = sum(len(starts) for _, starts in drawn)
    right = [not other and hit == len(starts) for hit, other, (_, starts) in zip(hits, others, drawn, strict=True)]
    return {
        f"{name} right %": round(100 * float(np.mean(right)), 1),
        f"{name} steps %": round(100 * sum(hits) / steps, 1) if steps else None,
        f"{name} other %": round(100 * float(np.mean([other > 0 for other in others])), 1),
        f"{name} ever %": None if steps else ever(finder, [values for values, _ in drawn[::_FEWER]]),
    }


def rows(trials: int, seed: int) -> Iterator[Row]:
    finders: dict[str, ChangePointFinder] = {"ours": RupturesFinder(), "Otava": OtavaFinder(0.001)}
    for shape in SHAPES:
        for noise in NOISES:
            drawn = staircase(shape, noise, trials, seed)
            cells = [row(finder, drawn, name) for name, finder in finders.items()]
            yield {"levels": shape, "noise": noise, **cells[0], **cells[1]}
    for kind, draw in IRREGULAR.items():
        rng = np.random.default_rng([seed, *kind.encode()])
        drawn = [draw(rng) for _ in range(trials)]
        cells = [row(finder, drawn, name) for name, finder in finders.items()]
        yield {"levels": kind, "noise": "", **cells[0], **cells[1]}


def main() -> None:
    options = arguments(str(__doc__), trials=200).parse_args()
    report = Report("Several steps", {"series": options.trials, "seed": options.seed})
    report.rows += told(rows(options.trials, options.seed), len(SHAPES) * len(NOISES) + len(IRREGULAR), "rows")
    report.show(as_json=options.json)


if __name__ == "__main__":
    main()
