"""The change that `fsjoule trend --confirm` confirmed and no bisection has answered: the next one's question."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from fsjoule import lab
from fsjoule.bench.scratch import name_of
from fsjoule.errors import FsjouleError, ResultError
from fsjoule.kernels.tree.repository import Repository, open_repository
from fsjoule.model.filesystem import file_name
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Series, Where
from fsjoule.statistics.outcome import Confirmed
from fsjoule.store.bisection import Answered, read_bisection
from fsjoule.store.confirmations import Confirmation, ConfirmedPoint, confirmations
from fsjoule.store.index.database import Index, open_index
from fsjoule.store.index.queries import list_series

_log: Final = logging.getLogger(__name__)

# A loss counts from three quarters of the effect on; this leaves room for what fresh boots were off.
_OF_THE_LOSS: Final = 0.8
_LEAST: Final = 0.001
_MOST: Final = 0.5


def next_question(
    index: str, environment: lab.EnvironmentFile, tree: Path, *, kept: Path, states: Path
) -> tuple[str, ...]:
    """Arguments of `fsjoule bisect` for the newest confirmed loss of this board without an answer; none without one.

    `kept` is the folder of confirmations, `states` of bisections. Raises ConfigError for a tree that cannot be
    bisected.
    """
    repository = open_repository(tree)
    known, faults = confirmations(kept)
    for fault in faults:
        _log.info("left out: %s", fault)
    with open_index(index) as opened:
        for each in reversed(known):
            if each.outcome is not Confirmed.CONFIRMED or not is_loss(each):
                continue
            try:
                arguments = _arguments(each, _series(opened, each), environment, repository, states)
            except FsjouleError as error:
                _log.info("not bisected: %s of series %s: %s", each.metric, each.series, error.what)
                continue
            if arguments:
                return arguments
    return ()


def is_loss(confirmation: Confirmation) -> bool:
    """Whether fresh boots showed a change for the worse."""
    ratio = confirmation.nominated_ratio if confirmation.ratio is None else confirmation.ratio
    return ratio < 1 if Metric(confirmation.metric).more_is_better else ratio > 1


def _arguments(
    confirmation: Confirmation,
    indexed: Series,
    environment: lab.EnvironmentFile,
    repository: Repository,
    states: Path,
) -> tuple[str, ...]:
    """Empty if it is answered. Raises ResultError for what this board or tree cannot answer."""
    profile, series = environment.profile, indexed.series
    if (series.board, indexed.simulated) != (profile.name, profile.simulated):
        raise ResultError(f"it was measured on board {series.board}, not {profile.name}")
    good, bad = (_revision(repository, point) for point in (confirmation.before, confirmation.after))
    if good == bad:
        raise ResultError("the kernel is the same before and after")
    state = states / f"{good[:12]}-{bad[:12]}-{confirmation.series[:8]}-{confirmation.metric}"
    if state.is_dir() and isinstance(read_bisection(state)[-1], Answered):
        return ()
    ratio = confirmation.nominated_ratio if confirmation.ratio is None else confirmation.ratio
    effect = min(max(_OF_THE_LOSS * abs(ratio - 1), _LEAST), _MOST)
    storage = name_of(series.storage, profile.storages)
    name = f"{file_name(series.filesystem)}-{series.workload.split()[0]}"
    return (
        *("--good", good, "--bad", bad, "--fs", series.filesystem, "--suite", series.suite, "-k", name),
        *("--provision", series.provision.value, "--storage", storage),
        *("--metric", confirmation.metric, "--effect", f"{100 * effect:.2f}%", "--state", str(state)),
    )


def _revision(repository: Repository, point: ConfirmedPoint) -> str:
    """The commit of a kernel that was built from this repository: its version begins with the commit's description."""
    described = point.kernel_version.partition(" ")[0]
    if not described:
        raise ResultError(f"kernel {point.kernel_release} was not built from a repository")
    return repository.revision(described).commit


def _series(index: Index, confirmation: Confirmation) -> Series:
    listed = list_series(index, Where(series=(confirmation.series,), invalid_too=True))
    if not listed:
        raise ResultError("the index does not have it")
    return listed[0].series
