"""A gate's result, for reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from fsjoule.model.labels import without_passwords
from fsjoule.statistics.gate import SequentialState
from fsjoule.statistics.policy import Policy
from fsjoule.verdicts.finding import Finding, KernelWarning

Tested = Finding[SequentialState]
"""A figure of both sides with the state of its test."""


class GateVerdict(StrEnum):
    REGRESSED = "regressed"
    PASSED = "unchanged or better"
    UNDECIDED = "not decided"
    NO_BASELINE = "no baseline"
    IDENTICAL = "identical"

    @property
    def exit_code(self) -> int:
        """The command's exit code; no error has the same."""
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
    name: str
    title: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Gated:
    """A gate's answer with its evidence. `ended` says why there were no more pairs.

    `fresh` says whether boots were measured for it; `folder` and `seed` are that run's. `command` repeats it;
    `folders` are those of the runs that it read or measured, by name.
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
    kernel_warnings: tuple[KernelWarning, ...] = ()
    fresh: bool = False
    folder: str | None = None
    seed: int | None = None
    command: tuple[str, ...] = ()
    folders: Mapping[str, Path] = field(default_factory=dict[str, Path])

    def __post_init__(self) -> None:
        object.__setattr__(self, "command", without_passwords(self.command))  # as a run's

    @property
    def simulated(self) -> bool:
        return any(one.subject.simulated for one in self.findings)
