"""What a gate found, as its reports take it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fsjoule.statistics.gate import State
from fsjoule.statistics.policy import Policy
from fsjoule.verdicts.finding import Finding

Tested = Finding[State]
"""A figure of both sides, with the state of its test."""


class GateVerdict(StrEnum):
    """The gate's answer."""

    REGRESSED = "regressed"
    PASSED = "unchanged or better"
    UNDECIDED = "not decided"
    NO_BASELINE = "no baseline"
    IDENTICAL = "identical"

    @property
    def exit_code(self) -> int:
        """None of them is that of an error."""
        return _EXIT_CODES[self]


_EXIT_CODES: Final = {
    GateVerdict.REGRESSED: 1,
    GateVerdict.PASSED: 0,
    GateVerdict.UNDECIDED: 3,
    GateVerdict.NO_BASELINE: 0,
    GateVerdict.IDENTICAL: 0,
}


@dataclass(frozen=True, slots=True)
class GateSide:
    """One side: what the user called it, and what it was."""

    name: str
    title: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Gated:
    """The answer of a gate and all that it rests on. `ended` says why there were no more pairs.

    `fresh` is whether boots were measured for it; `folder` and `seed` are of that run. `command` repeats it.
    """

    verdict: GateVerdict
    baseline: GateSide
    candidate: GateSide
    policy: Policy
    ended: str
    pairs: int = 0
    findings: tuple[Tested, ...] = ()
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    fresh: bool = False
    folder: str | None = None
    seed: int | None = None
    command: tuple[str, ...] = ()

    @property
    def simulated(self) -> bool:
        return any(one.subject.simulated for one in self.findings)
