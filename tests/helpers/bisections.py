"""Bisections over fakes of builds and boots: a line of commits, and a board on which one of them costs something."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fsjoule.host.messages import lines_to
from fsjoule.model.metrics import Metric
from fsjoule.ports import KernelBoots
from fsjoule.runs.bisect.bisection import profile_pair
from fsjoule.runs.bisect.recorded import EarlierRuns
from fsjoule.runs.bisect.search import BisectionSearch
from fsjoule.statistics.bisection.answer import BisectionAnswer
from fsjoule.store.bisection import Asked, CommitLine, bisection_log
from fsjoule.testing import FakeKernelBoots, FakeKernelBuilds
from fsjoule.verdicts.bisection.answer import Bisected, bisected
from fsjoule.verdicts.bisection.state import BisectionState

COMMITS = tuple(f"{number:012x}" for number in range(64))
SUBJECTS = tuple(f"commit number {number}" for number in range(len(COMMITS)))
_THROUGHPUT, _CPU = "ext4-randread-16k throughput", "ext4-randread-16k cpu"
_NOISE = 0.004


def figures(loss_from: str | None, loss: float = 0.05) -> Callable[[str, int], dict[str, float | None]]:
    """A board on which all kernels from one commit on are slower, unless that commit is left out of them."""

    def on_board(kernel: str, seed: int) -> dict[str, float | None]:
        commit, *variant = kernel.split("-")
        worse = loss_from is not None and commit >= loss_from and loss_from not in variant
        noise = np.random.default_rng([seed, int(commit, 16), len(variant)]).normal(0, _NOISE, 2)
        factor = 1 - loss if worse else 1.0
        return {_THROUGHPUT: 80 * factor * math.exp(noise[0]), _CPU: 0.012 / factor * math.exp(noise[1])}

    return on_board


@dataclass
class Bisection:
    folder: Path
    boots: FakeKernelBoots
    builds: FakeKernelBuilds = field(default_factory=FakeKernelBuilds)
    inside: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    said: list[str] = field(default_factory=list[str])
    budget: int = 120
    scan: int = 0
    earlier: EarlierRuns | None = None
    boards: KernelBoots | None = None
    ahead: int = 0

    def run(self) -> BisectionState:
        with bisection_log(self.folder) as log, lines_to(self.said.append):
            if not log.events:
                log.add(asked(self.budget))
            if not any(isinstance(each, CommitLine) for each in log.events):
                log.add(CommitLine(COMMITS, subjects=SUBJECTS))
            return BisectionSearch(
                log, self.builds, self.boards or self.boots, "virtual", self, self.scan, self.earlier, ahead=self.ahead
            ).run()

    def explain(self) -> BisectionState:
        with bisection_log(self.folder) as log, lines_to(self.said.append):
            return profile_pair(log, self.builds, self.boots)

    def is_merge(self, commit: str) -> bool:
        return commit in self.inside

    def enter(self, before: str, merge: str) -> CommitLine:
        """As with a tree, it is then the last step of the line inside of it."""
        assert before < merge
        return CommitLine(self.inside.pop(merge), inside=merge)

    def answer(self) -> Bisected:
        state = self.run()
        step = state.step()
        assert isinstance(step, BisectionAnswer)
        return bisected(state, step)


def asked(budget: int) -> Asked:
    """A question about all commits."""
    return Asked(
        made_utc="2026-11-22T12:00:00Z",
        repository="0123",
        good=(COMMITS[0],),
        bad=(COMMITS[-1],),
        board="deterministic",
        suite="quick",
        filesystems=("ext4",),
        provision="scratch",
        storages=None,
        select="randread",
        figures=(_THROUGHPUT, _CPU),
        effects={Metric.THROUGHPUT: 0.03, Metric.CPU: 0.03},
        budget=budget,
        seed=7,
        simulated=True,
    )
