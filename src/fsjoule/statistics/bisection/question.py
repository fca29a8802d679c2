"""The question of a bisection, and its evidence so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fsjoule.statistics.evidence import KnownNoise


class Purpose(StrEnum):
    """Why a boot ran.

    `confirmation` boots are the fresh ones of a candidate and its parent, `cure` those of the bad end with and without
    it, `layout` those of both with forced alignment of functions. `scan` boots look between two equal ends. `recorded`
    boots ran before the bisection, for something else.
    """

    END = "end"
    SEARCH = "search"
    REFERENCE = "reference"
    CONFIRMATION = "confirmation"
    LAYOUT = "layout"
    CURE = "cure"
    SCAN = "scan"
    RECORDED = "recorded"


class ImageVariant(StrEnum):
    """Which image of a position a boot ran: as it is, without the candidate, or with forced alignment of functions."""

    PLAIN = "plain"
    REVERTED = "reverted"
    ALIGNED = "aligned"


@dataclass(frozen=True, slots=True)
class BisectionQuestion:
    """A range of positions, from 0, which is good, to `positions` - 1, which is bad, and what is asked of it.

    `effects` has the smallest loss that matters for each metric, a positive difference of logarithms (`smallest_loss`
    of `fsjoule.statistics.gate`). `alpha` bounds the chance of a wrong culprit, `beta` that of overlooking a loss that
    matters; `budget` counts all boots. With `layout` and `cure` a culprit is confirmed in these two ways too. `noise`
    has what earlier boots say about each metric's noise; without it there is none. `seed` orders interleaved boots.
    `seeded`: each seed has a level of its own, and nothing drifts.

    Raises ValueError if there is nothing to ask.
    """

    positions: int
    effects: tuple[float, ...]
    budget: int = 250
    alpha: float = 0.005
    beta: float = 0.01
    layout: bool = False
    cure: bool = False
    noise: tuple[KnownNoise | None, ...] = ()
    seed: int = 1
    seeded: bool = False

    def __post_init__(self) -> None:
        if self.positions < 2:  # noqa: PLR2004 - a good end and a bad one
            raise ValueError(f"a range of {self.positions} positions has no good and no bad end")
        if not self.effects or not all(math.isfinite(effect) and effect > 0 for effect in self.effects):
            raise ValueError(f"effects are positive differences of logarithms, one per metric, not {self.effects}")
        if self.noise and len(self.noise) != len(self.effects):
            raise ValueError(f"{len(self.noise)} noises for {len(self.effects)} metrics")


@dataclass(frozen=True, slots=True)
class BootFigures:
    """One boot: `figures` has the logarithm of each metric, signed so that larger is worse; NaN is absent.

    `number` is its place in time on its board. Boots of another time (recorded runs) belong to a board name of their
    own, because the level may have moved in between; their numbers are negative. So do boots of one seed, if seeds move
    the figures of all positions alike. A reverted boot is one of the bad end
    without that position. `steps` are the shares by which a clock may have rounded each metric; empty without one.
    """

    position: int
    number: int
    figures: tuple[float, ...]
    board: str = ""
    purpose: Purpose = Purpose.SEARCH
    variant: ImageVariant = ImageVariant.PLAIN
    steps: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class BisectionEvidence:
    """All that was seen so far.

    Recorded boots come first. `untestable` positions did not build, boot or mount. `pools` gives positions whose images
    are equal the same key.
    `cure_possible` and `layout_possible` are false if there is no such image (the revert does not apply).
    """

    boots: tuple[BootFigures, ...] = ()
    untestable: frozenset[int] = frozenset()
    pools: Mapping[int, str] = field(default_factory=dict[int, str])
    cure_possible: bool = True
    layout_possible: bool = True
