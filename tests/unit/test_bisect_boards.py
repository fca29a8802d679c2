"""Several boards of one kind: one may die, each has a level of its own, and no commit is blamed for either."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from bisections import COMMITS, Bisection, figures
from command_line import CommandLine, command_line
from kernel_trees import commit, new_tree
from results_factory import make_run

from fsjoule.errors import LabError, StorageError
from fsjoule.model.run import Exporter, LabFacts
from fsjoule.ports import KernelBoots
from fsjoule.runs.bisect.boots import SpareBoards, board_of
from fsjoule.statistics.bisection.answer import AnswerKind
from fsjoule.store.bisection import MeasuredBoot, Skipped, bisection_log
from fsjoule.testing import FakeKernelBoots

PROJECT = Path(__file__).parents[2]


def board(name: str, level: float, faults: list[Exception | None] | None = None) -> FakeKernelBoots:
    """A board that is that much faster than the usual one."""
    usual = figures(COMMITS[41])

    def on_board(kernel: str, seed: int) -> dict[str, float | None]:
        return {figure: (value or 0.0) * level for figure, value in usual(kernel, seed).items()}

    return FakeKernelBoots(on_board, faults=faults or [], board=name)


def opening(made: FakeKernelBoots) -> Callable[[], AbstractContextManager[KernelBoots]]:
    return lambda: nullcontext(made)


def bisection(folder: Path, *boards: FakeKernelBoots) -> Bisection:
    return Bisection(folder, boards[0], boards=SpareBoards([opening(each) for each in boards]))


def booted_on(folder: Path) -> list[str]:
    with bisection_log(folder) as log:
        return [each.board for each in log.events if isinstance(each, MeasuredBoot)]


def test_the_next_board_goes_on_where_one_died_with_a_level_of_its_own(tmp_path: Path) -> None:
    first = board("evk-1", 1.0, [*[None] * 9, LabError("the meter is silent")])
    second = board("evk-2", 1.2)
    search = bisection(tmp_path, first, second)
    answer = search.answer()
    assert (answer.kind, answer.commits) == (AnswerKind.CULPRIT, (COMMITS[41],))
    assert [line for line in search.said if "is out" in line] == [
        "board 1 of 2 is out: the meter is silent; going on with the next one"
    ]
    names = booted_on(tmp_path)
    assert names[:9] == ["virtual evk-1"] * 9
    assert set(names[9:]) == {"virtual evk-2"}
    with bisection_log(tmp_path) as log:
        assert not [each for each in log.events if isinstance(each, Skipped)]


def test_a_board_that_boots_nothing_any_more_is_put_aside(tmp_path: Path) -> None:
    for after in (0, 12):
        dead, folder = board("evk-1", 1.0, [*[None] * after, LabError("stop")]), tmp_path / str(after)
        if after:
            with pytest.raises(LabError, match="stop"):
                bisection(folder, dead).run()
        dead.unfit = frozenset(COMMITS)
        dead.faults = []
        answer = bisection(folder, dead, board("evk-2", 0.9)).answer()
        assert answer.commits == (COMMITS[41],)
        assert booted_on(folder).count("virtual evk-1") == after
        with bisection_log(folder) as log:
            assert not [each for each in log.events if isinstance(each, Skipped)]


def test_the_last_boards_fault_ends_it_and_a_full_disk_is_no_boards(tmp_path: Path) -> None:
    both = [board(name, 1.0, [None, LabError(f"{name} is on fire")]) for name in ("evk-1", "evk-2")]
    search = bisection(tmp_path / "fire", *both)
    with pytest.raises(LabError, match="evk-2 is on fire"):
        search.run()
    assert len(booted_on(tmp_path / "fire")) == 2
    full = board("evk-1", 1.0, [StorageError("no space left")])
    with pytest.raises(StorageError):
        bisection(tmp_path / "full", full, board("evk-2", 1.0)).run()
    assert len([line for line in search.said if "is out" in line]) == 1


def test_boards_of_a_kind_are_told_apart_by_their_places() -> None:
    run = replace(make_run().run, simulated=False)
    lab = LabFacts("evk-1", "lab:20408", (Exporter("rack3", "rack3.lab"),), None, "ci@lab")
    assert board_of(run) == ""
    assert board_of(replace(run, lab=lab)) == "evk-1 of rack3"
    assert board_of(replace(run, lab=replace(lab, exporters=()))) == "evk-1"
    assert board_of(replace(run, simulated=True, lab=lab)) == ""


def test_boards_of_two_kinds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run: CommandLine = command_line(monkeypatch, capfd)
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    commit(new_tree(tmp_path / "linux"), "a", "1")
    boards = [word for name in ("virtual", "deterministic") for word in ("--lg-env", PROJECT / "env" / f"{name}.yaml")]
    refused = run("bisect", *boards, "--tree", tmp_path / "linux", "--good", "v6.1", "--bad", "main")
    assert refused.code == 2
    assert "the boards are of two kinds: virtual" in refused.err
