#!/usr/bin/env python3
"""How often a run falsely calls a filesystem better or equal, and how many boots the rule takes, by noise and effect.

A run has `statements` = figures x pairs of filesystems. After each boot, from the rule's least to its most, all are
judged together; the run ends once all are decided. `false` and `equal` are the shares of runs with any statement that
is so; equal is false from a difference of 5 % on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt
from output import Cell, Report, Share, arguments, told

from fsjoule.statistics.superiority import GUEST_TIME, KERNELS, REAL_TIME, SuperiorityRule, e_bh, evidence

Floats = npt.NDArray[np.float64]
Shape = tuple[int, int, int, int]
Noise = Callable[[np.random.Generator, Shape], Floats]
"""Logarithms without any difference between filesystems; shape (runs, figures, filesystems, boots)."""

# Figures and filesystems: 14, 28 and 60 statements.
SIZES: Final = ((14, 2), (28, 2), (10, 4))
EFFECTS: Final = (0.03, 0.1, 0.3, 1.0)
SPREADS: Final = (0.001, 0.02, 0.15)


def normal(sd: float) -> Noise:
    return lambda rng, shape: rng.normal(0, sd, shape)


def student(degrees: int) -> Noise:
    return lambda rng, shape: 0.02 * rng.standard_t(degrees, shape)


def two_levels(share: float) -> Noise:
    """Each boot of each series is on one of two levels, 30 % apart."""
    return lambda rng, shape: rng.normal(0, 0.005, shape) + 0.3 * (rng.random(shape) < share)


def level_of_a_boot(rng: np.random.Generator, shape: Shape) -> Floats:
    return rng.normal(0, 0.02, shape) + rng.normal(0, 0.1, (shape[0], 1, 1, shape[3]))


def busy_boots(rng: np.random.Generator, shape: Shape) -> Floats:
    busy = rng.random((shape[0], 1, 1, shape[3])) < 0.2
    return rng.normal(0, 1, shape) * np.where(busy, 0.15, 0.02)


def slow_first_boot(rng: np.random.Generator, shape: Shape) -> Floats:
    found = rng.normal(0, 0.02, shape)
    found[..., 0] -= rng.exponential(0.1, shape[:3])
    return found


def phases(rng: np.random.Generator, shape: Shape) -> Floats:
    """Boots of two kinds, each of which moves each series its own way."""
    kind = rng.integers(0, 2, (shape[0], 1, 1, shape[3])) * 2 - 1
    return rng.normal(0, 0.01, shape) + kind * rng.normal(0, 0.05, (*shape[:3], 1))


def uneven_figures(rng: np.random.Generator, shape: Shape) -> Floats:
    return rng.normal(0, 1, shape) * np.exp(rng.uniform(math.log(0.003), math.log(0.1), (*shape[:2], 1, 1)))


def uneven_filesystems(rng: np.random.Generator, shape: Shape) -> Floats:
    spreads = np.where(np.arange(shape[2]) == 0, 0.08, 0.01)
    return rng.normal(0, 1, shape) * spreads[:, None]


def stalls(rng: np.random.Generator, shape: Shape) -> Floats:
    stalled = rng.random(shape) < 0.05
    return rng.normal(0, 0.01, shape) + np.where(stalled, np.log1p(-rng.uniform(0.05, 0.5, shape)), 0)


def ticks(rng: np.random.Generator, shape: Shape) -> Floats:
    """Times of 0.1 to 1 s, known to 10 ms."""
    seconds = rng.uniform(0.1, 1, (*shape[:2], 1, 1)) * np.exp(rng.normal(0, 0.01, shape))
    return np.log(np.maximum(np.round(seconds, 2), 0.01))


def guest_time(rng: np.random.Generator, shape: Shape) -> Floats:
    """Most figures do not move; some boots jump by 2 %, and one figure in ten spreads by 3 %."""
    jumps = np.where(rng.random(shape) < 0.05, 0.02 * rng.choice([-1, 1], shape), 0)
    spreads = np.where(rng.random((*shape[:2], 1, 1)) < 0.1, 0.03, 0.0002)
    return jumps + rng.normal(0, 1, shape) * spreads


def one_with_two_levels(calm: float) -> Noise:
    """One figure of one filesystem is, in each boot, 15 % above or below the other filesystem's; all else is calm."""

    def made(rng: np.random.Generator, shape: Shape) -> Floats:
        found = rng.normal(0, calm, shape)
        found[:, 0, 0] += 0.15 * rng.choice([-1, 1], (shape[0], shape[3]))
        return found

    return made


def some_with_two_levels(calm: float) -> Noise:
    """One series in ten."""

    def made(rng: np.random.Generator, shape: Shape) -> Floats:
        has = rng.random((*shape[:3], 1)) < 0.1
        return rng.normal(0, calm, shape) + has * 0.15 * rng.choice([-1, 1], shape)

    return made


def skewed(rng: np.random.Generator, shape: Shape) -> Floats:
    """A boot is never faster than its best, and often slower: exponential."""
    return -rng.exponential(0.03, shape)


def warming_up(rng: np.random.Generator, shape: Shape) -> Floats:
    """What comes later in a boot is slower; each boot has its own order of figures and filesystems."""
    places = rng.permuted(np.arange(shape[1] * shape[2]), axis=None) + np.zeros((shape[0] * shape[3], 1))
    order = rng.permuted(places, axis=1).reshape(shape[0], shape[3], shape[1], shape[2])
    return rng.normal(0, 0.005, shape) - 0.1 * np.moveaxis(order, 1, -1) / (shape[1] * shape[2])


def energy_as_speed(rng: np.random.Generator, shape: Shape) -> Floats:
    """Every second figure repeats the one before it: energy that follows from time."""
    found = rng.normal(0, 0.03, shape)
    found[:, 1::2] = found[:, : shape[1] // 2 * 2 : 2] + rng.normal(0, 0.002, found[:, 1::2].shape)
    return found


def memory(rng: np.random.Generator, shape: Shape) -> Floats:
    """Each series remembers 60 % of its last boot: the state of its card, say."""
    found = rng.normal(0, 0.02, shape)
    for boot in range(1, shape[3]):
        found[..., boot] = 0.6 * found[..., boot - 1] + 0.8 * found[..., boot]
    return found


def in_time(rng: np.random.Generator, shape: Shape) -> npt.NDArray[np.int64]:
    """When each boot of two kernels runs: neighbours in random order; shape (runs, 1, 2, boots)."""
    second = rng.integers(0, 2, (shape[0], 1, 1, shape[3]))
    return 2 * np.arange(shape[3]) + np.concatenate([second, 1 - second], axis=2)


def kernels(level: float, *, memory: float = 0.0, drift: float = 0.0, walk: float = 0.0, noise: float = 0.003) -> Noise:
    """Two kernels, so each boot has its own level, which all its figures share; levels may remember the last boot's."""

    def made(rng: np.random.Generator, shape: Shape) -> Floats:
        steps = rng.normal(0, 1, (shape[0], 1, 1, 2 * shape[3]))
        levels = steps.copy()
        for boot in range(1, levels.shape[-1]):
            levels[..., boot] = memory * levels[..., boot - 1] + math.sqrt(1 - memory**2) * steps[..., boot]
        levels = level * levels + walk * np.cumsum(rng.normal(0, 1, levels.shape), axis=-1)
        levels -= drift * np.arange(levels.shape[-1])
        at = in_time(rng, shape)
        shared = np.take_along_axis(np.broadcast_to(levels, (*at.shape[:3], levels.shape[-1])), at, axis=-1)
        return shared + rng.normal(0, noise, shape)

    return made


BETWEEN_KERNELS: Final[dict[str, Noise]] = {
    "kernels: boots' levels of 1 %": kernels(0.01),
    "kernels: boots' levels of 3 %": kernels(0.03),
    "kernels: levels of 2 %, noise of 2 %": kernels(0.02, noise=0.02),
    "kernels: memory of 0.6": kernels(0.02, memory=0.6),
    "kernels: memory of 0.9": kernels(0.02, memory=0.9),
    "kernels: drift of 0.3 % a boot": kernels(0.01, drift=0.003),
    "kernels: walk of 1 % a boot": kernels(0.003, walk=0.01),
}
NOISES: Final[dict[str, Noise]] = {
    "normal, 2 %": normal(0.02),
    "normal, 15 %": normal(0.15),
    "t with 3 degrees": student(3),
    "t with 2 degrees": student(2),
    "two levels, even": two_levels(0.5),
    "two levels, 30 % of boots": two_levels(0.3),
    "a boot's common level": level_of_a_boot,
    "busy boots": busy_boots,
    "a slow first boot": slow_first_boot,
    "phases": phases,
    "uneven figures": uneven_figures,
    "uneven filesystems": uneven_filesystems,
    "stalls of 5 %": stalls,
    "ticks of 10 ms": ticks,
    "guest time": guest_time,
    "one figure with two levels, else 2 %": one_with_two_levels(0.02),
    "one figure with two levels, else 1 %": one_with_two_levels(0.01),
    "one figure with two levels, else 0.3 %": one_with_two_levels(0.003),
    "one series in ten with two levels, else 2 %": some_with_two_levels(0.02),
    "one series in ten with two levels, else 1 %": some_with_two_levels(0.01),
    "skewed": skewed,
    "warming up within a boot": warming_up,
    "energy follows speed": energy_as_speed,
    "memory of 0.6": memory,
}


@dataclass(frozen=True, slots=True)
class Judged:
    """Each run at its end: `boots`, shape (runs,), and each statement, shape (runs, statements)."""

    boots: npt.NDArray[np.int64]
    better: npt.NDArray[np.bool_]
    worse: npt.NDArray[np.bool_]
    equal: npt.NDArray[np.bool_]

    @property
    def named(self) -> npt.NDArray[np.bool_]:
        return self.better | self.worse


def judge(logarithms: Floats, rule: SuperiorityRule) -> Judged:
    """Follow each run until all of its statements are decided, as `superiority.statements` does."""
    pairs = np.array(list(combinations(range(logarithms.shape[2]), 2)))
    differences = logarithms[:, :, pairs[:, 0]] - logarithms[:, :, pairs[:, 1]]
    runs, statements = len(differences), differences.shape[1] * differences.shape[2]
    boots = np.full(runs, rule.most_boots)
    better, worse, equal = (np.zeros((runs, statements), dtype=np.bool_) for _ in range(3))
    left = np.arange(runs)
    for n in range(rule.least_boots, rule.most_boots + 1):
        so_far = differences[left, ..., :n].reshape(len(left), statements, n)
        noise = np.maximum(np.sqrt(so_far.var(axis=-1, ddof=1).mean(axis=-1) / 2), rule.least_noise)[:, None]
        mean = so_far.mean(axis=-1)
        squares = np.square(so_far - mean[..., None]).sum(axis=-1)
        up, down, same = evidence(np.full_like(mean, n), mean, squares, noise, rule)
        both = np.concatenate([up, down], axis=1)
        rejected = np.array([e_bh(each, rule.false_discoveries) for each in both])
        # Of a statement that both sides reject, nothing is said.
        better[left] = rejected[:, :statements] & ~rejected[:, statements:]
        worse[left] = rejected[:, statements:] & ~rejected[:, :statements]
        equal[left] = ~better[left] & ~worse[left] & (same >= math.log(rule.equal_evidence))
        done = (better[left] | worse[left] | equal[left]).all(axis=1)
        boots[left[done]] = n
        left = left[~done]
        if not len(left):
            break
    return Judged(boots, better, worse, equal)


@dataclass(frozen=True, slots=True)
class Case:
    """`effect` is how much larger all figures of the first filesystem are, as a fraction."""

    noise: str
    figures: int
    filesystems: int
    effect: float = 0.0

    @property
    def rule(self) -> SuperiorityRule:
        if self.noise in BETWEEN_KERNELS:
            return KERNELS
        return GUEST_TIME if self.noise == "guest time" else REAL_TIME

    def row(self, trials: int, seed: int) -> dict[str, Cell]:
        shape = (trials, self.figures, self.filesystems, self.rule.most_boots)
        make = {**NOISES, **BETWEEN_KERNELS}.get(self.noise) or normal(float(self.noise.split()[0]) / 100)
        logarithms = make(np.random.default_rng(seed), shape)
        logarithms[:, :, 0] += math.log1p(self.effect)
        found = judge(logarithms, self.rule)
        false = found.worse if self.effect else found.named
        decided = (found.named | found.equal).all(axis=1)
        row: dict[str, Cell] = {
            "noise": self.noise,
            "statements": self.figures * math.comb(self.filesystems, 2),
            "larger by %": round(100 * self.effect, 1),
            **Share(int(false.any(axis=1).sum()), trials).cells("false"),
        }
        if math.log1p(self.effect) > self.rule.equal_within:
            row |= Share(int(found.equal.any(axis=1).sum()), trials).cells("equal")
        row["boots"] = round(float(found.boots.mean()), 1)
        return row | {f"by {n} %": round(100 * float((decided & (found.boots <= n)).mean()), 1) for n in (3, 5, 8, 12)}


def cases() -> list[Case]:
    spreads = [f"{100 * spread:g} %" for spread in SPREADS]
    return [
        *(Case(noise, *size) for noise in NOISES for size in SIZES),
        *(Case(noise, *size) for noise in BETWEEN_KERNELS for size in SIZES[:2]),
        *(Case(noise, 28, 2, 0.0) for noise in spreads),
        *(Case(noise, 28, 2, effect) for noise in [*spreads, "guest time"] for effect in EFFECTS),
        *(Case(noise, 28, 2, 0.0527) for noise in [*spreads, "t with 3 degrees", "stalls of 5 %", "guest time"]),
        *(Case(noise, 28, 2, 0.0527) for noise in BETWEEN_KERNELS),
    ]


def rows(chosen: Sequence[Case], trials: int, seed: int, jobs: int) -> list[dict[str, Cell]]:
    make = partial(Case.row, trials=trials, seed=seed)
    if jobs == 1:
        return [make(case) for case in told(chosen, len(chosen), "superiority")]
    with ProcessPoolExecutor(jobs) as pool:
        return list(told(pool.map(make, chosen), len(chosen), "superiority"))


def main() -> None:
    parser = arguments(str(__doc__), trials=1000)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    settings: dict[str, Cell] = {"runs": options.trials, "seed": options.seed}
    report = Report("Which filesystem is better: false runs, and boots until decided", settings)
    report.rows += rows(cases(), options.trials, options.seed, options.jobs)
    report.show(as_json=options.json)


if __name__ == "__main__":
    main()
