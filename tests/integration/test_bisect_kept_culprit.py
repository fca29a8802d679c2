"""A bisection's culprit beside the changes in trends that it made."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_trees import commit, new_tree
from nights import Nights

from fsjoule.kernels.tree.repository import Repository, open_repository
from fsjoule.model import IoPattern
from fsjoule.model.metrics import Figure, Metric
from fsjoule.model.series import Where
from fsjoule.runs.bisect.bisection import keep_culprit
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.queries import list_series
from fsjoule.store.index.states import kept_states
from fsjoule.store.index.trend import trend_reader
from fsjoule.store.states import ChangeState
from fsjoule.verdicts.trend.trend import trend_of

NIGHTS = 20
STEP_AT = 12


def speed(night: int, _fs: str, _pattern: IoPattern, _kernel: str) -> Figure:
    return 0.9 if night >= STEP_AT else 1.0


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    return open_repository(new_tree(tmp_path / "linux"))


def test_a_culprit_is_kept_for_the_losses_that_begin_with_it(repository: Repository, tmp_path: Path) -> None:
    # Every second commit was measured.
    commits = [commit(repository.tree, "a", str(number)) for number in range(2 * NIGHTS)]
    nights = Nights(
        speed=speed,
        filesystems=("ext4",),
        patterns=(IoPattern.READ,),
        versions=lambda night: {"commit": commits[2 * night]},
    )
    nights.write(tmp_path / "results", NIGHTS)
    with open_index(tmp_path / "index.sqlite", create=True) as index:
        import_runs(index, [tmp_path / "results"])
        key = list_series(index)[0].series.key

        def kept(culprit: str, *metrics: Metric) -> int:
            return keep_culprit(index, culprit, repository, (key,), metrics)

        assert kept(commits[2 * STEP_AT - 3], Metric.THROUGHPUT) == 0
        assert kept(commits[2 * STEP_AT + 10], Metric.THROUGHPUT) == 0
        culprit = commits[2 * STEP_AT - 1]
        assert kept(culprit, Metric.THROUGHPUT) > 0
        # The other metric's change was not what was bisected.
        states = {change.history.metric: change.state for change in trend_of(trend_reader(index, Where())).changes}
        assert states == {Metric.THROUGHPUT: ChangeState.BISECTED, Metric.ENERGY: ChangeState.NEW}
        assert {each.commit for each in kept_states(index)} == {culprit}
        assert kept(culprit, Metric.THROUGHPUT) == 0
