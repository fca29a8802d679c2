"""How many repetitions a run has: boots go on until each statement about its filesystems is decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fsjoule.model import FioWorkload, Measurement, Plan, TimedWorkload
from fsjoule.model.labels import counted
from fsjoule.report.answer import first_decided, progress_text
from fsjoule.statistics.superiority import Rule
from fsjoule.suites import Suite
from fsjoule.verdicts.filesystems import contests, rule_of


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
