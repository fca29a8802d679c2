"""How an index keeps what became of changes, on every database."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest
from index_runs import write_run

from fsjoule.model.kernel import Kernel
from fsjoule.store.index.database import Index, open_index
from fsjoule.store.index.importer import import_runs, rebuild
from fsjoule.store.index.queries import list_series, stats
from fsjoule.store.index.states import keep_states, kept_states, take_back
from fsjoule.store.trend_rows import ChangeState, KeptState

NewLocation = Callable[[], str]


class TestStates:
    """Keeping, reading and taking back."""

    @pytest.fixture
    def results(self, tmp_path: Path) -> Path:
        return tmp_path / "results"

    @pytest.fixture
    def index(self, new_location: NewLocation, results: Path) -> Generator[Index]:
        write_run(results)
        with open_index(new_location(), create=True) as index:
            import_runs(index, [results])
            yield index

    def test_a_state_comes_back_as_it_was_kept(self, index: Index) -> None:
        (kernel, *_) = stats(index).kernels
        key = list_series(index)[0].series.key
        whole = KeptState(
            key,
            ChangeState.ACCEPTED,
            metric="energy",
            ratio=1.25,
            between_utc=("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            kernels=(kernel, kernel),
            run_id="r1",
            commit="c0ffee",
            why="it's meant to be so",
            made_utc="2026-01-03T00:00:00Z",
        )
        bare = KeptState(key, ChangeState.EXPLAINED, kernels=(kernel, kernel))
        assert keep_states(index, [bare, whole]) == 2
        first, second = kept_states(index)
        assert replace(first, number=0) == whole
        assert (second.state, second.metric, second.ratio, second.between_utc) == (
            ChangeState.EXPLAINED,
            None,
            None,
            None,
        )
        assert second.made_utc > "2026"
        take_back(index, [first])
        assert kept_states(index) == [second]

    def test_a_state_of_an_unknown_series_or_kernel_is_about_nothing(self, index: Index) -> None:
        key = list_series(index)[0].series.key
        stranger = Kernel("9.9", "")
        assert keep_states(index, [KeptState("0" * 16, ChangeState.CONFIRMED)]) == 0
        assert keep_states(index, [KeptState(key, ChangeState.CONFIRMED, kernels=(stranger, stranger))]) == 0
        assert keep_states(index, []) == 0
        assert kept_states(index) == []

    def test_a_rebuild_keeps_what_no_run_folder_has(self, index: Index, results: Path, tmp_path: Path) -> None:
        keep_states(index, [KeptState(list_series(index)[0].series.key, ChangeState.ACCEPTED, why="so")])
        (tmp_path / "other").mkdir()
        write_run(tmp_path / "other", run_id="another")
        rebuild(index, [tmp_path / "other"])
        (state,) = kept_states(index)
        assert state.why == "so"
        rebuild(index, [results])
        assert kept_states(index) == [state]
