"""Boots of a bisection among the processes of several boards: made ahead, tried again, and given in the order asked."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TypeGuard

import pytest
from bisections import COMMITS, Bisection, figures

from fsjoule.errors import LabError, StorageError
from fsjoule.host import interrupts
from fsjoule.lab import read_environment
from fsjoule.model.bisection import WantedKernel
from fsjoule.model.metrics import Metric
from fsjoule.runs.bisect.pool import Pool, PoolAssignment
from fsjoule.runs.bisect.search import Figures, likely_boots
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.request import choose
from fsjoule.statistics.bisection.question import Purpose
from fsjoule.store.bisection import Answered, Built, Event, MeasuredBoot, bisection_log
from fsjoule.testing import FakeKernelBoots
from fsjoule.verdicts.bisection.state import BisectionState

PROJECT = Path(__file__).parents[2]
HELPERS = PROJECT / "tests" / "helpers"
_TIMEOUT_S = 60.0


@contextmanager
def pool(folder: Path, boards: int = 2) -> Generator[Pool]:
    environment = read_environment(PROJECT / "env" / "deterministic.yaml")
    choice = choose(
        BenchOptions(
            suite="quick", fs="ext4", kernel="6.1", repeat=1, provision="scratch", results=folder / "results", seed=1
        ),
        environment,
    )
    assigned = PoolAssignment(choice, environment, (Metric.THROUGHPUT,), "", folder / "ahead", ())
    with ExitStack() as closing:
        closing.enter_context(interrupts.handled())
        yield closing.enter_context(Pool(assigned, boards, folder / "results", worker="pool_worker"))


@pytest.fixture(autouse=True)
def _worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HELPERS))


def test_boots_made_ahead_are_given_when_they_are_asked_for_and_the_others_go(tmp_path: Path) -> None:
    with pool(tmp_path, boards=3) as boots:
        boots.expect(lambda _: [(Path("a"), 1), (Path("b"), 2), (Path("never"), 3)])
        found = [boots.measure(Path(name), seed) for name, seed in (("b", 2), ("a", 1), ("c", 4))]
        _wait_for(tmp_path / "ahead", "never-3")
    assert [each.run_id for each in found] == ["b-2", "a-1", "c-4"]
    assert [each.figures["throughput"] for each in found] == [2.0, 1.0, 4.0]
    assert all(each.folder == tmp_path / "results" / each.run_id and each.folder.is_dir() for each in found)
    assert {each.name for each in (tmp_path / "results").iterdir()} == {"a-1", "b-2", "c-4"}
    assert not (tmp_path / "ahead").exists()


def test_a_boot_that_was_given_is_not_made_again(tmp_path: Path) -> None:
    with pool(tmp_path, boards=1) as boots:
        boots.measure(Path("a"), 1)
        boots.expect(lambda _: [(Path("a"), 1), (Path("b"), 2)])
        boots.measure(Path("b"), 2)
        assert not list((tmp_path / "ahead").glob("*/a-1"))


def test_once_a_boot_is_there_no_board_begins_what_was_likely_before_it(tmp_path: Path) -> None:
    with pool(tmp_path, boards=1) as boots:
        boots.expect(lambda _: [(Path("a"), 1), (Path("stale"), 2)])
        boots.measure(Path("a"), 1)
        boots.expect(lambda _: [(Path("b"), 3)])
        boots.measure(Path("b"), 3)
        assert not list((tmp_path / "ahead").glob("*/stale-2"))


def test_a_kernel_is_at_fault_only_if_it_fails_on_two_boards(tmp_path: Path) -> None:
    with pool(tmp_path) as boots:
        for lab in ("deterministic", "deterministic-2"):
            assert boots.measure(Path(f"unfit-on-{lab}"), 1).unfit is None
        assert boots.measure(Path("unfit"), 1).unfit == "Kernel panic"
        assert boots.measure(Path("good"), 1).unfit is None


def test_a_board_whose_process_dies_is_left_out_and_the_last_ones_fault_is_told(
    tmp_path: Path, said: list[str]
) -> None:
    with pool(tmp_path) as boots:
        boots.expect(lambda _: [(Path("dies-on-deterministic-2"), 1), (Path("dies-on-deterministic"), 2)])
        assert boots.measure(Path("a"), 1).run_id == "a-1"
        with pytest.raises(LabError, match="its process ended with exit code 9"):
            boots.measure(Path("dies"), 3)
    assert any(line.startswith("board 1 is left out: board 1: its process ended with exit code 9") for line in said)


def test_a_fault_is_tried_again_on_another_board_and_a_full_disk_is_not(tmp_path: Path) -> None:
    with pool(tmp_path) as boots:
        for lab in ("deterministic", "deterministic-2"):
            assert boots.measure(Path(f"fails-on-{lab}"), 1).run_id
        with pytest.raises(StorageError, match="no space left"):
            boots.measure(Path("full"), 1)
        with pytest.raises(LabError, match="is silent"):
            boots.measure(Path("fails"), 1)
        assert boots.measure(Path("a"), 1).run_id == "a-1"


@pytest.mark.parametrize("boards", [2, 4])
def test_looking_ahead_changes_neither_boots_nor_answer_and_saves_most_of_the_time(tmp_path: Path, boards: int) -> None:
    """In lock-step: each round all boards boot once."""
    serial = together = 0
    for culprit in (1, 5, 18, 41, 62):
        alone, ahead = (FakeKernelBoots(figures(COMMITS[culprit]), boards=number) for number in (1, boards))
        answers = [
            Bisection(tmp_path / f"{name}-{culprit}", boots, ahead=boots.boards - 1).answer()
            for name, boots in (("alone", alone), ("ahead", ahead))
        ]
        assert answers[0] == answers[1]
        events = [_told(tmp_path / f"{name}-{culprit}") for name in ("alone", "ahead")]
        assert events[0] == events[1]
        serial += len(alone.rounds)
        together += len(ahead.rounds)
    assert serial / together > {2: 1.95, 4: 3.3}[boards]


def test_a_boot_that_is_wanted_after_either_outcome_is_more_likely_than_one_of_them(tmp_path: Path) -> None:
    """The last position of a search is a neighbour of the culprit, whatever it shows: its next boots come before."""
    events = _bisected(tmp_path / "log", COMMITS[41])
    last = max(number for number, each in enumerate(events) if _is_search(each))
    first, second, *_ = _likely(events[:last])
    assert first[0] == second[0]
    assert first[1] != second[1]


def test_the_search_begins_while_ends_are_booted_and_goes_on_with_what_was_made_ahead(tmp_path: Path) -> None:
    """One boot of each end shows the loss; the others are wanted, too, but nothing waits for them."""
    events = _bisected(tmp_path / "log", COMMITS[41])
    third = [number for number, each in enumerate(events) if isinstance(each, MeasuredBoot)][2]
    on_board = figures(COMMITS[41])
    made: dict[tuple[WantedKernel, int], Figures] = {}
    searched: list[str] = []
    for _ in range(4):
        boot, *_ = _likely(events[:third], made)
        made[boot] = on_board(boot[0].commit, boot[1])
        searched.append(boot[0].commit)
    assert searched == [each.kernel.commit for each in events if _is_search(each)][:4]


def _bisected(folder: Path, culprit: str) -> Sequence[Event]:
    Bisection(folder, FakeKernelBoots(figures(culprit))).run()
    with bisection_log(folder) as log:
        return tuple(log.events)


def _is_search(event: Event) -> TypeGuard[MeasuredBoot]:
    return isinstance(event, MeasuredBoot) and event.purpose is Purpose.SEARCH


def _likely(
    events: Sequence[Event], made: Mapping[tuple[WantedKernel, int], Figures] = MappingProxyType({})
) -> list[tuple[WantedKernel, int]]:
    return likely_boots(BisectionState.of(events), lambda _, __: False, lambda kernel, seed: made.get((kernel, seed)))


def _told(folder: Path) -> list[object]:
    """What a bisection did, without times and names of runs."""
    with bisection_log(folder) as log:
        return [_what(each) for each in log.events if isinstance(each, MeasuredBoot | Built | Answered)]


def _what(event: Event) -> object:
    match event:
        case MeasuredBoot():
            return event.number, event.kernel, event.purpose, event.seed, event.figures
        case Answered():
            return event.kind, event.text
        case _:
            return event


def _wait_for(folder: Path, name: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not list(folder.glob(f"*/{name}")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
