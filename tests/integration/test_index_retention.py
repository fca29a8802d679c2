"""How old runs leave an index and stay out of it, on every database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from index_runs import edit, write_days, write_run

from fsjoule.model.series import Where
from fsjoule.store.index import writer
from fsjoule.store.index.database import Index
from fsjoule.store.index.importer import import_runs, rebuild
from fsjoule.store.index.queries import list_series, points, stats
from fsjoule.store.index.retention import KeepReason, Retention, planned, prune
from fsjoule.store.index.states import keep_states
from fsjoule.store.states import ChangeState, KeptState

NewLocation = Callable[[], str]
_SINCE = Retention("2026-03-05T00:00:00Z")


def held(index: Index) -> list[str]:
    """The runs of the index that have measurements."""
    return sorted({point.run_id for found in points(index).values() for point in found})


class TestRetention:
    """Pruning, and what comes after it."""

    def test_older_runs_go_and_their_folders_stay(self, index: Index, results: Path) -> None:
        write_days(results, range(1, 9))
        import_runs(index, [results])
        before = sorted(results.rglob("*"))
        said = planned(index, _SINCE)
        assert held(index) == [f"run{day}" for day in range(1, 9)]
        found = prune(index, _SINCE)
        assert found == said
        assert [run.run_id for run in found.runs] == ["run1", "run2", "run3", "run4"]
        assert Path(found.runs[0].path).is_dir()
        assert found.measurements == 8
        assert set(found.kept.values()) == {0}
        assert held(index) == ["run5", "run6", "run7", "run8"]
        assert (stats(index).runs, stats(index).measurements) == (4, 8)
        assert sorted(results.rglob("*")) == before
        assert prune(index, _SINCE).runs == ()

    @pytest.mark.parametrize("function", [import_runs, rebuild])
    def test_pruned_runs_come_back_only_when_asked(
        self, index: Index, results: Path, function: Callable[..., object]
    ) -> None:
        write_days(results, range(1, 9))
        import_runs(index, [results])
        prune(index, _SINCE)
        for _ in range(2):
            report = import_runs(index, [results]) if function is import_runs else rebuild(index, [results])
            assert (report.folders, report.new, report.unchanged + report.changed) == (8, 0, 4)
            assert (report.pruned, report.dropped, report.conflicts) == (4, [], [])
            assert held(index) == ["run5", "run6", "run7", "run8"]
        function(index, [results], pruned_too=True)
        assert held(index) == [f"run{day}" for day in range(1, 9)]
        again = import_runs(index, [results])
        assert (again.unchanged, again.pruned) == (8, 0)

    def test_branches_can_be_kept_longer_or_for_ever(self, index: Index, results: Path) -> None:
        write_days(results / "main", range(1, 5), branch="main")
        write_run(results, "stable", started="2025-01-01T10:00:00Z", only=[5], branch="stable")
        write_run(results, "topic", started="2026-03-04T10:00:00Z", only=[5], branch="topic")
        import_runs(index, [results])
        found = prune(index, Retention(_SINCE.since_utc, {"main": "2026-03-03T00:00:00Z", "stable": ""}))
        assert [run.run_id for run in found.runs] == ["run1", "run2", "topic"]
        assert found.kept[KeepReason.BRANCH] == 3
        assert held(index) == ["run3", "run4", "stable"]

    def test_references_and_the_evidence_of_changes_stay(self, index: Index, results: Path) -> None:
        write_days(results, range(1, 5))
        reference = write_run(results, "reference", started="2026-03-01T12:00:00Z", only=[5]).path
        edit(reference / "run.json", versions={"kernel_role": "reference"})
        culprit = write_run(results, "culprit", started="2026-03-01T13:00:00Z", only=[5]).path
        edit(culprit / "run.json", versions={"commit": "badc0de"})
        write_run(results, "shown", started="2026-03-01T14:00:00Z", only=[5])
        for day in (1, 2):
            write_run(results, f"older{day}", started=f"2026-02-0{day}T10:00:00Z", kernel=("5.10.0", ""), only=[5])
        import_runs(index, [results])
        key = list_series(index)[0].series.key
        (kernel,) = {point.kernel for point in next(iter(points(index, Where(runs=("older1",))).values()))}
        assert kernel is not None
        times = [
            point.started_utc
            for point in points(index, Where(series=(key,), runs=("run2", "run3")))[list_series(index)[0].series]
        ]
        accepted = KeptState(key, ChangeState.ACCEPTED, between_utc=(times[0], times[1]), why="so")
        bisected = KeptState(key, ChangeState.BISECTED, commit="badc0de", run_id="shown")
        of_kernels = KeptState(
            list_series(index, Where(runs=("older1",)))[0].series.key, ChangeState.CONFIRMED, kernels=(kernel, kernel)
        )
        assert keep_states(index, [accepted, bisected, of_kernels]) == 3
        found = prune(index, _SINCE)
        assert [run.run_id for run in found.runs] == ["older1", "run1", "run4"]
        assert found.kept == {KeepReason.BRANCH: 0, KeepReason.REFERENCE: 1, KeepReason.CHANGE: 5}
        assert held(index) == ["culprit", "older2", "reference", "run2", "run3", "shown"]

    def test_an_interrupted_pruning_leaves_whole_runs_and_can_be_repeated(
        self, index: Index, results: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer, "_AT_ONCE", 2)
        write_days(results, range(1, 9))
        import_runs(index, [results])

        def interrupted(done: int, of: int) -> None:
            assert (done, of) == (2, 4)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            prune(index, _SINCE, watch=interrupted)
        assert held(index) == [f"run{day}" for day in range(3, 9)]
        assert import_runs(index, [results]).pruned == 2
        assert [run.run_id for run in prune(index, _SINCE).runs] == ["run3", "run4"]
        assert import_runs(index, [results]).pruned == 4
