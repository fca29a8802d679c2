"""A bisection put together: the question checked, the log opened, builds and boots started, the search run.

Why the culprit costs what it costs: one profiled boot of each side, and what they say.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Self

from fsjoule import lab
from fsjoule.errors import ConfigError, FsjouleError, LabError
from fsjoule.host import interrupts
from fsjoule.kernels.compilation import compiler_version
from fsjoule.kernels.configuration import board_configuration, parse_config
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.kernels.tree import commits as tree
from fsjoule.kernels.tree.builder import Builder, Builds, BuiltCommit, CommitBuilds
from fsjoule.kernels.tree.commits import Conflict
from fsjoule.kernels.tree.frozen import Frozen, aligned, freeze
from fsjoule.kernels.tree.pools import changes_of, pools_of
from fsjoule.kernels.tree.program_builds import ProgramBuilds, program_of
from fsjoule.kernels.tree.repository import Repository, open_repository
from fsjoule.model.bisection import BuiltKernel, NoKernel, WantedKernel
from fsjoule.model.labels import counted
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Order, Series, Where
from fsjoule.ports import KernelBoots, KernelBuilds
from fsjoule.runs.bisect.boots import BoardBoots, SpareBoards
from fsjoule.runs.bisect.pool import Pool, PoolAssignment
from fsjoule.runs.bisect.question import BisectRequest, asked_of, begin, check_environments, choice_of
from fsjoule.runs.bisect.recorded import EarlierRuns
from fsjoule.runs.bisect.search import BisectionSearch
from fsjoule.runs.explain import explain_pair
from fsjoule.runs.request import RunRequest
from fsjoule.statistics.bisection.answer import AnswerKind
from fsjoule.store.bisection import BisectionLog, CommitLine, Profiled, bisection_log
from fsjoule.store.files import check_writable
from fsjoule.store.index.database import Index, open_index
from fsjoule.store.index.states import keep_states
from fsjoule.store.index.trend import trend_reader
from fsjoule.store.reader import load_run
from fsjoule.store.states import ChangeState
from fsjoule.suites import repetition_seed
from fsjoule.verdicts.bisection.answer import pair
from fsjoule.verdicts.bisection.figures import metric_of
from fsjoule.verdicts.bisection.state import BisectionState
from fsjoule.verdicts.explanation.changes import Explanation
from fsjoule.verdicts.trend.history import HistoryPoint
from fsjoule.verdicts.trend.states import state_of
from fsjoule.verdicts.trend.trend import Trend, trend_of

_log: Final = logging.getLogger(__name__)

_SYMBOLS: Final = "CONFIG_KALLSYMS"

# Both boots share their random choices, which no other boot of a bisection has.
_REPETITION = 4_000
_SHORT = 12

# A first build, of a large configuration, on a slow machine.
_BUILD_TIMEOUT_S: Final = 4 * 3600.0


def bisect(request: BisectRequest) -> BisectionState:
    """Find the first bad commit; the state's log has the answer. A log that has begun goes on where it was.

    Raises ConfigError for what cannot be asked, or another question than the log's; KernelBuildError for an end that
    cannot be configured; LabError if the lab or this machine does not do its part.
    """
    check_environments(request)
    repository = open_repository(request.tree, kernel=not request.build)
    line = tree.find_line(repository, request.good, request.bad)
    choice = choice_of(request)
    source = _programs_of(request, choice, repository) if request.build else _kernels_of(request, repository, line)
    asked = asked_of(request, choice, repository, source.config)
    for folder, option in ((request.results, "--results"), (request.state, "--state")):
        check_writable(folder, option)
    with bisection_log(request.state) as log, ExitStack() as closing:
        closing.enter_context(interrupts.handled())
        begin(log, asked, CommitLine(tuple(commit.id for commit in line)))
        builds = closing.enter_context(source.builds())
        _tell_lines(log, builds, line)
        boots = closing.enter_context(_boots(request, choice))
        # Earlier runs are known by their kernels.
        known = None if request.build else request.index
        earlier = EarlierRuns(known, choice.suite.name, choice.filesystems) if known else None
        search = BisectionSearch(
            *(log, builds, boots, request.environment.profile.name, builds, request.scan, earlier),
            ahead=request.boards - 1,
        )
        if request.further:
            search.go_on()
        state = search.run()
        if known:
            _keep_culprit(request, state, repository)
        if request.explained:
            try:
                state = profile_pair(log, builds, boots)
            except FsjouleError as error:  # the answer is there, and stays
                _log.warning("it cannot be explained: %s", error.what)
        return state


@dataclass(frozen=True, slots=True)
class _Source:
    """What commits are built to: `config` is what the question has of it, `builds` makes them, once it is asked."""

    config: tuple[str, ...]
    builds: Callable[[], TreeBuilds]


def _kernels_of(request: BisectRequest, repository: Repository, line: tree.Line) -> _Source:
    """Kernels of one frozen configuration. `builds` raises KernelBuildError for an end that cannot be configured."""
    recipe = request.environment.profile.recipe
    configuration = board_configuration(load_recipe(recipes_folder(), recipe), request.config)

    def builds() -> TreeBuilds:
        compiler = compiler_version()
        ends = [repository.made(commit.id, commit.short) for commit in (line[0], line[-1])]
        with interrupts.interruptible():
            frozen = freeze(ends, configuration, jobs=request.jobs)
        if request.explained:
            _check_symbols(frozen)

        def with_alignment() -> CommitBuilds:
            alignment = aligned(frozen, ends[1], jobs=request.jobs)
            _log.info("functions are aligned by %s", alignment.how)
            return CommitBuilds(repository, alignment.frozen, request.jobs, recipe, compiler)

        plain = CommitBuilds(repository, frozen, request.jobs, recipe, compiler)
        return TreeBuilds(repository, plain, with_alignment)

    return _Source(configuration.fragments, builds)


def _programs_of(request: BisectRequest, choice: RunRequest, repository: Repository) -> _Source:
    """Programs by the user's command. Raises ConfigError for files that the board's card has no place for."""
    if request.explained or request.config:
        option = "--explain" if request.explained else "--config"
        raise ConfigError(
            f"{option}: it is for kernels, and --build builds another program", hint=f"leave {option} out"
        )
    recipe = request.environment.profile.recipe
    program = program_of(request.build, request.loader, request.install, recipe)
    config = (*program.words, f"--kernel {choice.kernels[0]}")
    return _Source(config, lambda: TreeBuilds(repository, ProgramBuilds(repository, program, recipe)))


def _boots(request: BisectRequest, choice: RunRequest) -> SpareBoards | Pool:
    if request.boards > 1:
        folder = request.state / "ahead"
        assigned = PoolAssignment(choice, request.environment, request.metrics, request.select, folder, request.command)
        return Pool(assigned, request.boards, request.results)

    def on(environment: lab.EnvironmentFile) -> BoardBoots:
        cards = request.state / "cards"
        return BoardBoots(choice, environment, request.metrics, request.select, cards, request.command)

    return SpareBoards([partial(on, each) for each in (request.environment, *request.others)])


def _keep_culprit(request: BisectRequest, state: BisectionState, repository: Repository) -> None:
    """The answer is there, and stays, whatever the index says."""
    assert request.index
    changes = 0
    try:
        with open_index(request.index) as index:
            sides = pair(state)
            if sides is not None and state.answered is not None and state.answered.kind is AnswerKind.CULPRIT:
                last = load_run(Path(state.booted[-1].folder))
                series = tuple({Series(each.series, each.simulated).key for each in last.measurements})
                metrics = tuple(dict.fromkeys(map(metric_of, state.asked.figures)))
                changes = keep_culprit(index, state.added(sides[1].commit), repository, series, metrics)
    except FsjouleError as error:
        _log.warning("the index does not know of it: %s", error.what)
    else:
        if changes:
            _log.info("kept in the index: %s of its trends, bisected", counted(changes, "change"))


def _check_symbols(frozen: Frozen) -> None:
    """Raises ConfigError for kernels without symbols: their profiles are addresses without names."""
    if parse_config(frozen.configuration.frozen).get(_SYMBOLS) != "y":
        raise ConfigError(
            f"--explain: these kernels have no symbols ({_SYMBOLS} is not set)",
            hint=f"add --config {_SYMBOLS}=y, or leave --explain out",
        )


def _tell_lines(log: BisectionLog, builds: TreeBuilds, line: tree.Line) -> None:
    """Make the commits of the log's lines known; a new log gets its first line."""
    first = builds.add(line)
    lines = [event for event in log.events if isinstance(event, CommitLine)]
    if not lines:
        log.add(first)
    elif lines[0].commits != first.commits:
        raise ConfigError(
            f"the commits between the ends are other ones than those in {log.folder}",
            hint="the repository's history was rewritten: begin anew with another --state",
        )
    for entered in lines[1:]:
        builds.enter(entered.commits[0], entered.inside)


def profile_pair(log: BisectionLog, builds: KernelBuilds, boots: KernelBoots) -> BisectionState:
    """Boot both sides of the answer's loss with profiles, unless that was done, or there is none.

    Raises LabError if a side cannot be profiled; the answer stays.
    """
    state = BisectionState.of(log.events)
    for kernel in pair(state) or ():
        if any(each.kernel == kernel for each in state.profiled):
            continue
        _log.info("a boot with a profile: %s", kernel.commit[:_SHORT])
        built = builds.take(kernel)
        if isinstance(built, NoKernel):
            raise LabError(f"{kernel.commit[:_SHORT]} has no kernel any more: {built.why}")
        seed = repetition_seed(state.asked.seed, _REPETITION)
        boot = boots.measure(built.folder, seed, profiled=True)
        if boot.unfit is not None:
            raise LabError(f"{kernel.commit[:_SHORT]} did not do its work: {boot.unfit}", transient=True)
        log.add(Profiled(kernel, boot.run_id, str(boot.folder), boot.seconds, seed))
    return BisectionState.of(log.events)


def explain_bisection(state: BisectionState) -> tuple[Explanation, ...]:
    """The answer's loss by function; nothing where no boots were profiled for it.

    Raises ResultError if their run folders are gone.
    """
    folders = {each.kernel: Path(each.folder) for each in state.profiled}
    sides = pair(state) if folders else None
    if sides is None or not folders.keys() >= set(sides):
        return ()
    baseline, candidate = ((state.added(side.commit)[:_SHORT], load_run(folders[side])) for side in sides)
    return explain_pair(baseline, candidate)


@dataclass
class TreeBuilds:
    """Kernels, or other programs, of a repository's commits. `aligned` makes builds with forced alignment of functions.

    Builds of both kinds take turns: they would share the processors. `add` tells the lines whose commits are asked for.
    """

    repository: Repository
    plain: Builds
    aligned: Callable[[], CommitBuilds] | None = None
    _commits: dict[str, tree.Commit] = field(default_factory=dict[str, tree.Commit], init=False)
    _built: dict[str, BuiltCommit] = field(default_factory=dict[str, BuiltCommit], init=False)
    _builders: dict[bool, Builder] = field(default_factory=dict[bool, Builder], init=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def add(self, line: tree.Line, inside: str = "") -> CommitLine:
        """The line as the log has it."""
        self._commits |= {commit.id: commit for commit in line}
        return CommitLine(
            commits=tuple(commit.id for commit in line),
            adds=tuple(commit.adds for commit in line),
            subjects=tuple(commit.subject for commit in line),
            inside=inside,
        )

    def is_merge(self, commit: str) -> bool:
        return self._commits[commit].is_merge

    def enter(self, before: str, merge: str) -> CommitLine:
        """The line inside of a merge. From now on its commits are asked for, and the merge is its last step."""
        return self.add(tree.inside(self.repository, self._commits[before], self._commits[merge]), inside=merge)

    def expect(self, wanted: Sequence[WantedKernel]) -> None:
        for is_aligned in (False, True) if self.aligned else (False,):
            candidates = [self._commit(each) for each in wanted if each.aligned == is_aligned]
            commits = [each for each in candidates if not isinstance(each, Conflict)]
            if commits or is_aligned in self._builders:
                self._builder(aligned=is_aligned).want(commits)

    def built(self, wanted: WantedKernel) -> BuiltKernel | None:
        if wanted.aligned not in self._builders or isinstance(commit := self._commit(wanted), Conflict):
            return None
        outcome = self._builders[wanted.aligned].outcome(commit)
        return _built(outcome) if isinstance(outcome, BuiltCommit) else None

    def take(self, wanted: WantedKernel) -> BuiltKernel | NoKernel:
        commit = self._commit(wanted)
        if isinstance(commit, Conflict):
            return NoKernel(f"git cannot revert {self._commits[wanted.without].short} there: {commit}")
        if wanted.aligned and self.aligned is None:
            return NoKernel("only a kernel's configuration aligns functions")
        builder = self._builder(aligned=wanted.aligned)
        outcome = builder.wait(commit, _BUILD_TIMEOUT_S)
        if not isinstance(outcome, BuiltCommit):
            return NoKernel(outcome.reason)
        if wanted.is_plain:
            self._built[wanted.commit] = outcome
        return _built(outcome)

    def pools(self, commits: Sequence[str]) -> tuple[int, ...]:
        line = [self._commits[each] for each in commits]
        built = {number: self._built[each] for number, each in enumerate(commits) if each in self._built}
        return pools_of(changes_of(self.repository, line), built).numbers

    def _commit(self, wanted: WantedKernel) -> tree.Commit | Conflict:
        commit = self._commits[wanted.commit]
        return tree.without_commit(self.repository, commit, self._commits[wanted.without]) if wanted.without else commit

    def _builder(self, *, aligned: bool) -> Builder:
        if aligned not in self._builders:
            builds = self.aligned() if aligned and self.aligned else self.plain
            self._builders[aligned] = self._open.enter_context(Builder(builds))
        return self._builders[aligned]


def _built(outcome: BuiltCommit) -> BuiltKernel:
    return BuiltKernel(outcome.folder, outcome.image, outcome.seconds)


def keep_culprit(
    index: Index, culprit: str, repository: Repository, series: tuple[str, ...], metrics: tuple[Metric, ...]
) -> int:
    """Keep a culprit for each loss of these series that begins with it; returns how many.

    A loss begins with a commit if its kernel holds the commit, and the kernel before does not.
    """
    count = 0
    for order in Order:
        trend = trend_of(trend_reader(index, Where(series=series), order=order, metrics=metrics))
        states = [
            state_of(change, trend, ChangeState.BISECTED, commit=culprit)
            for change in trend.changes
            if change.worse
            and all(each.state is not ChangeState.BISECTED for each in change.kept)
            and _holds(repository, change.since, trend, culprit) is True
            and _holds(repository, change.last, trend, culprit) is False
        ]
        count += keep_states(index, states)
    return count


def _holds(repository: Repository, point: HistoryPoint, trend: Trend, commit: str) -> bool | None:
    """Whether a point's kernel holds a commit; None if it was not built from this repository."""
    kernel = trend.kernels.get(point.kernel or 0)
    for name in (kernel.version.partition(" ")[0] if kernel else "", trend.runs[point.run].commit):
        if name:
            try:
                return repository.holds(repository.revision(name).commit, commit)
            except ConfigError:
                continue
    return None
