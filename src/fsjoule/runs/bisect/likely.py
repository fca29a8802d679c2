"""Which boots a bisection will probably want next, so that boards that are free can make them ahead.

A guess costs nothing but a board's time: what a bisection decides rests on the boots that it asks for, in its order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Final

from fsjoule.model.bisection import WantedKernel
from fsjoule.statistics.bisection.answer import Measure
from fsjoule.statistics.bisection.question import Purpose, Variant
from fsjoule.store.bisection import Booted
from fsjoule.suites import repetition_seed
from fsjoule.verdicts.bisection.state import State

# Random choices of confirming boots are none of those that led to the candidate.
_FRESH: Final = {Purpose.CONFIRMATION: 1_000, Purpose.LAYOUT: 2_000, Purpose.CURE: 3_000, Purpose.SCAN: 5_000}

# So many states that the boots may lead to are looked at: some milliseconds each.
_STATES: Final = 64

# How much more a boot counts that others wait for.
_SEARCHED: Final = 1.5

Figures = dict[str, float | None]


def seed_of(state: State, kernel: WantedKernel, purpose: Purpose) -> int:
    """The seed of the kernel's next boot for a purpose."""
    return repetition_seed(state.asked.seed, _FRESH.get(purpose, 0) + state.repetition(kernel, purpose))


def likely_boots(
    state: State,
    ends: Callable[[State, Measure], bool],
    made_ahead: Callable[[WantedKernel, int], Figures | None],
) -> list[tuple[WantedKernel, int]]:
    """The next boots with their seeds, the most urgent first; none of those whose figures `made_ahead` has.

    The more probable a boot, the more urgent. A later boot may come after several outcomes, as those of a neighbour of
    all candidates do: its probability is the sum. A boot of the search counts more, since others wait for what it
    shows; those that come in any case can be made beside the ones that it leads to. `ends` tells steps with which
    another line begins; nothing is guessed from there on.
    """
    number = count()
    ways = [(-1.0, next(number), state)]
    urgency: dict[tuple[WantedKernel, int], float] = {}
    for _ in range(_STATES):
        if not ways:
            break
        chance, _, at = heapq.heappop(ways)
        step = at.step()
        if not isinstance(step, Measure) or ends(at, step):
            continue
        kernel = at.wanted(step)
        boot = kernel, seed_of(at, kernel, step.purpose)
        figures = made_ahead(*boot)
        if figures is None:
            urgency[boot] = urgency.get(boot, 0.0) - chance * (_SEARCHED if step.purpose is Purpose.SEARCH else 1.0)
            outcomes = [(share, _usual(at, bad=bad)) for bad, share in _outcomes(at, step)]
        else:
            outcomes = [(1.0, figures)]
        for share, shown in outcomes:
            booted = replace(at, booted=(*at.booted, _booted(at, step, *boot, shown)))
            heapq.heappush(ways, (chance * share, next(number), booted))
    # Equally urgent ones stay in the order in which they would come.
    return sorted(urgency, key=lambda boot: round(-urgency[boot], 6))


def _outcomes(state: State, step: Measure) -> list[tuple[bool, float]]:
    """Whether the boot shows the loss, and how probable that is."""
    standing, last = step.standing, len(state.line.commits) - 1
    if step.purpose in {Purpose.END, Purpose.REFERENCE}:
        return [(step.position == last, 1.0)]
    if step.purpose is Purpose.SEARCH:
        sure = standing.probability if step.position >= standing.bad else 0.0
        bad = sure + (1 - standing.probability) / 2
        return [(True, bad), (False, 1 - bad)]
    return [(step.position >= standing.bad and step.variant is not Variant.REVERTED, 1.0)]


def _usual(state: State, *, bad: bool) -> Figures:
    """What a boot of the good or bad end has shown."""
    end = WantedKernel(state.line.commits[-1 if bad else 0])
    seen = [each.figures for each in state.booted if each.kernel == end] or [each.figures for each in state.booted]
    return seen[len(state.booted) % len(seen)] if seen else dict.fromkeys(state.asked.figures, 1.0)


def _booted(state: State, step: Measure, kernel: WantedKernel, seed: int, figures: Figures) -> Booted:
    board = state.booted[-1].board if state.booted else ""
    return Booted(len(state.booted) + 1, kernel, step.purpose, board, "", "", "", 0.0, seed, figures)
