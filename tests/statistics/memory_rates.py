#!/usr/bin/env python3
"""Rates of trends and of comparisons over nights with memory: nominations, their verdicts, and sides of several runs.

A night has 2 % noise. Series of 100 nights are asked after each night; the step is 5 % at night 60. Noises marked with
a star were kept apart until the rules were fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
from output import Report, Row, Share, arguments, told

from fsjoule.model.metrics import Metric
from fsjoule.statistics.changepoints import nominate
from fsjoule.statistics.comparison import Comparison, compare
from fsjoule.statistics.finder import RupturesFinder
from fsjoule.statistics.outcome import Outcome

Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]

NIGHTS: Final = 100
STEP: Final = 60
FIRST_ASKED: Final = 6
_LOSS: Final = 0.05
_SD: Final = 0.02
_NEAR: Final = 3
_FIGURES: Final = 14
_CHANGED: Final = (Outcome.IMPROVED, Outcome.REGRESSED)


def remembering(rng: np.random.Generator, nights: int, phi: float, sd: float = _SD, tail: int = 0) -> Floats:
    """An autoregression of first order; `tail` are the degrees of freedom of its steps, 0: normal."""
    steps = rng.standard_t(tail, nights) / math.sqrt(tail / (tail - 2)) if tail else rng.normal(size=nights)
    found = np.empty(nights)
    found[0] = steps[0]
    for night in range(1, nights):
        found[night] = phi * found[night - 1] + math.sqrt(1 - phi**2) * steps[night]
    return sd * found


def white(rng: np.random.Generator, nights: int, sd: float = _SD) -> Floats:
    return rng.normal(0, sd, nights)


def stalls(rng: np.random.Generator, nights: int) -> Floats:
    stalled = rng.random(nights) < 0.05
    return white(rng, nights) + np.where(stalled, np.log1p(-rng.uniform(0.05, 0.5, nights)), 0)


def bursts(rng: np.random.Generator, nights: int, size: float = 0.1) -> Floats:
    """One night in twenty begins a burst of three to six nights, a week after the last one at least."""
    found, night = white(rng, nights), 0
    while night < nights:
        if rng.random() < 1 / 20:
            length = int(rng.integers(3, 7))
            found[night : night + length] += math.log1p(-size)
            night += length + 6
        night += 1
    return found


def sine(rng: np.random.Generator, nights: int, period: float = 60.0) -> Floats:
    return white(rng, nights) + 0.02 * np.sin(2 * np.pi * (np.arange(nights) / period + rng.random()))


def curved(rng: np.random.Generator, nights: int) -> Floats:
    """A lab that warms up: 6 % within the first fifty nights or so, ever slower."""
    return white(rng, nights) - 0.06 * (1 - np.exp(-np.arange(nights) / 25))


NOISES: Final[dict[str, Draw]] = {
    "normal": white,
    "t2": lambda rng, n: _SD / 1.2 * rng.standard_t(2, n),
    "t3": lambda rng, n: _SD / 1.3 * rng.standard_t(3, n),
    "Laplace": lambda rng, n: rng.laplace(0, _SD / math.sqrt(2), n),
    "5 % stalls": stalls,
    "two levels 10 % apart": lambda rng, n: white(rng, n, 0.005) - 0.1 * (rng.random(n) < 0.3),
    "ticks of 1 %": lambda rng, n: np.log(np.round(np.exp(white(rng, n, 0.008)), 2)),
    "weekends": lambda rng, n: white(rng, n) - 0.03 * (np.arange(n) % 7 >= 5),
    "AR .3": partial(remembering, phi=0.3),
    "AR .6": partial(remembering, phi=0.6),
    "AR .9": partial(remembering, phi=0.9),
    "walk .3 %": lambda rng, n: white(rng, n) + np.cumsum(white(rng, n, 0.003)),
    "drift .3 %": lambda rng, n: white(rng, n) - 0.003 * np.arange(n),
    "slow sine": sine,
    "bursts": bursts,
    "* AR .5, t3": partial(remembering, phi=0.5, tail=3),
    "* AR .9 and noise": lambda rng, n: remembering(rng, n, 0.9, 0.014) + white(rng, n, 0.014),
    "* mean of five": lambda rng, n: np.convolve(white(rng, n + 4), np.ones(5) / math.sqrt(5), "valid"),
    "* bursts of 5 %": partial(bursts, size=0.05),
    "* sine of 25 nights": partial(sine, period=25),
    "* warms up": curved,
}


def quiet(values: Floats) -> tuple[bool, bool, bool]:
    """Whether something is nominated, and decided, when asked after each night, and whether a drift is told at last."""
    finder, nominated = RupturesFinder(), False
    for count in range(FIRST_ASKED, len(values) + 1):
        if finder.find(values[:count]):
            nominated = True
            verdicts = (each.verdict for each in nominate(np.exp(values[:count]).tolist(), finder).nominations)
            if any(verdict is not None and verdict.decided for verdict in verdicts):
                return True, True, False
    memory = nominate(np.exp(values).tolist(), finder).memory
    return nominated, False, memory is not None and memory.drift is not None


def stepped(values: Floats) -> tuple[int | None, bool, float]:
    """After how many nights a loss is nominated, whether it is decided at last, and the loss that would be seen."""
    finder = RupturesFinder()
    lossy = values + math.log1p(-_LOSS) * (np.arange(len(values)) >= STEP)
    late = None
    for count in range(STEP + 2, len(values) + 1):
        if any(abs(start - STEP) < _NEAR for start in finder.find(lossy[:count])):
            late = count - STEP
            break
    told_last = nominate(np.exp(lossy).tolist(), finder).nominations
    memory = nominate(np.exp(values[:STEP]).tolist(), finder).memory
    decided = any(each.verdict is not None and each.verdict.decided for each in told_last)
    return late, decided, 1 - memory.sees if memory else 1.0


def request(rng: np.random.Generator, draw: Draw | str, sides: tuple[int, int], loss: float) -> bool:
    """Whether a request of 14 figures names a change; the sides ran one after the other, ten boots a run."""
    comparisons: list[Comparison[int]] = []
    total = sum(sides)
    for number in range(_FIGURES):
        # A name that is no noise is a level of 1 % a run.
        nights = white(rng, total, 0.01) if isinstance(draw, str) else draw(rng, total)
        boots = nights[:, None] + rng.normal(0, _SD, (total, 10))
        boots[sides[0] :] += math.log1p(-loss)
        figures = np.exp(boots)
        runs = tuple((float(np.median(run)), place >= sides[0]) for place, run in enumerate(figures))
        one, two = (tuple(part.ravel().tolist()) for part in np.split(figures, [sides[0]]))
        comparisons.append(Comparison(number, Metric.THROUGHPUT, one, two, runs=runs))
    return any(verdict.outcome in _CHANGED for verdict in compare(comparisons))


def series(name: str, count: int, seed: int) -> list[Floats]:
    rng = np.random.default_rng([seed, *name.encode()])
    return [NOISES[name](rng, NIGHTS) for _ in range(count)]


def requests(name: str, sides: tuple[int, int], loss: float, count: int, seed: int) -> int:
    rng = np.random.default_rng([seed, *name.encode()])
    return sum(request(rng, NOISES.get(name, name), sides, loss) for _ in range(count))


def nomination_rows(names: list[str], trials: int, seed: int, pool: ProcessPoolExecutor) -> Iterator[Row]:
    for name in names:
        drawn = series(name, trials, seed)
        without = list(pool.map(quiet, drawn))
        losses = list(pool.map(stepped, drawn))
        late = [each for each, _, _ in losses if each is not None]
        yield {
            "nights": name,
            "falsely nominated %": round(Share(sum(one for one, _, _ in without), trials).percent, 1),
            "falsely decided %": round(Share(sum(two for _, two, _ in without), trials).percent, 1),
            "told as drift %": round(Share(sum(three for _, _, three in without), trials).percent, 1),
            "loss nominated %": round(Share(len(late), trials).percent, 1),
            "nights late (median)": float(np.median(late)) if late else None,
            "decided %": round(Share(sum(two for _, two, _ in losses), trials).percent, 1),
            "sees (median) %": round(100 * float(np.median([sees for _, _, sees in losses])), 1),
        }


def main() -> None:
    parser = arguments(str(__doc__), trials=60)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", choices=("nominations", "requests"), help="only this part")
    parser.add_argument("--noise", action="append", choices=tuple(NOISES), help="only this noise; may be repeated")
    options = parser.parse_args()
    settings = {"series": options.trials, "seed": options.seed, "loss": _LOSS}
    names = options.noise or list(NOISES)
    with ProcessPoolExecutor(options.jobs) as pool:
        if options.only != "requests":
            report = Report("Trends over nights with memory", settings)
            report.rows += told(nomination_rows(names, options.trials, options.seed, pool), len(names), "noises")
            report.show(as_json=options.json)
        if options.only != "nominations":
            report = Report("Comparisons of sides that ran one after the other", settings)
            kinds = [name for name in names if name.startswith(("AR", "*", "walk", "normal"))] + [
                "a level of 1 % a run"
            ]
            for name in kinds:
                row: dict[str, str | float] = {"runs": name}
                for sides, loss in (((1, 1), 0.0), ((6, 6), 0.0), ((20, 10), 0.0), ((20, 10), 0.1), ((40, 36), 0.2)):
                    count = requests(name, sides, loss, options.trials, options.seed)
                    row[f"{sides[0]} + {sides[1]}, loss {loss:.0%}"] = round(100 * count / options.trials, 1)
                report.rows.append(row)
            report.show(as_json=options.json)


if __name__ == "__main__":
    main()
