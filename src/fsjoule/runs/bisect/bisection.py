"""A bisection put together: the question checked, the log opened, builds and boots started, the search run."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fsjoule import kernels, lab
from fsjoule.errors import ConfigError, FsjouleError
from fsjoule.host import interrupts
from fsjoule.kernels.configuration import board_configuration
from fsjoule.kernels.recipe import load_recipe, recipes_folder
from fsjoule.kernels.tree import commits as tree
from fsjoule.kernels.tree.frozen import aligned, freeze
from fsjoule.kernels.tree.outcomes import Builds
from fsjoule.kernels.tree.repository import Repository, open_repository
from fsjoule.model import BoardProfile
from fsjoule.model.metrics import Metric, metrics_of
from fsjoule.report.bisection.words import forecast_line
from fsjoule.runs.bisect.boots import BoardBoots, selected
from fsjoule.runs.bisect.builds import TreeBuilds
from fsjoule.runs.bisect.explanation import profile_pair
from fsjoule.runs.bisect.search import Search
from fsjoule.runs.profiler import check_profiled
from fsjoule.runs.request import Choice, choose, planned
from fsjoule.statistics.evidence import KnownNoise
from fsjoule.store.bisection import Asked, BisectionLog, Line, bisection_log
from fsjoule.store.index.database import open_index
from fsjoule.store.index.queries import points
from fsjoule.store.index.records import Where
from fsjoule.verdicts.bisection.state import State
from fsjoule.verdicts.gate import known_noise

Say = Callable[[str], None]

_METRICS: Final = (Metric.THROUGHPUT, Metric.ENERGY, Metric.CPU)


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for, every name as written. `state` is the folder of the log, `jobs` counts compilers.

    `effect` is the least loss that matters, as a fraction, for each of the `metrics`. With `further` an answered
    bisection goes on to the next loss. Earlier boots in the `index` tell the noise. With `explained` both sides of the
    answer's loss boot once more, with profiles.
    """

    environment: lab.EnvironmentFile
    tree: Path
    good: tuple[str, ...]
    bad: tuple[str, ...]
    filesystems: str
    suite: str
    select: str
    state: Path
    results: Path
    command: tuple[str, ...]
    metrics: tuple[Metric, ...] = _METRICS
    effect: float = 0.05
    budget: int = 120
    seed: int = 1
    provision: str = "scratch"
    storages: str | None = None
    config: tuple[str, ...] = ()
    jobs: int = 2
    further: bool = False
    explained: bool = False
    index: str | None = None
    say: Say = field(default=lambda _text: None)


def bisect(request: Request) -> State:
    """Find the first bad commit; the state's log has the answer. A log that has begun goes on where it was.

    Raises ConfigError for what cannot be asked, or another question than the log's; KernelBuildError for an end that
    cannot be configured; LabError if the lab or this machine does not do its part.
    """
    if request.explained:
        check_profiled(request.environment)
    lab.check_places(request.environment)
    repository = open_repository(request.tree)
    line = tree.find_line(repository, request.good, request.bad)
    choice = _choice(request)
    recipe = request.environment.profile.recipe
    configuration = board_configuration(load_recipe(recipes_folder(), recipe), request.config)
    asked = _asked(request, choice, repository, configuration.fragments)
    with bisection_log(request.state) as log, ExitStack() as closing:
        if not log.events:
            check_budget(asked, Line(tuple(commit.id for commit in line)), request.say)
        closing.enter_context(interrupts.handled())
        _begin(log, asked)
        ends = [repository.made(commit.id, commit.short) for commit in (line[0], line[-1])]
        with interrupts.interruptible():
            frozen = freeze(ends, configuration, progress=request.say, jobs=request.jobs)

        def with_alignment() -> Builds:
            found = aligned(frozen, ends[1], progress=request.say, jobs=request.jobs)
            request.say(f"functions are aligned by {found.how}")
            return Builds(repository, found.frozen, request.jobs, recipe)

        plain = Builds(repository, frozen, request.jobs, recipe)
        builds = closing.enter_context(TreeBuilds(repository, plain, with_alignment, request.say))
        _tell_lines(log, builds, line)
        boots = closing.enter_context(
            BoardBoots(
                choice,
                request.environment,
                request.metrics,
                request.select,
                request.state / "cards",
                request.say,
                request.command,
            )
        )
        search = Search(log, builds, boots, request.environment.profile.name, builds.inside, request.say)
        if request.further:
            search.go_on()
        found = search.run()
        if request.explained:
            try:
                found = profile_pair(log, builds, boots, request.say)
            except FsjouleError as error:  # the answer is there, and stays
                request.say(f"warning: it cannot be explained: {error.what}")
        return found


def _choice(request: Request) -> Choice:
    """What each boot measures; its kernel is replaced by the commit's."""
    recipe = request.environment.profile.recipe
    return choose(
        suite_name=request.suite,
        filesystems=request.filesystems,
        kernels=kernels.kernel_choices(recipe)[0],
        repeat=1,
        provision=request.provision,
        results=request.results,
        seed=request.seed,
        storages=request.storages,
        environment=request.environment,
    )


def _asked(request: Request, choice: Choice, repository: Repository, config: tuple[str, ...]) -> Asked:
    entries = planned(choice, request.environment.profile, choice.kernels).entries
    figures = tuple(
        f"{entry.slug} {metric.value}"
        for entry in selected(entries, request.select, request.metrics)
        for metric in request.metrics
        if metric in metrics_of(entry.workload)
    )
    revisions = [[repository.revision(name).commit for name in names] for names in (request.good, request.bad)]
    return Asked(
        made_utc=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        repository=repository.revision(request.bad[0]).repository_id,
        good=tuple(revisions[0]),
        bad=tuple(revisions[1]),
        board=request.environment.profile.name,
        suite=choice.suite.name,
        filesystems=choice.filesystems,
        provision=request.provision,
        storages=choice.storages,
        select=request.select,
        figures=tuple(dict.fromkeys(figures)),
        effects=dict.fromkeys(request.metrics, request.effect),
        budget=request.budget,
        seed=request.seed,
        simulated=request.environment.profile.simulated,
        noise=_noise(request.index, choice, request.environment.profile, request.metrics),
        config=config,
    )


def check_budget(asked: Asked, line: Line, say: Say) -> None:
    """Say what the search will take, if earlier boots tell the noise. Raises ConfigError if the budget is too small."""
    state = State.of([asked, line])
    forecast = state.forecast()
    if forecast is None:
        return
    say(forecast_line(state, forecast))
    if not forecast.within_budget:
        found = min(forecast.effects)
        larger = f", or --effect {100 * found:.1f}%, which it finds" if math.isfinite(found) else ""
        raise ConfigError(
            f"--budget {asked.budget} is too small: a loss of that size takes up to {forecast.high:.0f} boots",
            hint=f"--budget {math.ceil(forecast.high)}{larger}",
        )


def _noise(
    index: str | None, choice: Choice, profile: BoardProfile, metrics: tuple[Metric, ...]
) -> dict[str, KnownNoise]:
    """The noise of each figure in earlier boots on this board, by the figure's name."""
    if index is None:
        return {}
    where = Where(suites=(choice.suite.name,), filesystems=choice.filesystems)
    with open_index(index) as opened:
        found = known_noise(points(opened, where, metrics=metrics), metrics)
    return {
        f"{key.filesystem.replace(':', '.')}-{key.workload.split()[0]} {metric.value}": noise
        for (series, metric), noise in found.items()
        if (key := series.series).board == profile.name and series.simulated == profile.simulated
    }


def _begin(log: BisectionLog, asked: Asked) -> None:
    """Ask, or go on with a log that asks the same. Raises ConfigError if it asks something else."""
    if not log.events:
        log.add(asked)
        return
    first = log.events[0]
    assert isinstance(first, Asked), "bisection_log has checked it"
    if differs := first.differences(asked):
        raise ConfigError(
            f"{log.folder} holds a bisection of another question:\n  " + "\n  ".join(differs),
            hint="choose another --state, or ask the same again to go on with it",
        )


def _tell_lines(log: BisectionLog, builds: TreeBuilds, line: tree.Line) -> None:
    """Make the commits of the log's lines known; a new log gets its first line."""
    first = builds.add(line)
    lines = [event for event in log.events if isinstance(event, Line)]
    if not lines:
        log.add(first)
    elif lines[0].commits != first.commits:
        raise ConfigError(f"the commits between the ends are other ones than those in {log.folder}")
    for entered in lines[1:]:
        builds.inside(entered.commits[0], entered.inside)
