"""The state of a bisection: everything follows from the events of its log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from fsjoule.errors import ResultError
from fsjoule.model.bisection import WantedKernel
from fsjoule.statistics.bisection.answer import AnswerKind, BisectionAnswer, Measure, Standing
from fsjoule.statistics.bisection.forecast import Forecast, forecast
from fsjoule.statistics.bisection.question import (
    BisectionEvidence,
    BisectionQuestion,
    BootFigures,
    ImageVariant,
    Purpose,
)
from fsjoule.statistics.bisection.step import next_scan, next_step, scan_points
from fsjoule.statistics.gate import smallest_loss
from fsjoule.store.bisection import (
    Answered,
    Asked,
    Budget,
    Built,
    CommitLine,
    Event,
    MeasuredBoot,
    Pools,
    Profiled,
    Recorded,
    Scan,
    Skipped,
    Waited,
)
from fsjoule.verdicts.bisection.figures import metric_of, worse
from fsjoule.verdicts.bisection.recorded import recorded_boots

_E = TypeVar("_E")


@dataclass(frozen=True, slots=True)
class BisectionState:
    """The contents of a log. `line` is the last one: the commits that are searched now.

    `purpose` of a boot says in which row of the log it counts: boots of commits that are on the line count whatever
    line they were measured for, because their images are the same.
    """

    asked: Asked
    line: CommitLine
    lines: tuple[CommitLine, ...]
    booted: tuple[MeasuredBoot, ...]
    built: tuple[Built, ...]
    pools: tuple[int, ...]
    skipped: tuple[Skipped, ...]
    waited_s: float
    answered: Answered | None
    profiled: tuple[Profiled, ...] = ()
    scan: Scan | None = None
    recorded: tuple[Recorded, ...] = ()

    @classmethod
    def of(cls, events: Sequence[Event]) -> BisectionState:
        """Raises ResultError for a log that asks nothing yet."""
        asked = next((each for each in events if isinstance(each, Asked)), None)
        lines = _all(events, CommitLine)
        if asked is None or not lines:
            raise ResultError("the bisection has not begun: its log names no commits")
        last = next(each for each in reversed(events) if not isinstance(each, Profiled))
        budgets = [each.boots for each in _all(events, Budget)]
        return cls(
            asked=replace(asked, budget=max(asked.budget, *budgets)) if budgets else asked,
            line=lines[-1],
            lines=lines,
            booted=_all(events, MeasuredBoot),
            built=_all(events, Built),
            pools=() if (pools := _newest(events, Pools)) is None else pools.numbers,
            skipped=_all(events, Skipped),
            waited_s=sum(each.seconds for each in _all(events, Waited)),
            answered=last if isinstance(last, Answered) else None,
            profiled=_all(events, Profiled),
            scan=_newest(events, Scan),
            recorded=_all(events, Recorded),
        )

    def commit(self, position: int) -> str:
        return self.line.commits[position]

    def added(self, commit: str) -> str:
        """The user's commit that a step of a line adds: mostly the same one."""
        return self.told(commit, "adds") or commit

    def told(self, commit: str, what: Literal["adds", "subjects"]) -> str:
        """The newest line's text about the commit; empty if no line has it."""
        for line in reversed(self.lines):
            if commit in line.commits:
                return dict(zip(line.commits, getattr(line, what), strict=False)).get(commit, "")
        return ""

    def question(self) -> BisectionQuestion:
        """The question about the line; its budget is what is left of the whole."""
        asked = self.asked
        effects = tuple(
            smallest_loss(asked.effects[metric], more_is_better=metric.more_is_better)
            for metric in map(metric_of, asked.figures)
        )
        here = sum(boot.purpose is not Purpose.RECORDED for boot in self.evidence().boots)
        return BisectionQuestion(
            positions=len(self.line.commits),
            effects=effects,
            budget=asked.budget - (len(self.booted) - here),
            layout=True,
            cure=True,
            noise=tuple(asked.noise.get(figure) for figure in asked.figures),
            seed=asked.seed,
            seeded=asked.seeded,
        )

    def evidence(self, *, scanned: bool = False) -> BisectionEvidence:
        """The evidence on the line. The boots of a scan, which were chosen to find something, count for it alone."""
        position = {commit: number for number, commit in enumerate(self.line.commits)}
        skipped = {each.kernel for each in self.skipped}
        boots = (self._boot(each) for each in self.booted if each.kernel.commit in position)
        fresh = (boot for boot in boots if boot is not None and (scanned or boot.purpose is not Purpose.SCAN))
        # The recorded boots of kernels on the line, each run with a level of its own.
        images = {
            each.image: position[each.kernel.commit]
            for each in self.built[::-1]
            if each.kernel.is_plain and each.kernel.commit in position
        }
        found = [
            (each, images[kernel.image]) for kernel in self.recorded for each in kernel.boots if kernel.image in images
        ]
        return BisectionEvidence(
            boots=(*recorded_boots(found, self.asked.figures, seeded=self.asked.seeded), *fresh),
            untestable=frozenset(
                position[kernel.commit] for kernel in skipped if kernel.commit in position and kernel.is_plain
            ),
            pools={number: str(pool) for number, pool in enumerate(self.pools)},
            cure_possible=not any(kernel.without for kernel in skipped if kernel.commit in position),
            layout_possible=not any(kernel.aligned for kernel in skipped if kernel.commit in position),
        )

    def step(self) -> Measure | BisectionAnswer:
        """The next boot, or the answer about this line."""
        step = next_step(self.question(), self.evidence())
        if isinstance(step, Measure) or self.scan is None:
            return step
        seen, left = self.evidence(scanned=True), self.asked.budget - len(self.booted)
        scan = next_scan(self.question(), seen, self.scan.positions, step.standing, left)
        return scan if isinstance(scan, Measure) else replace(step, scanned=scan)

    def scan_of(self, count: int) -> Scan | None:
        """The scan between the ends of the line; None unless they are equal, and that was not done."""
        step = self.step()
        if self.scan is not None or not isinstance(step, BisectionAnswer) or not _may_scan(step):
            return None
        return Scan(scan_points(self.question(), self.evidence(), count))

    def forecast(self, standing: Standing | None = None) -> Forecast | None:
        """The forecast of the search, by the noise of earlier boots or of this search's own; None without either."""
        known = [self.asked.noise.get(figure) for figure in self.asked.figures]
        noise = [0.0 if each is None else each.relative_sd for each in known]
        if standing is not None:
            noise = [loss.noise for loss in standing.losses]
        return forecast(self.question(), noise) if any(noise) else None

    def wanted(self, step: Measure) -> WantedKernel:
        """The kernel that a step boots."""
        return self._wanted(step.position, step.variant)

    def ahead(self, step: Measure) -> tuple[WantedKernel, ...]:
        """The kernels that may be wanted next; once a candidate is confirmed, also those of the other confirmations."""
        bad = step.standing.bad
        plain = tuple(self._wanted(position, ImageVariant.PLAIN) for position in step.runners_up)
        if step.purpose is not Purpose.CONFIRMATION:
            return plain
        aligned = (self._wanted(position, ImageVariant.ALIGNED) for position in (step.standing.parent, bad))
        return (*plain, self._wanted(bad, ImageVariant.REVERTED), *aligned)

    def repetition(self, kernel: WantedKernel, purpose: Purpose) -> int:
        """How many boots of the kernel there are already that share their random choices with this one's kind.

        In a scan the two ends count as one, so that each point's seeds are those of an end, too.
        """
        ends = {WantedKernel(self.line.commits[0]), WantedKernel(self.line.commits[-1])}
        alike = ends if self.asked.seeded and purpose is Purpose.SCAN and kernel in ends else {kernel}
        return sum(each.kernel in alike and _kind(each.purpose) == _kind(purpose) for each in self.booted)

    def _wanted(self, position: int, variant: ImageVariant) -> WantedKernel:
        """A reverted position is the bad end without that position's commit."""
        if variant is ImageVariant.REVERTED:
            return WantedKernel(self.line.commits[-1], without=self.commit(position))
        return WantedKernel(self.commit(position), aligned=variant is ImageVariant.ALIGNED)

    def _boot(self, event: MeasuredBoot) -> BootFigures | None:
        """None for a boot without a commit that is not on the line."""
        kernel = event.kernel
        variant = (
            ImageVariant.ALIGNED if kernel.aligned else ImageVariant.REVERTED if kernel.without else ImageVariant.PLAIN
        )
        if kernel.without and kernel.without not in self.line.commits:
            return None
        return BootFigures(
            position=self.line.commits.index(kernel.without or kernel.commit),
            number=event.number,
            figures=tuple(worse(figure, event.figures.get(figure)) for figure in self.asked.figures),
            # What a seed does to a figure it does to all kernels: its boots have a level of their own.
            board=f"seed {event.seed}" if self.asked.seeded else event.board,
            purpose=event.purpose,
            variant=variant,
            steps=tuple(event.steps.get(figure, 0.0) for figure in self.asked.figures),
        )


def _may_scan(answer: BisectionAnswer) -> bool:
    """Whether a loss and its cure may lie between the ends of a range without a regression."""
    return answer.kind is AnswerKind.NO_REGRESSION and answer.layout is None and not answer.swapped


def _kind(purpose: Purpose) -> Purpose:
    """Boots for a search, its ends and its references are of one kind; each way of confirming has its own."""
    return Purpose.SEARCH if purpose in {Purpose.END, Purpose.REFERENCE} else purpose


def _newest(events: Sequence[Event], kind: type[_E]) -> _E | None:
    """The last such event about the last line."""
    for event in reversed(events):
        if isinstance(event, kind):
            return event
        if isinstance(event, CommitLine):
            break
    return None


def _all(events: Iterable[Event], kind: type[_E]) -> tuple[_E, ...]:
    return tuple(each for each in events if isinstance(each, kind))
