"""A bisection put together: the question checked, the log opened, builds and boots started, the search run.

Why the culprit costs what it costs: one profiled boot of each side, and what they say.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from fsjoule import lab
from fsjoule.errors import ConfigError, FsjouleError, LabError
from fsjoule.host import interrupts
from fsjoule.kernels.compilation import compiler_version
from fsjoule.kernels.configuration import board_configuration, parse_config
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.kernels.tree import commits as tree
from fsjoule.kernels.tree.builder import CommitBuilds
from fsjoule.kernels.tree.frozen import Frozen, aligned, freeze
from fsjoule.kernels.tree.repository import Repository, open_repository
from fsjoule.model.bisection import NoKernel
from fsjoule.model.labels import counted
from fsjoule.ports import KernelBoots, KernelBuilds
from fsjoule.runs.bisect.boots import BoardBoots, Opening, SpareBoards
from fsjoule.runs.bisect.builds import TreeBuilds
from fsjoule.runs.bisect.kept_culprit import keep_answer
from fsjoule.runs.bisect.pool import Pool, PoolAssignment
from fsjoule.runs.bisect.question import BisectRequest, asked_of, begin, check_environments, choice_of
from fsjoule.runs.bisect.recorded import EarlierRuns
from fsjoule.runs.bisect.search import BisectionSearch
from fsjoule.runs.explain import explain_pair
from fsjoule.runs.request import RunRequest
from fsjoule.store.bisection import BisectionLog, CommitLine, Profiled, bisection_log
from fsjoule.store.files import check_writable
from fsjoule.store.index.database import open_index
from fsjoule.store.reader import load_run
from fsjoule.suites import repetition_seed
from fsjoule.verdicts.bisection.answer import pair
from fsjoule.verdicts.bisection.state import BisectionState
from fsjoule.verdicts.explanation.changes import Explanation

_log: Final = logging.getLogger(__name__)

_SYMBOLS: Final = "CONFIG_KALLSYMS"


# Both boots share their random choices, which no other boot of a bisection has.
_REPETITION = 4_000
_SHORT = 12


def bisect(request: BisectRequest) -> BisectionState:
    """Find the first bad commit; the state's log has the answer. A log that has begun goes on where it was.

    Raises ConfigError for what cannot be asked, or another question than the log's; KernelBuildError for an end that
    cannot be configured; LabError if the lab or this machine does not do its part.
    """
    check_environments(request)
    repository = open_repository(request.tree)
    line = tree.find_line(repository, request.good, request.bad)
    choice = choice_of(request)
    recipe = request.environment.profile.recipe
    configuration = board_configuration(load_recipe(recipes_folder(), recipe), request.config)
    asked = asked_of(request, choice, repository, configuration.fragments)
    for folder, option in ((request.results, "--results"), (request.state, "--state")):
        check_writable(folder, option)
    with bisection_log(request.state) as log, ExitStack() as closing:
        closing.enter_context(interrupts.handled())
        begin(log, asked, CommitLine(tuple(commit.id for commit in line)))
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
        builds = closing.enter_context(TreeBuilds(repository, plain, with_alignment))
        _tell_lines(log, builds, line)
        boots = closing.enter_context(_boots(request, choice))
        earlier = EarlierRuns(request.index, choice.suite.name, choice.filesystems) if request.index else None
        search = BisectionSearch(
            *(log, builds, boots, request.environment.profile.name, builds, request.scan, earlier),
            ahead=request.boards - 1,
        )
        if request.further:
            search.go_on()
        state = search.run()
        if request.index:
            _keep_culprit(request, state, repository)
        if request.explained:
            try:
                state = profile_pair(log, builds, boots)
            except FsjouleError as error:  # the answer is there, and stays
                _log.warning("it cannot be explained: %s", error.what)
        return state


def _boots(request: BisectRequest, choice: RunRequest) -> SpareBoards | Pool:
    if request.boards > 1:
        folder = request.state / "ahead"
        assigned = PoolAssignment(choice, request.environment, request.metrics, request.select, folder, request.command)
        return Pool(assigned, request.boards, request.results)
    return SpareBoards(_boards(request, choice))


def _boards(request: BisectRequest, choice: RunRequest) -> list[Opening]:
    def on(environment: lab.EnvironmentFile) -> BoardBoots:
        cards = request.state / "cards"
        return BoardBoots(choice, environment, request.metrics, request.select, cards, request.command)

    return [partial(on, each) for each in (request.environment, *request.others)]


def _keep_culprit(request: BisectRequest, state: BisectionState, repository: Repository) -> None:
    """The answer is there, and stays, whatever the index says."""
    assert request.index
    try:
        with open_index(request.index) as index:
            changes = keep_answer(index, state, repository)
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
