"""A bisection put together: the question checked, the log opened, builds and boots started, the search run."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Final

from fsjoule import lab
from fsjoule.errors import ConfigError, FsjouleError
from fsjoule.host import interrupts
from fsjoule.kernels.compilation import compiler_version
from fsjoule.kernels.configuration import board_configuration, parse_config
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.kernels.tree import commits as tree
from fsjoule.kernels.tree.builder import CommitBuilds
from fsjoule.kernels.tree.frozen import Frozen, aligned, freeze
from fsjoule.kernels.tree.repository import Repository, open_repository
from fsjoule.model.labels import counted
from fsjoule.runs.bisect.boards import Boards, Opening
from fsjoule.runs.bisect.boots import BoardBoots
from fsjoule.runs.bisect.builds import TreeBuilds
from fsjoule.runs.bisect.explanation import profile_pair
from fsjoule.runs.bisect.kept_culprit import keep_answer
from fsjoule.runs.bisect.pool import Assignment, Pool
from fsjoule.runs.bisect.question import Request, asked_of, begin, check_environments, choice_of
from fsjoule.runs.bisect.recorded import EarlierRuns
from fsjoule.runs.bisect.search import Search
from fsjoule.runs.request import Choice
from fsjoule.store.bisection import BisectionLog, Line, bisection_log
from fsjoule.store.files import check_writable
from fsjoule.store.index.database import open_index
from fsjoule.verdicts.bisection.state import State

_SYMBOLS: Final = "CONFIG_KALLSYMS"


def bisect(request: Request) -> State:
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
        begin(log, asked, Line(tuple(commit.id for commit in line)), request.say)
        compiler = compiler_version()
        ends = [repository.made(commit.id, commit.short) for commit in (line[0], line[-1])]
        with interrupts.interruptible():
            frozen = freeze(ends, configuration, progress=request.say, jobs=request.jobs)
        if request.explained:
            _check_symbols(frozen)

        def with_alignment() -> CommitBuilds:
            found = aligned(frozen, ends[1], progress=request.say, jobs=request.jobs)
            request.say(f"functions are aligned by {found.how}")
            return CommitBuilds(repository, found.frozen, request.jobs, recipe, compiler)

        plain = CommitBuilds(repository, frozen, request.jobs, recipe, compiler)
        builds = closing.enter_context(TreeBuilds(repository, plain, with_alignment, request.say))
        _tell_lines(log, builds, line)
        boots = closing.enter_context(_boots(request, choice))
        earlier = EarlierRuns(request.index, choice.suite.name, choice.filesystems) if request.index else None
        search = Search(
            *(log, builds, boots, request.environment.profile.name, builds, request.say, request.scan, earlier),
            ahead=request.boards - 1,
        )
        if request.further:
            search.go_on()
        found = search.run()
        if request.index:
            _keep_culprit(request, found, repository)
        if request.explained:
            try:
                found = profile_pair(log, builds, boots, request.say)
            except FsjouleError as error:  # the answer is there, and stays
                request.say(f"warning: it cannot be explained: {error.what}")
        return found


def _boots(request: Request, choice: Choice) -> Boards | Pool:
    if request.boards > 1:
        folder = request.state / "ahead"
        assigned = Assignment(choice, request.environment, request.metrics, request.select, folder, request.command)
        return Pool(assigned, request.boards, request.results, request.say)
    return Boards(_boards(request, choice), request.say)


def _boards(request: Request, choice: Choice) -> list[Opening]:
    def on(environment: lab.EnvironmentFile) -> BoardBoots:
        cards = request.state / "cards"
        return BoardBoots(choice, environment, request.metrics, request.select, cards, request.say, request.command)

    return [partial(on, each) for each in (request.environment, *request.others)]


def _keep_culprit(request: Request, found: State, repository: Repository) -> None:
    """The answer is there, and stays, whatever the index says."""
    assert request.index
    try:
        with open_index(request.index) as index:
            kept = keep_answer(index, found, repository)
    except FsjouleError as error:
        request.say(f"warning: the index does not know of it: {error.what}")
    else:
        if kept:
            request.say(f"kept in the index: {counted(kept, 'change')} of its trends, bisected")


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
    lines = [event for event in log.events if isinstance(event, Line)]
    if not lines:
        log.add(first)
    elif lines[0].commits != first.commits:
        raise ConfigError(
            f"the commits between the ends are other ones than those in {log.folder}",
            hint="the repository's history was rewritten: begin anew with another --state",
        )
    for entered in lines[1:]:
        builds.enter(entered.commits[0], entered.inside)
