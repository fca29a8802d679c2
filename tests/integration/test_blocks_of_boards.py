"""One run on boards in real time at places of a pool: blocks stay on one board, and move whole to another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pool_runs import choice_of, run_of

from fsjoule.errors import LabError
from fsjoule.host import interrupts
from fsjoule.host.messages import lines_to
from fsjoule.lab import place_request, read_environment
from fsjoule.model import Measurement, Run, RunStatus
from fsjoule.runs.pairs import run_pairs
from fsjoule.runs.parallel.bench import PoolBench
from fsjoule.runs.parallel.boards import started_boards
from fsjoule.runs.parallel.messages import Assignment
from fsjoule.testing import FakeClock, FakeStore
from fsjoule.verdicts.gate import BootPair

PROJECT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT / "tests" / "helpers"))
    monkeypatch.setenv("LG_COORDINATOR", "127.0.0.1:1")


@dataclass
class Scene:
    bench: PoolBench
    store: FakeStore
    results: Path
    said: list[str]

    def all(self) -> list[Measurement]:
        self.bench.begin()
        return [self.bench.measure(entry) for entry in self.bench.plan.entries]

    @property
    def worked(self) -> list[tuple[str, int]]:
        """Places and the blocks that they began."""
        lines = (self.results / "worked").read_text().splitlines()
        return [(place, int(block)) for place, block in map(str.split, lines)]


@contextmanager
def places(run: Run, results: Path, *, boards: int = 2, kept: tuple[Measurement, ...] = ()) -> Generator[Scene]:
    environment = read_environment(PROJECT / "env" / "virtual.yaml", place_request("soc=imx6ul", None, None))
    choice = choice_of(environment, results, boards)
    store, said = FakeStore(), list[str]()
    numbers = {each.number for each in kept}
    entries = [entry for entry in run.plan.entries if entry.number not in numbers]
    with ExitStack() as closing:
        closing.enter_context(interrupts.handled())
        closing.enter_context(lines_to(said.append))
        assignment = Assignment(choice, environment, (), ("fsjoule", "gate"))
        opened = closing.enter_context(started_boards(assignment, worker="place_worker"))
        bench = PoolBench(run, opened, store, FakeClock(), lambda _: None, entries, kept, blocks=True)
        yield Scene(bench, store, results, said)


def places_of(measurements: list[Measurement]) -> dict[int, set[str]]:
    """The places of each repetition."""
    found: dict[int, set[str]] = {}
    for each in measurements:
        found.setdefault(each.repetition, set()).add(each.place)
    return found


def test_all_kernels_of_a_repetition_are_measured_at_one_place_with_its_meter(tmp_path: Path) -> None:
    run = run_of(4)
    with places(run, tmp_path) as scene:
        found = scene.all()
        ended = scene.bench.finish()
    assert ended.status is RunStatus.COMPLETE
    assert [each.number for each in found] == [entry.number for entry in run.plan.entries]
    of_blocks = places_of(found)
    assert all(len(each) == 1 for each in of_blocks.values())
    assert set.union(*of_blocks.values()) == {"evk-1", "evk-2"}
    assert ended.place_names == "evk-1, evk-2"
    assert ended.meter is None
    assert {each.lab.place: each.meter and each.meter.serial_number for each in ended.places} == {
        "evk-1": "meter of evk-1",
        "evk-2": "meter of evk-2",
    }
    assert all(each.held_s > 0 for each in ended.places)
    assert {each.boot for each in found} == set(range(1, 9))
    assert [each.boot for each in found] == sorted(each.boot for each in found)


@pytest.mark.parametrize("entries", [2, 9])
def test_the_block_of_a_board_that_dies_is_made_again_whole_at_another_place(tmp_path: Path, entries: int) -> None:
    run = run_of(4)
    (tmp_path / "dies").write_text(f"evk-1 {entries}\n")
    stored: list[Measurement] = []
    with places(run, tmp_path) as scene:
        scene.bench.on_stored = lambda _board, measurement: stored.append(measurement)
        found = scene.all()
        ended = scene.bench.finish()
    assert ended.status is RunStatus.COMPLETE
    numbers = [each.number for each in scene.store.measurements]
    assert sorted(numbers) == [entry.number for entry in run.plan.entries], "nothing twice, nothing lost"
    assert all(len(each) == 1 for each in places_of(found).values())
    began = Counter(block for _, block in scene.worked)
    [twice] = [block for block, times in began.items() if times == 2]
    assert places_of(found)[twice] == {"evk-2"}
    first = [each for each in stored if (each.repetition, each.place) == (twice, "evk-1")]
    assert len(first) == entries, "stored at once, until the other place has more"
    [fault] = ended.faults
    assert fault.place == "evk-1"
    assert fault.what.startswith("place evk-1 at ")
    assert "its process ended with exit code 9" in fault.what


def test_a_gate_on_two_places_comes_to_its_end_though_one_dies(tmp_path: Path) -> None:
    run = run_of(6)
    (tmp_path / "dies").write_text("evk-2 3\n")
    pairs: list[BootPair] = []

    def enough(pair: BootPair) -> str | None:
        pairs.append(pair)
        return "decided" if len(pairs) == 4 else None

    with places(run, tmp_path) as scene:
        scene.bench.begin()
        assert run_pairs(scene.bench, enough) == (4, "decided after 4 pairs")
        scene.bench.finish(ended_early="decided")
    assert all(baseline and candidate for pair in pairs for baseline, candidate in pair.figures.values() if baseline)
    assert len(scene.store.measurements) == 4 * len(run.plan.entries) // 6
    assert all(len(each) == 1 for each in places_of(scene.store.measurements).values())


def test_a_kernel_that_boots_nowhere_costs_only_its_own_figures(tmp_path: Path) -> None:
    run = run_of(1, ("6.1", "dead"))
    with places(run, tmp_path) as scene:
        scene.bench.begin()
        for entry in run.plan.entries:
            if entry.kernel == "6.1":
                assert scene.bench.measure(entry).place in ("evk-1", "evk-2")
                continue
            with pytest.raises(LabError, match="dead does not boot"):
                scene.bench.measure(entry)
        scene.bench.finish()
    assert len(scene.store.measurements) == len(run.plan.entries) // 2
    assert len(scene.worked) == 2, "another board has tried it"


def test_a_board_of_another_make_is_left_out(tmp_path: Path) -> None:
    run = run_of(3)
    (tmp_path / "other").write_text("evk-2\n")
    with places(run_of(3), tmp_path) as scene:
        scene.bench.begin()
        first = scene.bench.measure(run.plan.entries[0])
        found = [first, *(scene.bench.measure(entry) for entry in run.plan.entries[1:])]
        assert len(scene.bench.boards.processes.left) == 1
        scene.bench.finish()
    assert len({each.place for each in found}) == 1
    assert any("another board than the run's" in line and "another card" in line for line in scene.said)


def test_a_block_that_has_begun_goes_on_at_its_place_after_a_resume(tmp_path: Path) -> None:
    run = run_of(3)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with places(run, first) as scene:
        whole = scene.all()
        ended = scene.bench.finish()
    per_block = len(run.plan.entries) // 3
    kept = tuple(whole[: per_block + 3])
    begun = kept[-1].place
    with places(ended, second, kept=kept) as scene:
        found = scene.all()
        again = scene.bench.finish()
    assert places_of(found)[2] == {begun}
    assert [each.lab.place for each in again.places] == [each.lab.place for each in ended.places]
    for one, two in zip(ended.places, again.places, strict=True):
        assert two.held_s > one.held_s, "times add up"
        assert two.phases_s["store"] >= one.phases_s["store"]
    numbers = sorted(each.number for each in scene.store.measurements)
    assert numbers == [each.number for each in whole[per_block + 3 :]]


def test_a_block_whose_place_is_not_there_is_not_measured_elsewhere(tmp_path: Path) -> None:
    run = run_of(2)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with places(run, first) as scene:
        whole = scene.all()
        ended = scene.bench.finish()
    kept = tuple(each for each in whole if each.place == "evk-1")[:3]
    (second / "evk-1").touch()  # somebody else has it
    with places(ended, second, kept=kept) as scene:
        scene.bench.begin()
        for entry in scene.bench.entries:
            if entry.repetition != kept[0].repetition:
                assert scene.bench.measure(entry).place != "evk-1"
                continue
            with pytest.raises(LabError, match=f"repetition {entry.repetition} began at evk-1") as caught:
                scene.bench.measure(entry)
            assert "name=evk-1" in (caught.value.hint or "")
        scene.bench.finish()
