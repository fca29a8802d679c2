"""How an index keeps what became of changes, on every database."""

from __future__ import annotations

import json
import shutil
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
from fsjoule.store.states import ChangeState, KeptState

NewLocation = Callable[[], str]


def states_of(location: str, folder: Path) -> str:
    """The URL of this index with another folder of states."""
    url = location if "://" in location else f"sqlite:///{location}"
    return f"{url}{'&' if '?' in url else '?'}states={folder}"


class TestStates:
    """Keeping, reading and taking back."""

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
        assert replace(first, id="") == whole
        assert (second.state, second.metric, second.ratio, second.between_utc) == (
            ChangeState.EXPLAINED,
            None,
            None,
            None,
        )
        assert second.made_utc > "2026"
        take_back(index, [first])
        assert kept_states(index) == [second]

    def test_a_state_of_an_unknown_series_or_kernel_waits_for_its_runs(self, index: Index) -> None:
        stranger = Kernel("9.9", "")
        state = KeptState("0" * 16, ChangeState.CONFIRMED, kernels=(stranger, stranger))
        assert keep_states(index, [state]) == 1
        assert keep_states(index, []) == 0
        assert [replace(each, id="", made_utc="") for each in kept_states(index)] == [state]

    def test_a_rebuild_keeps_states(self, index: Index, results: Path, tmp_path: Path) -> None:
        keep_states(index, [KeptState(list_series(index)[0].series.key, ChangeState.ACCEPTED, why="so")])
        (tmp_path / "other").mkdir()
        write_run(tmp_path / "other", run_id="another")
        rebuild(index, [tmp_path / "other"])
        (state,) = kept_states(index)
        assert state.why == "so"
        rebuild(index, [results])
        assert kept_states(index) == [state]

    def test_another_index_has_the_states_in_whatever_order_it_reads_them(
        self, index: Index, results: Path, new_location: NewLocation
    ) -> None:
        key = list_series(index)[0].series.key
        keep_states(index, [KeptState(key, ChangeState.ACCEPTED, why=why) for why in ("so", "not so")])
        kept, over = kept_states(index)
        take_back(index, [over])
        documents = sorted(index.states.iterdir())
        assert len(documents) == 2
        for name, order in (("one", documents), ("two", documents[::-1])):
            with open_index(states_of(new_location(), results / name), create=True) as other:
                for number, document in enumerate(order):
                    place = results / f"lab{number}"
                    (place / "states").mkdir(parents=True)
                    shutil.copy(document, place / "states")
                    write_run(place, run_id=f"lab{number}")
                    for _ in range(2):
                        assert import_runs(other, [place]).damaged_states == []
                    shutil.rmtree(place)
                assert kept_states(other) == [kept]

    def test_a_damaged_document_is_named_and_left_out(self, index: Index, results: Path) -> None:
        keep_states(index, [KeptState(list_series(index)[0].series.key, ChangeState.ACCEPTED, why="so")])
        (document,) = index.states.iterdir()
        content = json.loads(document.read_text())
        (results / "states").mkdir()
        faults = {
            "no.json": "{",
            "schema.json": json.dumps({**content, "schema": "fsjoule.states/2"}),
            "time.json": json.dumps({**content, "made_utc": "tomorrow"}),
            "ratio.json": json.dumps({**content, "kept": [{**content["kept"][0], "ratio": -1.0}]}),
            "metric.json": json.dumps({**content, "kept": [{**content["kept"][0], "metric": "beauty"}]}),
            "id.json": json.dumps({**content, "kept": [{**content["kept"][0], "id": ""}]}),
        }
        for name, text in faults.items():
            (results / "states" / name).write_text(text)
        damaged = import_runs(index, [results]).damaged_states
        assert {Path(each.partition(": ")[0]).name for each in damaged} == faults.keys()
        assert len(kept_states(index)) == 1
        shutil.rmtree(results / "states")
        (results / "states").symlink_to(index.states)
        assert import_runs(index, [results]).damaged_states == []


def test_documents_lie_beside_a_file_or_where_the_url_says(new_location: NewLocation) -> None:
    location = new_location()
    with open_index(location, create=True) as index:
        beside = Path("results") if "://" in location else Path(location).parent
        assert index.states == beside / "states"
    with open_index(f"{states_of(location, Path('elsewhere/here'))}&timeout=5") as index:
        assert index.states == Path("elsewhere/here")
        keep_states(index, [KeptState("0" * 16, ChangeState.ACCEPTED, why="so")])
        assert len(list(Path("elsewhere/here").iterdir())) == 1
