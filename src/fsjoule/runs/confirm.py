"""Nominated changes, measured again: the kernels before and after boot in turn until a test has decided.

A kernel of the history is found where kernels are kept, or built again. Changes between the same two kernels share
their boots. Each false nomination has its own test's chance of being
confirmed, however many nominations there are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fsjoule import kernels, lab
from fsjoule.bench.scratch import name_of
from fsjoule.errors import ConfigError, FsjouleError, ResultError
from fsjoule.model import BoardProfile, Provision, SeriesKey
from fsjoule.model.kernel import Kernel, is_kernel
from fsjoule.model.labels import counted
from fsjoule.model.series import Series, what_differs
from fsjoule.report.numbers import hidden_text, signed
from fsjoule.report.trend import words
from fsjoule.runs.explain import explain_run
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.pairs import BootPair, Test, drift_notes, measure_pairs
from fsjoule.runs.request import check_boards, check_profiled, choose
from fsjoule.statistics.gate import ErrorRates, SequentialTest, confirming_test, outcome_of
from fsjoule.statistics.outcome import Confirmed
from fsjoule.statistics.policy import Policy
from fsjoule.store.confirmations import Confirmation, ConfirmedPoint, keep
from fsjoule.store.reader import load_run, load_run_file
from fsjoule.store.trend_rows import RunNames
from fsjoule.verdicts.explanation.changes import Explanation
from fsjoule.verdicts.trend.changes import ChangeStatus, LevelChange
from fsjoule.verdicts.trend.history import HistoryPoint
from fsjoule.verdicts.trend.trend import Trend

_log: Final = logging.getLogger(__name__)

# Confirming a smaller change would take more boots than anybody has.
_SMALLEST_EFFECT: Final = 0.001


_HINT: Final = "give the kernel's repository with --tree, or measure both kernels with: fsjoule gate"


@dataclass(frozen=True, slots=True)
class Fresh:
    """The board of fresh boots, the policy that they must meet, and where runs and confirmations go.

    With `explained` these boots keep profiles. `boards` is how many boards in guest time boot at once, None: both of a
    pair.
    """

    environment: lab.EnvironmentFile
    policy: Policy
    results: Path
    confirmations: Path
    tree: Path | None
    command: tuple[str, ...]
    explained: bool = False
    boards: int | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """A run in which changes between two kernels were measured again, and the series of those that it confirmed."""

    folder: Path
    kernels: tuple[str, ...]
    confirmations: tuple[Confirmation, ...]
    confirmed: frozenset[SeriesKey]

    def explained(self) -> tuple[Explanation, ...]:
        """The confirmed changes by function, by the run's own profiles. Raises ResultError without any."""
        baseline, candidate = self.kernels
        loaded = load_run(self.folder)
        return explain_run(loaded, baseline, candidate, series=self.confirmed) if self.confirmed else ()


@dataclass(frozen=True, slots=True)
class _Task:
    """Measurements for all changes between the same two kernels; `before` and `after` are values for --kernel."""

    suite: str
    provision: Provision
    storage: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.suite}, kernels {self.before} and {self.after}"


def confirm_changes(trend: Trend, fresh: Fresh) -> tuple[list[Again], list[str]]:
    """Measure all nominated changes of a trend again; returns what was found, and why some were not measured.

    Each outcome is kept as soon as its boots are done. Raises ConfigError if the environment file is another board's,
    or of a board that cannot be profiled as `fresh` asks.
    """
    nominated = [change for change in trend.changes if change.status is ChangeStatus.NOMINATED]
    check_boards(fresh.boards or 1, fresh.environment)
    if fresh.explained:
        check_profiled(fresh.environment)
    if nominated:
        lab.check_places(fresh.environment)  # before a kernel is built for it
    profile = fresh.environment.profile
    known = Kernels(profile.recipe, fresh.tree)
    tasks: dict[_Task, list[LevelChange]] = {}
    refused: list[str] = []
    for change in nominated:
        try:
            task = _task(change, trend, profile, known)
        except ResultError as error:
            refused.append(f"{words.title(change.history)}, {change.history.metric.value}: {error}")
        else:
            tasks.setdefault(task, []).append(change)
    done: list[Again] = []
    for number, (task, changes) in enumerate(tasks.items(), start=1):
        _log.info(
            "confirming %s of %s, task %s of %s: %s",
            len(changes),
            counted(len(nominated), "change"),
            number,
            len(tasks),
            task,
        )
        done.append(_measured(task, changes, trend, fresh))
    return done, refused


def _task(change: LevelChange, trend: Trend, profile: BoardProfile, kernels: Kernels) -> _Task:
    series = change.history.series
    if (series.series.board, series.simulated) != (profile.name, profile.simulated):
        raise ResultError(
            f"it was measured on board {series.series.board}, the environment file is for {profile.name}",
            hint=f"give the environment file of {series.series.board} with --lg-env",
        )
    if words.same_kernel(change):
        raise ResultError(
            "the kernel is the same before and after: measuring it again shows nothing",
            hint="lab, card and tools may have changed; run.json of both runs names their versions",
        )
    kernel_names: list[str] = []
    for point in (change.before, change.after):
        kernel = trend.kernels.get(point.kernel or 0)
        if kernel is None:
            raise ResultError(f"the kernel of run {trend.runs[point.run].run_id} is unknown")
        kernel_names.append(kernels.find(kernel, trend.runs[point.run]))
    storage = name_of(series.series.storage, profile.storages)
    return _Task(series.series.suite, series.series.provision, storage, *kernel_names)


def _measured(task: _Task, changes: Sequence[LevelChange], trend: Trend, fresh: Fresh) -> Again:
    rates = {(c.history.series, c.history.metric): _rates(c, fresh.policy) for c in changes}
    tests = Tests(changes, rates, guest_time=fresh.environment.profile.guest_time)
    filesystems = dict.fromkeys(change.history.series.series.filesystem for change in changes)
    options = BenchOptions(
        suite=task.suite,
        fs=",".join(filesystems),
        repeat=fresh.policy.budget_pairs,
        provision=task.provision.value,
        storage=task.storage,
        results=fresh.results,
        profile=fresh.explained,
        boards=fresh.boards,
    )
    choice = choose(options, fresh.environment, pair=(task.before, task.after))
    run = measure_pairs(choice, fresh.environment, enough=tests.add, command=fresh.command)
    if tests.stranger is not None:
        raise ConfigError(
            f"this board does not measure the series that changed: {tests.stranger}",
            hint="only boots of the same board, card, filesystem options and workload can confirm a change",
        )
    for note in drift_notes(run.folder):
        _log.warning("%s", note)
    measured, now = load_run_file(run.folder), f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    done: list[Confirmation] = []
    for change in changes:
        key = (change.history.series, change.history.metric)
        confirmation = _told(change, trend, tests.of[key], rates[key], run_id=measured.run_id, made_utc=now)
        keep(fresh.confirmations, confirmation)
        done.append(confirmation)
    confirmed = {
        change.history.series.series
        for change, confirmation in zip(changes, done, strict=True)
        if confirmation.outcome is Confirmed.CONFIRMED
    }
    return Again(run.folder, measured.plan.kernels, tuple(done), frozenset(confirmed))


def _rates(change: LevelChange, policy: Policy) -> ErrorRates:
    """The test's rates; a change smaller than the policy's effect is tested at its own size."""
    nominated = max(_SMALLEST_EFFECT, abs(change.ratio - 1))
    return ErrorRates(
        smallest_effect=min(policy.effect_of(change.history.metric), nominated),
        alpha=policy.alpha,
        beta=policy.beta,
        budget_pairs=policy.budget_pairs,
        least_pairs=policy.least_pairs,
    )


class Tests:
    """The sequential tests of all changes that share their boots; each runs until it has decided."""

    def __init__(self, changes: Iterable[LevelChange], rates: dict[Test, ErrorRates], *, guest_time: bool) -> None:
        by_key = {(change.history.series, change.history.metric): change for change in changes}
        self.of: dict[Test, SequentialTest] = {
            key: confirming_test(change.nomination, rates[key], seeded=guest_time) for key, change in by_key.items()
        }
        self.stranger: str | None = None

    def add(self, pair: BootPair) -> str | None:
        """Take a pair of boots; returns why no more are wanted, or None."""
        measured = {series for series, _ in pair.figures}
        if len(measured) >= pair.series:  # else a boot failed, and its gaps mean nothing
            self.stranger = _stranger({series for series, _ in self.of}, measured) or _untold(self.of, pair)
        if self.stranger is not None:
            return "this board does not measure the series that changed"
        for key, test in self.of.items():
            if test.state.more:
                state = test.add(*pair.figures.get(key, (None, None)), pair.steps.get(key, 0.0))
                seen = "no figures" if state.ratio is None else signed(state.ratio)
                far = max(state.towards_regressed, state.towards_not_regressed)
                _log.info(
                    "  %s, %s: %s, %.0f %% of what a decision takes",
                    key[0].label,
                    key[1].value,
                    seen,
                    100 * min(1.0, far),
                )
        if any(test.state.more for test in self.of.values()):
            return None
        hidden = max((test.state.hidden_by or 0.0 for test in self.of.values()), default=0.0)
        return hidden_text(hidden) if hidden else "decided"


def _stranger(changed: set[Series], measured: set[Series]) -> str | None:
    """How a series that changed differs from all measured ones; None if all changed series were measured."""
    for series in changed - measured:
        if measured:
            closest = min(measured, key=lambda other: len(what_differs(series, other)))
            parts = what_differs(series, closest).items()
            return f"{series.label}: " + "; ".join(f"{name} was {was}, is {is_}" for name, (was, is_) in parts)
    return None


def _untold(tests: Iterable[Test], pair: BootPair) -> str | None:
    """Why this board has no figure for a test; None if it has all. A figure that only one boot lacks is None there."""
    for series, metric in tests:
        if (series, metric) not in pair.figures:
            return f"{series.label}: pairs of boots do not measure its {metric.value}"
    return None


def _told(
    change: LevelChange, trend: Trend, test: SequentialTest, rates: ErrorRates, *, run_id: str, made_utc: str
) -> Confirmation:
    return Confirmation(
        made_utc=made_utc,
        series=change.history.series.key,
        metric=change.history.metric.value,
        before=_side(change.before, trend),
        after=_side(change.after, trend),
        nominated_ratio=change.ratio,
        outcome=outcome_of(test.state),
        ratio=test.state.ratio,
        pairs=test.state.pairs,
        smallest_effect=rates.smallest_effect,
        alpha=rates.alpha,
        beta=rates.beta,
        run_id=run_id,
        hidden_by=test.state.hidden_by,
    )


def _side(point: HistoryPoint, trend: Trend) -> ConfirmedPoint:
    kernel = trend.kernels[point.kernel or 0]
    return ConfirmedPoint(trend.runs[point.run].run_id, point.started_utc, kernel.release, kernel.version)


class Kernels:
    """Finds each kernel once. `tree` is a repository from which built kernels can be built again."""

    def __init__(self, recipe: str, tree: Path | None) -> None:
        self._recipe = recipe
        self._tree = tree
        self._found: dict[Kernel, str] = {}

    def find(self, kernel: Kernel, run: RunNames) -> str:
        """The value for --kernel that gives exactly this kernel. Raises ResultError, which says what was tried."""
        if kernel not in self._found:
            tried: list[str] = []
            for asked in self._candidates(kernel, run, tried):
                try:
                    (taken,) = kernels.take_kernels((asked,), recipe=self._recipe)
                except FsjouleError as error:
                    tried.append(error.what.splitlines()[0])
                    continue
                if is_kernel(kernel, taken.facts):
                    self._found[kernel] = asked
                    break
                tried.append(f"{asked} is {taken.facts.package or taken.facts.release} now")
            else:
                why = "; ".join(dict.fromkeys(tried)) or "its origin is unknown"
                raise ResultError(f"kernel {kernel.label} was not found again: {why}", hint=_HINT)
        return self._found[kernel]

    def _candidates(self, kernel: Kernel, run: RunNames, tried: list[str]) -> Iterator[str]:
        facts = None  # of the run itself, if its folder is on this machine
        try:
            facts = next((each for each in load_run_file(Path(run.path)).kernels if is_kernel(kernel, each)), None)
        except ResultError:
            tried.append(f"its run folder {run.path} is not here")
        if facts is not None:
            yield facts.asked
        yield from (name for name in kernels.kernel_choices(self._recipe) if facts is None)
        describe = facts.git_describe if facts else kernel.version.partition(" ")[0]
        yield from (str(entry.path) for entry, notes in kernels.built_kernels() if notes.git_describe == describe)
        if describe and self._tree is not None:
            try:
                yield str(kernels.build_kernel(self._tree, describe, recipe=self._recipe))
            except FsjouleError as error:
                tried.append(error.what.splitlines()[0])
