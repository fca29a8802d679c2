"""The loop of a bisection over fakes of its ports: what it measures, what it answers, and that it goes on."""

from __future__ import annotations

import multiprocessing
import random
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from bisections import COMMITS, Bisection, asked, figures

from fsjoule.errors import ConfigError, HostError, LabError, StorageError
from fsjoule.report.bisection.view import BisectionView
from fsjoule.report.bisection.words import facts
from fsjoule.runs.bisect.question import check_budget
from fsjoule.runs.bisect.search import BisectionSearch
from fsjoule.statistics.bisection.answer import AnswerKind
from fsjoule.statistics.bisection.question import Purpose
from fsjoule.statistics.evidence import KnownNoise
from fsjoule.statistics.outcome import Confirmed
from fsjoule.store.bisection import LOG_FILE, CommitLine, Event, MeasuredBoot, Skipped, bisection_log
from fsjoule.testing import FakeKernelBoots, FakeKernelBuilds


def test_the_culprit_is_found_confirmed_and_cured(tmp_path: Path) -> None:
    bisection = Bisection(tmp_path, FakeKernelBoots(figures(COMMITS[41])))
    answer = bisection.answer()
    assert (answer.kind, answer.commits, answer.parent) == (AnswerKind.CULPRIT, (COMMITS[41],), COMMITS[40])
    assert (answer.layout, answer.cure) == (Confirmed.CONFIRMED, Confirmed.CONFIRMED)
    slower, more_cpu = answer.changes
    assert slower.words.endswith("% slower")
    assert slower.low < 0.95 < slower.high
    assert more_cpu.words.endswith("% more CPU time")
    assert answer.boots < 60
    assert len({kernel for kernel, _ in bisection.boots.booted}) < 20
    confirmed_by = {kernel for kernel in bisection.builds.taken if not kernel.is_plain}
    assert {(kernel.commit, kernel.without, kernel.aligned) for kernel in confirmed_by} == {
        (COMMITS[40], "", True),
        (COMMITS[41], "", True),
        (COMMITS[-1], COMMITS[41], False),
    }
    assert confirmed_by <= {kernel for expected in bisection.builds.expected for kernel in expected}


def test_a_range_without_a_loss_has_no_regression(tmp_path: Path) -> None:
    assert Bisection(tmp_path, FakeKernelBoots(figures(None))).answer().kind is AnswerKind.NO_REGRESSION


def test_commits_that_do_not_build_or_boot_are_not_blamed(tmp_path: Path) -> None:
    builds = FakeKernelBuilds(broken=frozenset(COMMITS[39:41]))
    boots = FakeKernelBoots(figures(COMMITS[40]), unfit=frozenset({COMMITS[41]}))
    bisection = Bisection(tmp_path, boots, builds)
    answer = bisection.answer()
    assert answer.kind is AnswerKind.SET
    assert answer.commits == COMMITS[39:43]
    with bisection_log(tmp_path) as log:
        skipped = {each.kernel.commit: each.stage for each in log.events if isinstance(each, Skipped)}
    assert skipped[COMMITS[41]] == "boot"
    assert skipped[COMMITS[40]] == "build"


def test_commits_with_the_same_kernel_are_one(tmp_path: Path) -> None:
    images = {commit: f"{int(commit, 16) // 8}" for commit in COMMITS}
    bisection = Bisection(tmp_path, FakeKernelBoots(figures(COMMITS[40])), FakeKernelBuilds(images))
    answer = bisection.answer()
    assert (answer.kind, answer.commits) == (AnswerKind.CULPRIT, (COMMITS[40],))
    assert len({images[kernel.commit] for kernel in bisection.builds.taken if not kernel.without}) <= 8


def test_a_merge_is_entered(tmp_path: Path) -> None:
    merge = COMMITS[41]
    inner = (COMMITS[40], *(f"{COMMITS[40][:-1]}8{n}" for n in "abcdef"), merge)
    assert list(inner) == sorted(inner, key=lambda commit: commit.ljust(14, "0"))
    culprit = inner[3]
    bisection = Bisection(tmp_path, FakeKernelBoots(_merged(culprit, inner)), inside={merge: inner})
    answer = bisection.answer()
    assert (answer.kind, answer.commits) == (AnswerKind.CULPRIT, (culprit,))
    assert ("cures", "yes: the merge that it lies in without it has not the loss") in facts(bisection.run(), answer)
    # The merge is not what is looked for: that it introduces the loss is enough to enter it.
    more = [kernel for kernel in bisection.builds.taken if not kernel.is_plain]
    assert {kernel.commit for kernel in more if kernel.aligned} == {inner[2], culprit}
    assert {kernel.without for kernel in more if kernel.without} == {culprit}
    assert {kernel.commit for step in bisection.builds.expected for kernel in step if kernel.aligned} <= set(
        inner[1:-1]
    )


def test_a_forecast_is_told_once(tmp_path: Path) -> None:
    """Also where the first positions of the search do not build."""
    bisection = Bisection(
        tmp_path, FakeKernelBoots(figures(COMMITS[50])), FakeKernelBuilds(broken=frozenset(COMMITS[30:33]))
    )
    bisection.run()
    assert sum("a loss of just the size" in text for text in bisection.said) == 1


def _merged(culprit: str, inner: tuple[str, ...]) -> Callable[[str, int], dict[str, float | None]]:
    """The same for a culprit inside of a merge."""
    whole = figures(inner[-1])
    order = {commit: number for number, commit in enumerate(inner)}

    def on_board(kernel: str, seed: int) -> dict[str, float | None]:
        commit, *variant = kernel.split("-")
        shown = commit
        if commit in order:
            shown = inner[-1] if order[commit] >= order[culprit] else inner[0]
        left_out = [inner[-1] if each == culprit else each for each in variant]
        return whole("-".join([shown, *left_out]), seed)

    return on_board


def test_a_lab_fault_ends_it_and_the_same_log_goes_on_to_the_same_answer(tmp_path: Path) -> None:
    whole = Bisection(tmp_path / "whole", FakeKernelBoots(figures(COMMITS[41])))
    expected = whole.answer()
    parts = Bisection(tmp_path / "parts", FakeKernelBoots(figures(COMMITS[41])))
    for good in (3, 6, 4):
        parts.boots.faults = [*[None] * good, LabError("the meter is silent")]
        with pytest.raises(LabError):
            parts.run()
    parts.boots.faults = []
    assert parts.answer() == expected
    assert parts.boots.booted == whole.boots.booted


def test_a_board_that_boots_nothing_any_more_is_the_labs_fault(tmp_path: Path) -> None:
    boots = FakeKernelBoots(figures(COMMITS[41]))
    bisection = Bisection(tmp_path, boots)
    boots.faults = [*[None] * 12, LabError("stop here")]
    with pytest.raises(LabError, match="stop here"):
        bisection.run()
    boots.unfit = frozenset(COMMITS)
    with pytest.raises(LabError, match="the board does not do its work with the good end either: Kernel panic"):
        bisection.run()
    with bisection_log(tmp_path) as log:
        assert not [each for each in log.events if isinstance(each, Skipped)], "no commit is blamed"


def test_a_line_that_was_cut_short_is_measured_again_and_counted_once(tmp_path: Path) -> None:
    bisection = Bisection(tmp_path, FakeKernelBoots(figures(COMMITS[41])))
    expected = bisection.answer()
    path = tmp_path / LOG_FILE
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    again = Bisection(tmp_path, FakeKernelBoots(figures(COMMITS[41])))
    assert again.answer() == expected
    with bisection_log(tmp_path) as log:
        numbers = [each.number for each in log.events if isinstance(each, MeasuredBoot)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_two_processes_do_not_write_one_log(tmp_path: Path) -> None:
    with (
        bisection_log(tmp_path),
        pytest.raises(HostError, match="another process works on the bisection"),
        bisection_log(tmp_path),
    ):
        raise AssertionError


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del monkeypatch
    with bisection_log(tmp_path) as log:
        log.add(asked(9))
        log.folder = Path("/dev/full")
        with pytest.raises(StorageError):
            log.add(CommitLine(COMMITS))
    with bisection_log(tmp_path) as log:
        assert len(log.events) == 1


def test_confirming_boots_have_random_choices_of_their_own(tmp_path: Path) -> None:
    bisection = Bisection(tmp_path, FakeKernelBoots(figures(COMMITS[41])))
    bisection.run()
    with bisection_log(tmp_path) as log:
        booted = [each for each in log.events if isinstance(each, MeasuredBoot)]
    fresh = {each.seed for each in booted if each.purpose is Purpose.CONFIRMATION}
    assert fresh
    assert not fresh & {each.seed for each in booted if each.purpose is not Purpose.CONFIRMATION}


def test_killed_at_fifty_points_it_comes_to_the_same_answer_and_counts_no_boot_twice(tmp_path: Path) -> None:
    """SIGKILL at random moments, in the middle of a line of the log too; the kernel builds and boots are fakes."""
    whole = Bisection(tmp_path / "whole", FakeKernelBoots(figures(COMMITS[41])))
    expected = whole.answer()
    rng = random.Random(1)
    folder, kills = tmp_path / "killed", 0
    context = multiprocessing.get_context("fork")
    while kills < 50:
        child = context.Process(target=_bisect_slowly, args=(folder,))
        child.start()
        child.join(timeout=rng.uniform(0.02, 0.25))
        if child.exitcode == 0:
            folder = tmp_path / f"killed-{kills}"  # done before it could be killed: another one
            continue
        child.kill()
        child.join()
        kills += 1
        with bisection_log(folder) as log:
            _check_numbers(log.events)
    again = Bisection(folder, FakeKernelBoots(figures(COMMITS[41])))
    assert again.answer() == expected
    with bisection_log(folder) as log, bisection_log(tmp_path / "whole") as reference:
        _check_numbers(log.events)
        assert _boots_of(log.events) == _boots_of(reference.events)


def _bisect_slowly(folder: Path) -> None:
    on_board = figures(COMMITS[41])

    def slow(kernel: str, seed: int) -> dict[str, float | None]:
        time.sleep(0.01)
        return on_board(kernel, seed)

    Bisection(folder, FakeKernelBoots(slow)).run()


def _check_numbers(events: list[Event]) -> None:
    numbers = [each.number for each in events if isinstance(each, MeasuredBoot)]
    assert numbers == list(range(1, len(numbers) + 1))


def _boots_of(events: list[Event]) -> list[tuple[object, ...]]:
    return [(each.kernel, each.purpose, each.seed, each.figures) for each in events if isinstance(each, MeasuredBoot)]


def test_of_two_losses_the_larger_is_told_first_and_the_other_on_demand(tmp_path: Path) -> None:
    large, small = figures(COMMITS[20], 0.10), figures(COMMITS[50], 0.05)

    def both(kernel: str, seed: int) -> dict[str, float | None]:
        one, two = large(kernel, seed), small(kernel, seed + 1)
        return {name: (one[name] or 0) * (two[name] or 0) for name in one}

    bisection = Bisection(tmp_path, FakeKernelBoots(both))
    answer = bisection.answer()
    assert answer.commits == (COMMITS[20],)
    assert answer.second is not None
    assert COMMITS.index(answer.second.parent) < 50 <= COMMITS.index(answer.second.commit)
    with bisection_log(tmp_path) as log:
        BisectionSearch(log, bisection.builds, bisection.boots, "virtual", bisection).go_on()
    assert bisection.answer().commits == (COMMITS[50],)


def test_nothing_is_gone_on_with_where_one_loss_explains_all(tmp_path: Path) -> None:
    bisection = Bisection(tmp_path, FakeKernelBoots(figures(COMMITS[20])))
    bisection.run()
    with bisection_log(tmp_path) as log, pytest.raises(ConfigError, match="one loss explains all boots"):
        BisectionSearch(log, bisection.builds, bisection.boots, "virtual", bisection).go_on()


def test_the_cost_is_told_before_the_search_and_a_small_budget_is_refused(tmp_path: Path, said: list[str]) -> None:
    bisection = Bisection(tmp_path, FakeKernelBoots(figures(COMMITS[41])))
    bisection.run()
    [told] = [text for text in bisection.said if "builds" in text]
    assert re.fullmatch(
        r"a loss of just the size that matters takes about \d+ boots \(80 %: \d+ to \d+\) and \d+ builds, .*", told
    )
    known = replace(asked(100), noise={name: KnownNoise(0.004, 9) for name in asked(100).figures})
    check_budget(known, CommitLine(COMMITS))
    assert len(said) == 1
    with pytest.raises(ConfigError, match="--budget 8 is too small") as refused:
        check_budget(replace(known, budget=8), CommitLine(COMMITS))
    assert re.match(r"--budget \d+", refused.value.hint or "")
    check_budget(asked(8), CommitLine(COMMITS))
    assert len(said) == 2, "nothing is known of the noise"


def _cured(kernel: str, seed: int) -> dict[str, float | None]:
    """A loss from the 20th commit on, which the 45th cures: both ends are equal."""
    healthy = kernel.partition("-")[0] >= COMMITS[45]
    return figures(None if healthy else COMMITS[20])(kernel, seed)


def test_a_loss_and_its_cure_between_equal_ends_are_found_by_a_scan(tmp_path: Path) -> None:
    bisection = Bisection(tmp_path, FakeKernelBoots(_cured))
    state, answer = bisection.run(), bisection.answer()
    assert answer.kind is AnswerKind.NO_REGRESSION
    assert "--scan N looks at N commits" in dict(facts(state, answer))["between"]
    ends = len(bisection.boots.booted)
    bisection.scan = 5
    state, answer = bisection.run(), bisection.answer()
    assert (answer.kind, answer.commits) == (AnswerKind.CULPRIT, (COMMITS[20],))
    assert dict(facts(state, answer))["cured"].startswith(f"later: {COMMITS[-1]}")
    with bisection_log(tmp_path) as log:
        booted = [each for each in log.events if isinstance(each, MeasuredBoot)]
        assert [each.number for each in booted] == list(range(1, len(booted) + 1))
    assert booted[ends].purpose is Purpose.SCAN
    assert Bisection(tmp_path, FakeKernelBoots(_cured)).answer() == answer, "without --scan it shows the same"


def test_a_scan_that_finds_nothing_says_what_it_has_seen(tmp_path: Path) -> None:
    broken = COMMITS[31]
    bisection = Bisection(tmp_path, FakeKernelBoots(figures(None)), FakeKernelBuilds(broken=frozenset({broken})))
    bisection.scan = 3
    state, answer = bisection.run(), bisection.answer()
    assert answer.kind is AnswerKind.NO_REGRESSION
    assert answer.between is not None
    assert (len(answer.between.clear), answer.between.undecided) == (2, (broken,))
    told = list(facts(state, answer))
    assert ("between", f"not decided: {broken}") in told
    assert ("unseen", "a loss and its cure between two neighbours of these") in told
    assert BisectionView(state).document()["answer"]["between"]["undecided"] == (broken,)
