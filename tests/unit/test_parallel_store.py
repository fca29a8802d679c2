"""What several boards measure is stored at once, and a boot's or a block's measurements are of one board."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from fake_bench import FACTS, IMAGE
from results_factory import make_run

from fsjoule.errors import StorageError
from fsjoule.model import Measurement, Plan, Run, RunStatus, Trace
from fsjoule.runs.parallel.bench import PoolBench
from fsjoule.runs.parallel.boards import Boards
from fsjoule.runs.parallel.messages import Measured
from fsjoule.runs.parallel.processes import Processes
from fsjoule.suites import Planning, plan_entries, suite
from fsjoule.testing import FakeClock, FakeStore

_ENTRIES = plan_entries(suite("quick"), Planning(("ext4",), ("6.1",), repeat=1, seed=3)).entries
_RUN = Run(
    "id",
    "1970-01-01T00:00:00Z",
    RunStatus.RUNNING,
    simulated=True,
    plan=Plan("quick", ("ext4",), ("6.1",), 1, 3, {}, _ENTRIES),
)
_MEASUREMENT = make_run(repeat=1).measurements[0]


@dataclass
class Small(FakeStore):
    """A store on a disk with room for so many measurements."""

    room: int = 100

    def add(self, measurement: Measurement, trace: Trace | None, attachments: dict[str, bytes]) -> None:
        if len(self.measurements) >= self.room:
            raise StorageError("measurement could not be stored: No space left on device")
        super().add(measurement, trace, attachments)


def measured(number: int, place: str, attempt: int = 0) -> Measured:
    learned = replace(_RUN, boards={"6.1": FACTS}, images=(IMAGE,))
    return Measured(replace(_MEASUREMENT, number=number, place=place), None, {}, learned, attempt)


def bench_in(store: FakeStore, told: list[tuple[int, str]], *, blocks: bool) -> PoolBench:
    boards = Boards(Processes(), {})
    bench = PoolBench(_RUN, boards, store, FakeClock(), lambda _: None, _ENTRIES, blocks=blocks)
    bench.on_stored = lambda _board, each: told.append((each.number, each.place))
    bench.begin()
    return bench


@pytest.mark.parametrize("blocks", [True, False])
def test_another_boards_try_takes_the_place_of_the_first_once_it_has_more(*, blocks: bool) -> None:
    store, told = Small(), list[tuple[int, str]]()
    bench = bench_in(store, told, blocks=blocks)
    for number in (1, 2):
        bench.boards.on_measured(1, 0, measured(number, "evk-1"))
        assert len(store.measurements) == number, "stored at once"
    assert store.runs[-1].boards == {"6.1": FACTS}, "a run that is killed now says what it was measured on"
    for number, places in ((1, {"evk-1"}), (2, {"evk-1"}), (3, {"evk-2"})):
        bench.boards.on_measured(2, 0, measured(number, "evk-2"))
        assert {each.place for each in store.measurements} == places, "never of two boards"
    assert [each.number for each in store.measurements] == [1, 2, 3]
    assert told == [(1, "evk-1"), (2, "evk-1"), (1, "evk-2"), (2, "evk-2"), (3, "evk-2")]
    # The same board begins again.
    bench.boards.on_measured(2, 0, measured(1, "evk-2", attempt=1))
    assert len(store.measurements) == 3
    ended = bench.finish("interrupted")
    assert (ended.status, [each.number for each in bench.results]) == (RunStatus.ABORTED, [1, 2, 3])


def test_a_full_disk_is_raised_once_and_what_was_stored_stays() -> None:
    store, told = Small(room=2), list[tuple[int, str]]()
    bench = bench_in(store, told, blocks=False)
    for number in (1, 2):
        bench.boards.on_measured(1, 0, measured(number, ""))
    with pytest.raises(StorageError, match="No space left"):
        bench.boards.on_measured(1, 0, measured(3, ""))
    bench.boards.on_measured(2, 0, measured(4, ""))
    assert [number for number, _ in told] == [1, 2], "only what is stored is told"
    assert [each.number for each in store.measurements] == [1, 2]
    assert bench.finish("the disk is full").status is RunStatus.ABORTED


def test_what_was_measured_ahead_of_a_decision_is_withdrawn() -> None:
    store, told = Small(), list[tuple[int, str]]()
    bench = bench_in(store, told, blocks=True)
    bench.boards.on_measured(1, 0, measured(1, ""))
    assert bench.finish(ended_early="decided").status is RunStatus.COMPLETE
    assert store.measurements == []
