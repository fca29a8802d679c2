"""How many repetitions a run has, and what they cost by the board's earlier runs.

Boots go on until each statement about its filesystems is decided.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from fsjoule.errors import ResultError
from fsjoule.host.inside import list_inside
from fsjoule.model import BoardProfile, FioWorkload, Measurement, Plan, TimedWorkload
from fsjoule.model.labels import counted
from fsjoule.report.answer import first_decided, progress_text
from fsjoule.statistics.superiority import Rule
from fsjoule.store.reader import LoadedRun, load_run, load_run_file
from fsjoule.suites import Rates, Suite, learned
from fsjoule.verdicts.filesystems import contests, rule_of

# A board's newest runs predict it best.
_RUNS_LOOKED_AT: Final = 20
# Of an emulated board whose clock counts instructions, on an idle computer.
_AROUND_IN_GUEST_TIME_S: Final = 12.0


def least_boots(suite: Suite, rule: Rule) -> int:
    """The repetitions before anything is decided. What a suite counts (files lost) needs as many as the suite says."""
    judged = all(isinstance(each, FioWorkload | TimedWorkload) for part in suite.leaves for each in part.workloads)
    return rule.least_boots if judged else suite.repeat


@dataclass
class Repetition:
    """The repetitions of one run. `plan` has as many as there may be, `least` are measured whatever they show.

    `step` repetitions are added at once, one for each board. `until` is the last one to be measured, so far.
    """

    plan: Plan
    rule: Rule
    least: int
    step: int = 1
    until: int = 0
    _told: bool = False

    @classmethod
    def of(
        cls, plan: Plan, suite: Suite, *, guest_time: bool, boards: int, measured: Sequence[Measurement]
    ) -> Repetition:
        """The repetitions of a plan, of which some may be `measured`. Those that have begun are completed first."""
        rule = rule_of(guest_time=guest_time)
        least = min(least_boots(suite, rule), plan.repeat)
        begun = max((each.repetition for each in measured), default=0)
        return cls(plan, rule, least, boards, until=max(least, begun))

    def intent(self) -> str:
        """What will be measured, for the user: before it begins."""
        return (
            f"{self.least} to {counted(self.plan.repeat, 'boot')} of each: they go on until each figure of two "
            f"filesystems is decided, or equal within {100 * self.rule.equal_within:g} %"
        )

    def go_on(self, measured: Sequence[Measurement]) -> str:
        """Judge what is measured, after the last repetition so far, and add repetitions if something is open.

        Returns a line for the user; empty if there is nothing to judge.
        """
        found = contests(measured, self.rule)
        if not found:
            return ""
        text = progress_text(found, self.until)
        if all(each.decided for each in found):
            return text
        if self.until >= self.plan.repeat:
            return f"{text}; more boots are not measured (--repeat N measures N)"
        first = self.until + 1
        self.until = min(self.until + self.step, self.plan.repeat)
        which = f"boot {first} follows" if first == self.until else f"boots {first} to {self.until} follow"
        return f"{text} so far; {which}, of at most {self.plan.repeat}"

    def news(self, measured: Sequence[Measurement]) -> str:
        """The first statement that is decided, as soon as it is; else empty. It may still change: so far."""
        if self._told or max((each.repetition for each in measured), default=0) < self.rule.least_boots:
            return ""
        text = first_decided(contests(measured, self.rule))
        self._told = bool(text)
        return f"so far: {text}" if text else ""

    def ended(self) -> Plan:
        """The plan as it was measured."""
        entries = tuple(each for each in self.plan.entries if each.repetition <= self.until)
        return replace(self.plan, repeat=self.until, entries=entries)


def earlier_runs(results: Path, profile: BoardProfile) -> Generator[LoadedRun]:
    """The runs of this board below `results`, the newest first, read one by one; damaged ones are left out."""
    try:
        names = list_inside(results).folders
    except ResultError:
        return
    for name in sorted(names, reverse=True):
        if f"-{profile.name}-" not in name:
            continue
        try:
            run = load_run_file(results / name)
            # A folder name of the board `virtual-x86` contains `virtual` too.
            if {board.name for board in run.boards.values()} == {profile.name}:
                yield load_run(results / name)
        except ResultError:
            continue


def earlier_rates(results: Path, profile: BoardProfile) -> Rates:
    """The rates learned from the newest runs of this board below `results`; a guess if there are none."""
    runs = islice(earlier_runs(results, profile), _RUNS_LOOKED_AT)
    found = learned((each.run, each.measurements) for each in runs)
    guest_time = profile.guest_time and not found.runs
    return replace(found, around_s=_AROUND_IN_GUEST_TIME_S) if guest_time else found
