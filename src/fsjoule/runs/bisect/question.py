"""The question of a bisection: names checked, figures chosen, earlier boots' noise, the budget, the log opened."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fsjoule import kernels, lab
from fsjoule.errors import ConfigError
from fsjoule.kernels.tree.repository import Repository
from fsjoule.model import BoardProfile
from fsjoule.model.filesystem import content_of, file_name
from fsjoule.model.metrics import Metric, Use, fio_metrics, metrics_of
from fsjoule.model.series import Where
from fsjoule.report.bisection.words import forecast_line
from fsjoule.runs.bisect.boots import selected
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.plan import planned
from fsjoule.runs.request import RunRequest, check_boards, choose
from fsjoule.statistics.evidence import KnownNoise
from fsjoule.store.bisection import Asked, BisectionLog, Budget, CommitLine
from fsjoule.store.index.database import open_index
from fsjoule.store.index.queries import points
from fsjoule.verdicts.bisection.state import BisectionState
from fsjoule.verdicts.gate import known_noise

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BisectRequest:
    """The user's request, every name as written. `state` is the folder of the log, `jobs` counts compilers.

    `others` are further boards of the same kind, for when one fails; `boards` is how many in guest time boot at once.
    `effect` is the least loss that matters, as a fraction, for each of the `metrics`. With `further` an answered
    bisection goes on to the next loss. Earlier boots in the `index` tell the noise. With `explained` both sides of the
    answer's loss boot once more, with profiles. `scan` is how many commits between equal ends are looked at. With
    `build` the tree is another program's than the kernel's: a command, and what of the files that it makes is a piece
    of the boot loader (`loader`), or goes onto the root (`install`); the `kernel` is the same in all boots.
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
    metrics: tuple[Metric, ...] = fio_metrics(Use.KERNELS)
    effect: float = 0.05
    budget: int = 120
    seed: int = 1
    provision: str = "scratch"
    storages: str | None = None
    config: tuple[str, ...] = ()
    jobs: int = 2
    further: bool = False
    scan: int = 0
    others: tuple[lab.EnvironmentFile, ...] = ()
    boards: int = 1
    explained: bool = False
    index: str | None = None
    build: str = ""
    kernel: str | None = None
    loader: tuple[str, ...] = ()
    install: tuple[str, ...] = ()


def check_environments(request: BisectRequest) -> None:
    """Raises ConfigError for boards that are not of one kind, or cannot boot at once."""
    first = request.environment
    check_boards(request.boards, first)
    if request.boards > 1 and first.wanted.tags:
        raise ConfigError(
            f"--boards {request.boards}: a bisection brings up a lab for each board, and takes one place of a pool",
            hint="leave out --boards, or --place-tag",
        )
    if request.boards > 1 and request.others:
        raise ConfigError(
            f"--boards {request.boards}: it brings up a lab for each board, but several --lg-env are given",
            hint="leave --boards or the further --lg-env out",
        )
    for each in (first, *request.others):
        kinds = [(e.profile.name, e.profile.recipe, e.profile.simulated, e.profile.guest_time) for e in (first, each)]
        if kinds[0] != kinds[1]:
            raise ConfigError(
                f"the boards are of two kinds: {first.profile.name} ({first.path}), {each.profile.name} ({each.path})",
                hint="a bisection compares boots of one kind of board",
            )
        lab.check_places(each)


def choice_of(request: BisectRequest) -> RunRequest:
    """The plan of each boot; its kernel is replaced by the commit's, unless commits are another program's."""
    recipe = request.environment.profile.recipe
    options = BenchOptions(
        suite=request.suite,
        fs=request.filesystems,
        kernel=request.kernel if request.build else kernels.kernel_choices(recipe)[0],
        repeat=1,
        provision=request.provision,
        results=request.results,
        seed=request.seed,
        storage=request.storages,
    )
    return choose(options, request.environment)


def asked_of(request: BisectRequest, choice: RunRequest, repository: Repository, config: tuple[str, ...]) -> Asked:
    entries = planned(choice, request.environment.profile, choice.kernels).entries
    chosen = {entry.slug: entry for entry in selected(entries, request.select, request.metrics)}
    figures = tuple(
        f"{slug} {metric.value}"
        for slug, entry in sorted(chosen.items())  # a plan's order is another one for each seed
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
        figures=figures,
        effects=dict.fromkeys(request.metrics, request.effect),
        budget=request.budget,
        seed=request.seed,
        simulated=request.environment.profile.simulated,
        noise=_noise(request.index, choice, request.environment.profile, request.metrics),
        config=config,
        seeded=request.environment.profile.guest_time,
    )


def check_budget(asked: Asked, line: CommitLine) -> None:
    """Say what the search will take, if earlier boots tell the noise. Raises ConfigError if the budget is too small."""
    state = BisectionState.of([asked, line])
    forecast = state.forecast()
    if forecast is None:
        return
    _log.info("%s", forecast_line(state, forecast))
    if not forecast.within_budget:
        least_effect = min(forecast.effects)
        larger = f", or --effect {100 * least_effect:.1f}%, which it finds" if math.isfinite(least_effect) else ""
        raise ConfigError(
            f"--budget {asked.budget} is too small: a loss of that size takes up to {forecast.high:.0f} boots",
            hint=f"--budget {math.ceil(forecast.high)}{larger}",
        )


def _noise(
    index: str | None, choice: RunRequest, profile: BoardProfile, metrics: tuple[Metric, ...]
) -> dict[str, KnownNoise]:
    """The noise of each figure in earlier boots on this board, by the figure's name.

    Unknown in guest time, where a kernel's boots differ by their seeds, and seeds are compared with themselves.
    """
    if index is None:
        return {}
    where = Where(suites=(choice.suite.name,), filesystems=choice.filesystems)
    names = {content_of(name): name for name in choice.filesystems}
    with open_index(index) as opened:
        # It has to be there, also where nothing is asked of it.
        by_test = {} if profile.guest_time else known_noise(points(opened, where, metrics=metrics), metrics)
    return {
        f"{file_name(names.get(key.filesystem, key.filesystem))}-{key.workload.split()[0]} {metric.value}": noise
        for (series, metric), noise in by_test.items()
        if (key := series.series).board == profile.name and series.simulated == profile.simulated
    }


def begin(log: BisectionLog, asked: Asked, line: CommitLine) -> None:
    """Ask, or go on with a log that asks the same; a larger budget than the log's is the log's from then on.

    Raises ConfigError if it asks something else, or if the budget is known to be too small.
    """
    if not log.events:
        check_budget(asked, line)
        log.add(asked)
        return
    first = log.events[0]
    assert isinstance(first, Asked), "bisection_log has checked it"
    if differs := first.differences(asked):
        raise ConfigError(
            f"{log.folder} holds a bisection of another question:\n  " + "\n  ".join(differs),
            hint="choose another --state, or ask the same again to go on with it",
        )
    if asked.budget > max(first.budget, *(each.boots for each in log.events if isinstance(each, Budget)), 0):
        log.add(Budget(asked.budget))
