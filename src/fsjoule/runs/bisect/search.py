"""The loop of a bisection: the log says what to boot next; what comes of it goes into the log.

Boards that are free make boots ahead that the search will probably want. A guess costs nothing but a board's time: what
a bisection decides rests on the boots that it asks for, in its order.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final, Protocol

from fsjoule.errors import ConfigError, LabError
from fsjoule.model.bisection import KernelBoot, NoKernel, WantedKernel
from fsjoule.model.labels import counted
from fsjoule.ports import KernelBoots, KernelBuilds, MadeAhead
from fsjoule.report.bisection.words import forecast_line, headline
from fsjoule.runs.bisect.recorded import EarlierRuns
from fsjoule.statistics.bisection.answer import AnswerKind, BisectionAnswer, Measure, Standing
from fsjoule.statistics.bisection.forecast import Forecast
from fsjoule.statistics.bisection.question import ImageVariant, Purpose
from fsjoule.store.bisection import Answered, BisectionLog, Built, CommitLine, MeasuredBoot, Pools, Skipped, Waited
from fsjoule.suites import repetition_seed
from fsjoule.verdicts.bisection.answer import bisected
from fsjoule.verdicts.bisection.state import BisectionState

_log: Final = logging.getLogger(__name__)

# Asked of a culprit, not of a merge that it lies in: kernels with aligned functions take two whole builds.
_OF_CULPRITS: Final = {Purpose.LAYOUT, Purpose.CURE}
# For each further board the kernels of so many guesses are built, and so many more guesses are looked at.
_BUILT_AHEAD: Final = 2
_GUESSES: Final = 8
# A kernel that gives no valid figure so often is not measured again.
_EMPTY_BOOTS: Final = 2


# Random choices of confirming boots are none of those that led to the candidate.
_FRESH: Final = {Purpose.CONFIRMATION: 1_000, Purpose.LAYOUT: 2_000, Purpose.CURE: 3_000, Purpose.SCAN: 5_000}

# So many states that the boots may lead to are looked at: some milliseconds each, more with many seeds.
_STATES: Final = 64

# How much more a boot counts that others wait for.
_SEARCHED: Final = 1.5

Figures = dict[str, float | None]


class Merges(Protocol):
    """The merges among the commits that are known."""

    def is_merge(self, commit: str) -> bool: ...

    def enter(self, before: str, merge: str) -> CommitLine:
        """Make the commits inside of a merge known; `before` is the position before it. Returns their line."""
        ...


@dataclass
class BisectionSearch:
    """A bisection under way.

    `scan` is how many commits between equal ends are looked at, `earlier` the runs that count as evidence, too.
    `ahead` is how many boots may be made that nobody has asked for yet.
    """

    log: BisectionLog
    builds: KernelBuilds
    boots: KernelBoots
    board: str
    merges: Merges
    scan: int = 0
    earlier: EarlierRuns | None = None
    ahead: int = 0
    _predicted: bool = field(default=False, init=False)

    def run(self) -> BisectionState:
        """Measure until there is an answer, which is the log's last event then.

        A log that was interrupted goes on where it was. Raises LabError if the lab or this machine does not do its
        part; the same call goes on then.
        """
        self._scanning(BisectionState.of(self.log.events))
        while (state := BisectionState.of(self.log.events)).answered is None:
            step = state.step()
            if isinstance(step, Measure):
                if not (step.purpose in _OF_CULPRITS and self._entered(state, step.standing)):
                    self._measure(state, step)
            elif not (
                self._scanning(state)
                or self._narrowed(state, step)
                or (step.kind is AnswerKind.CULPRIT and self._entered(state, step.standing))
            ):
                answer = bisected(state, step)
                self.log.add(Answered(_now(), answer.kind, headline(state, answer)))
        return state

    def go_on(self) -> None:
        """After an answer, search where another loss lies.

        Raises ConfigError if there is no answer yet, or nothing that one step leaves unexplained.
        """
        state = BisectionState.of(self.log.events)
        step = state.step()
        second = step.second if state.answered is not None and isinstance(step, BisectionAnswer) else None
        if second is None or second.gain:
            why = "there is no answer yet" if state.answered is None else "one loss explains all boots"
            why = why if second is None else "what lies besides it is a gain"
            raise ConfigError(f"--continue: {why}", hint="fsjoule bisect show tells what was found")
        part = slice(second.parent, second.bad + 1)
        line = state.line
        self.log.add(CommitLine(line.commits[part], line.adds[part], line.subjects[part], line.inside))

    def _scanning(self, state: BisectionState) -> bool:
        """Begin to look between equal ends, if that is wanted and was not done."""
        scan = state.scan_of(self.scan) if self.scan else None
        if scan is None:
            return False
        _log.info("the ends are equal: looking at %s between them", counted(len(scan.positions), "commit"))
        self.log.add(scan)
        return True

    def _narrowed(self, state: BisectionState, answer: BisectionAnswer) -> bool:
        """Go on up to a commit that a scan found to be worse than both ends."""
        if answer.scanned is None or answer.scanned.worse is None:
            return False
        line, part = state.line, slice(answer.scanned.worse + 1)
        worse = state.commit(answer.scanned.worse)
        _log.info("%s is worse than both ends: searching the commits up to it", worse[:12])
        self.log.add(CommitLine(line.commits[part], line.adds[part], line.subjects[part], line.inside, scanned=True))
        return True

    def _entered(self, state: BisectionState, standing: Standing) -> bool:
        """Go on inside of the culprit if it is a merge."""
        if not self._to_enter(state, standing):
            return False
        merge = state.commit(standing.bad)
        inner = self.merges.enter(state.commit(standing.bad - 1), merge)
        _log.info("%s is a merge: searching the %s commits inside of it", merge[:12], len(inner.commits) - 1)
        self.log.add(inner)
        return True

    def _to_enter(self, state: BisectionState, standing: Standing) -> bool:
        """Whether the most probable commit is a merge that was not entered yet."""
        merge = state.commit(standing.bad)
        entered = any(line.inside == merge for line in state.lines)
        return len(standing.members) == 1 and not entered and self.merges.is_merge(merge)

    def _likely(
        self, state: BisectionState, wanted: Sequence[WantedKernel], made_ahead: MadeAhead
    ) -> Iterator[tuple[Path, int]]:
        """The boots that may come next, of kernels that are built. After the `wanted` ones the others get built."""

        def figures(kernel: WantedKernel, seed: int) -> Figures | None:
            built = self.builds.built(kernel)
            boot = None if built is None else made_ahead(built.folder, seed)
            return None if boot is None else boot.figures

        boots = likely_boots(state, self._begins_line, figures)[: _GUESSES * self.ahead]
        builds = {kernel: self.builds.built(kernel) for kernel, _ in boots}
        lacking = [kernel for kernel, built in builds.items() if built is None]
        self.builds.expect(tuple(dict.fromkeys((*wanted, *lacking[: _BUILT_AHEAD * self.ahead]))))
        for kernel, seed in boots:
            if (built := builds[kernel]) is not None:
                yield built.folder, seed

    def _begins_line(self, state: BisectionState, step: Measure) -> bool:
        return step.purpose in _OF_CULPRITS and self._to_enter(state, step.standing)

    def _measure(self, state: BisectionState, step: Measure) -> None:
        kernel = state.wanted(step)
        if step.purpose is Purpose.SEARCH and all(each.purpose is not Purpose.SEARCH for each in state.booted):
            self._predict(state, state.forecast(step.standing))
        self._tell(state, step, kernel)
        wanted = state.ahead(step)
        if step.purpose is Purpose.CONFIRMATION and self._to_enter(state, step.standing):
            # Those that confirm a culprit further are not wanted for a merge.
            wanted = tuple(each for each in wanted if each.is_plain)
        self.builds.expect(wanted)
        if self.ahead:
            self.boots.expect(lambda made_ahead: self._likely(state, wanted, made_ahead))
        boot = self._boot(state, kernel, step.purpose)
        if boot is None or boot.unfit is None:
            return
        # A board that is broken boots no kernel: the commit is at fault only if a good one boots after it.
        good = WantedKernel(state.commit(0))
        if kernel != good:
            _log.info("%s failed: %s; does the good end still boot?", kernel.commit[:12], boot.unfit)
            check = self._boot(BisectionState.of(self.log.events), good, Purpose.REFERENCE)
            if check is None or check.unfit is not None:
                why = check.unfit if check else "not built"
                failure = f"the board does not do its work with the good end either: {why}"
                if not self.boots.give_up(failure):
                    hint = "see to the board, then run the same command again: it goes on where it was"
                    raise LabError(failure, hint=hint)
                return
        elif self.boots.give_up(f"it does not do its work with the good end: {boot.unfit}"):
            return
        self.log.add(Skipped(kernel, "work" if boot.booted else "boot", boot.unfit))

    def _boot(self, state: BisectionState, kernel: WantedKernel, purpose: Purpose) -> KernelBoot | None:
        """Build and boot a kernel; a boot with figures goes into the log. None if there is no such kernel."""
        started = time.monotonic()
        built = self.builds.take(kernel)
        waited_s = time.monotonic() - started
        if state.booted and waited_s > 1:
            self.log.add(Waited(round(waited_s, 1)))
        if isinstance(built, NoKernel):
            _log.info("%s is not built: %s", kernel.commit[:12], built.why)
            self.log.add(Skipped(kernel, "build", built.why))
            return None
        if all(each.kernel != kernel for each in state.built):
            self.log.add(Built(kernel, built.image, built.seconds))
            pools = self.builds.pools(state.line.commits)
            if pools != state.pools:
                self.log.add(Pools(pools))
        seed = seed_of(state, kernel, purpose)
        started_utc = _now()
        boot = self.boots.measure(built.folder, seed)
        if boot.unfit is not None:
            return boot
        _check_given(state, boot)
        number = len(state.booted) + 1
        event = MeasuredBoot(
            number=number,
            kernel=kernel,
            purpose=purpose,
            board=f"{self.board} {boot.board}".rstrip(),
            run_id=boot.run_id,
            folder=str(boot.folder),
            started_utc=started_utc,
            seconds=boot.seconds,
            seed=seed,
            figures=boot.figures,
            steps=boot.steps,
        )
        self.log.add(event)
        self._remember(boot.folder)
        alike = [each for each in (*state.booted, event) if each.kernel == kernel]
        if len(alike) >= _EMPTY_BOOTS and not any(v for each in alike for v in each.figures.values()):
            self.log.add(Skipped(kernel, "work", f"no valid figure in {len(alike)} boots"))
        return boot

    def _remember(self, like: Path) -> None:
        """Take in what earlier runs say of the kernels that have been built. The first own boot tells which series."""
        if self.earlier is None:
            return
        state = BisectionState.of(self.log.events)
        known = {each.image for each in state.recorded}
        for image in dict.fromkeys(each.image for each in state.built if each.kernel.is_plain):
            if image in known:
                continue
            own = {each.run_id for each in state.booted}
            recorded = self.earlier.of(image, like, state.asked.figures, own)
            self.log.add(recorded)
            for reason in recorded.mismatches:
                _log.info("it does not count as evidence: %s", reason)
            if recorded.boots:
                _log.info("recorded before: %s of this kernel", counted(len(recorded.boots), "boot"))

    def _predict(self, state: BisectionState, forecast: Forecast | None) -> None:
        if forecast is not None and not self._predicted:
            self._predicted = True
            _log.info("%s", forecast_line(state, forecast))
            if not forecast.within_budget:
                _log.info("the budget of %s boots may be too small for a loss of that size", state.asked.budget)

    def _tell(self, state: BisectionState, step: Measure, kernel: WantedKernel) -> None:
        standing = step.standing
        number, at = len(state.booted) + 1, f"{step.position} of {len(state.line.commits) - 1}"
        likely = state.commit(standing.bad)[:12]
        _log.info(
            "boot %s of at most %s: %s, %s (%s); no regression %.0f %%, first bad %s %.0f %%",
            number,
            state.asked.budget,
            step.purpose.value,
            kernel.commit[:12],
            at,
            100 * standing.nothing,
            likely,
            100 * standing.probability,
        )


def _check_given(state: BisectionState, boot: KernelBoot) -> None:
    """Raises LabError for figures that the board does not give, or a boot without any: no kernel is at fault then."""
    ever = {name for each in state.booted for name, value in each.figures.items() if value is not None}
    lacking = [name for name in state.asked.figures if name in boot.absent and name not in ever]
    if not lacking and boot.absent.keys() >= set(state.asked.figures):
        lacking = list(state.asked.figures)
    if lacking:
        raise LabError(
            f"the board gives no {', '.join(lacking)}: {boot.absent[lacking[0]]}",
            hint="see to the meter and run the same command again, or ask without it in another --state",
        )


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def seed_of(state: BisectionState, kernel: WantedKernel, purpose: Purpose) -> int:
    """The seed of the kernel's next boot for a purpose."""
    return repetition_seed(state.asked.seed, _FRESH.get(purpose, 0) + state.repetition(kernel, purpose))


def likely_boots(
    state: BisectionState,
    ends: Callable[[BisectionState, Measure], bool],
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
            outcomes = [(share, _usual(at, boot[1], bad=bad)) for bad, share in _outcomes(at, step)]
        else:
            outcomes = [(1.0, figures)]
        board = at.booted[-1].board if at.booted else ""
        for share, shown in outcomes:
            last = MeasuredBoot(len(at.booted) + 1, kernel, step.purpose, board, "", "", "", 0.0, boot[1], shown)
            heapq.heappush(ways, (chance * share, next(number), replace(at, booted=(*at.booted, last))))
    # Equally urgent ones stay in the order in which they would come.
    return sorted(urgency, key=lambda boot: round(-urgency[boot], 6))


def _outcomes(state: BisectionState, step: Measure) -> list[tuple[bool, float]]:
    """Whether the boot shows the loss, and how probable that is."""
    standing, last = step.standing, len(state.line.commits) - 1
    if step.purpose in {Purpose.END, Purpose.REFERENCE}:
        return [(step.position == last, 1.0)]
    if step.purpose is Purpose.SEARCH:
        sure = standing.probability if step.position >= standing.bad else 0.0
        bad = sure + (1 - standing.probability) / 2
        return [(True, bad), (False, 1 - bad)]
    return [(step.position >= standing.bad and step.variant is not ImageVariant.REVERTED, 1.0)]


def _usual(state: BisectionState, seed: int, *, bad: bool) -> Figures:
    """What a boot of the good or bad end has shown, with that seed if there is one."""
    ends = [WantedKernel(commit) for commit in state.line.commits[:: len(state.line.commits) - 1]]
    seen = {each.seed: each.figures for each in state.booted if each.kernel == ends[bad]}
    if seed in seen:
        return seen[seed]
    # Boots of a pair are guessed with one seed, which both ends have.
    others = {each.seed for each in state.booted if each.kernel == ends[not bad]}
    known = [seen[each] for each in sorted(seen.keys() & others or seen)] or [each.figures for each in state.booted]
    return known[seed % len(known)] if known else dict.fromkeys(state.asked.figures, 1.0)
