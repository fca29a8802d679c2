"""The loop of a bisection over fakes of its ports: what it measures, what it answers, and that it goes on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from fsjoule.errors import LabError, StorageError
from fsjoule.model.metrics import Metric
from fsjoule.runs.bisect.search import Search
from fsjoule.statistics.bisection.answer import Answer, Kind
from fsjoule.statistics.bisection.question import Purpose
from fsjoule.statistics.outcome import Confirmed
from fsjoule.store.bisection import LOG_FILE, Asked, Booted, Line, Skipped, bisection_log
from fsjoule.testing import FakeKernelBoots, FakeKernelBuilds
from fsjoule.verdicts.bisection.answer import Bisected, bisected
from fsjoule.verdicts.bisection.state import State

_COMMITS = tuple(f"{number:012x}" for number in range(64))
_THROUGHPUT, _CPU = "ext4-randread-16k throughput", "ext4-randread-16k cpu"
_NOISE = 0.004


def _figures(loss_from: str | None, loss: float = 0.05) -> Callable[[str, int], dict[str, float | None]]:
    """A board on which all kernels from one commit on are slower, unless that commit is left out of them."""

    def figures(kernel: str, seed: int) -> dict[str, float | None]:
        commit, *variant = kernel.split("-")
        worse = loss_from is not None and commit >= loss_from and loss_from not in variant
        noise = np.random.default_rng([seed, int(commit, 16), len(variant)]).normal(0, _NOISE, 2)
        factor = 1 - loss if worse else 1.0
        return {_THROUGHPUT: 80 * factor * math.exp(noise[0]), _CPU: 0.012 / factor * math.exp(noise[1])}

    return figures


@dataclass
class _Bisection:
    folder: Path
    boots: FakeKernelBoots
    builds: FakeKernelBuilds = field(default_factory=FakeKernelBuilds)
    inside: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    said: list[str] = field(default_factory=list[str])
    budget: int = 120

    def run(self) -> State:
        with bisection_log(self.folder) as log:
            if not log.events:
                log.add(_asked(self.budget))
                log.add(Line(_COMMITS))
            return Search(log, self.builds, self.boots, "virtual", self._enter, self.said.append).run()

    def _enter(self, before: str, merge: str) -> Line | None:
        assert before < merge
        inner = self.inside.get(merge)
        return Line(inner, inside=merge) if inner else None

    def answer(self) -> Bisected:
        state = self.run()
        step = state.step()
        assert isinstance(step, Answer)
        return bisected(state, step)


def _asked(budget: int) -> Asked:
    return Asked(
        made_utc="2026-11-22T12:00:00Z",
        repository="0123",
        good=(_COMMITS[0],),
        bad=(_COMMITS[-1],),
        board="deterministic",
        suite="quick",
        filesystems=("ext4",),
        provision="scratch",
        storages=None,
        select="randread",
        figures=(_THROUGHPUT, _CPU),
        effects={Metric.THROUGHPUT: 0.03, Metric.CPU: 0.03},
        budget=budget,
        seed=7,
    )


def test_the_culprit_is_found_confirmed_and_cured(tmp_path: Path) -> None:
    bisection = _Bisection(tmp_path, FakeKernelBoots(_figures(_COMMITS[41])))
    answer = bisection.answer()
    assert (answer.kind, answer.commits, answer.parent) == (Kind.CULPRIT, (_COMMITS[41],), _COMMITS[40])
    assert (answer.layout, answer.cure) == (Confirmed.CONFIRMED, Confirmed.CONFIRMED)
    slower, more_cpu = answer.changes
    assert slower.words.endswith("% slower")
    assert slower.low < 0.95 < slower.high
    assert more_cpu.words.endswith("% more CPU time")
    assert answer.boots < 60
    assert len({kernel for kernel, _ in bisection.boots.booted}) < 20


def test_a_range_without_a_loss_has_no_regression(tmp_path: Path) -> None:
    assert _Bisection(tmp_path, FakeKernelBoots(_figures(None))).answer().kind is Kind.NO_REGRESSION


def test_commits_that_do_not_build_or_boot_are_not_blamed(tmp_path: Path) -> None:
    builds = FakeKernelBuilds(broken=frozenset(_COMMITS[39:41]))
    boots = FakeKernelBoots(_figures(_COMMITS[40]), unfit=frozenset({_COMMITS[41]}))
    bisection = _Bisection(tmp_path, boots, builds)
    answer = bisection.answer()
    assert answer.kind is Kind.SET
    assert answer.commits == _COMMITS[39:43]
    with bisection_log(tmp_path) as log:
        skipped = {each.kernel.commit: each.stage for each in log.events if isinstance(each, Skipped)}
    assert skipped[_COMMITS[41]] == "boot"
    assert skipped[_COMMITS[40]] == "build"


def test_commits_with_the_same_kernel_are_one(tmp_path: Path) -> None:
    images = {commit: f"{int(commit, 16) // 8}" for commit in _COMMITS}
    bisection = _Bisection(tmp_path, FakeKernelBoots(_figures(_COMMITS[40])), FakeKernelBuilds(images))
    answer = bisection.answer()
    assert (answer.kind, answer.commits) == (Kind.CULPRIT, (_COMMITS[40],))
    assert len({images[kernel.commit] for kernel in bisection.builds.taken if not kernel.without}) <= 8


def test_a_merge_is_entered(tmp_path: Path) -> None:
    merge = _COMMITS[41]
    inner = (_COMMITS[40], *(f"{_COMMITS[40][:-1]}8{n}" for n in "abcdef"), merge)
    assert list(inner) == sorted(inner, key=lambda commit: commit.ljust(14, "0"))
    culprit = inner[3]
    bisection = _Bisection(tmp_path, FakeKernelBoots(_merged(culprit, inner)), inside={merge: inner})
    answer = bisection.answer()
    assert (answer.kind, answer.commits) == (Kind.CULPRIT, (culprit,))


def _merged(culprit: str, inner: tuple[str, ...]) -> Callable[[str, int], dict[str, float | None]]:
    """The same for a culprit inside of a merge."""
    whole = _figures(inner[-1])
    order = {commit: number for number, commit in enumerate(inner)}

    def figures(kernel: str, seed: int) -> dict[str, float | None]:
        commit, *variant = kernel.split("-")
        shown = commit
        if commit in order:
            shown = inner[-1] if order[commit] >= order[culprit] else inner[0]
        left_out = [inner[-1] if each == culprit else each for each in variant]
        return whole("-".join([shown, *left_out]), seed)

    return figures


def test_a_lab_fault_ends_it_and_the_same_log_goes_on_to_the_same_answer(tmp_path: Path) -> None:
    whole = _Bisection(tmp_path / "whole", FakeKernelBoots(_figures(_COMMITS[41])))
    expected = whole.answer()
    parts = _Bisection(tmp_path / "parts", FakeKernelBoots(_figures(_COMMITS[41])))
    for good in (3, 6, 4):
        parts.boots.faults = [*[None] * good, LabError("the meter is silent")]
        with pytest.raises(LabError):
            parts.run()
    parts.boots.faults = []
    assert parts.answer() == expected
    assert parts.boots.booted == whole.boots.booted


def test_a_board_that_boots_nothing_any_more_is_the_labs_fault(tmp_path: Path) -> None:
    boots = FakeKernelBoots(_figures(_COMMITS[41]))
    bisection = _Bisection(tmp_path, boots)
    boots.faults = [*[None] * 12, LabError("stop here")]
    with pytest.raises(LabError, match="stop here"):
        bisection.run()
    boots.unfit = frozenset(_COMMITS)
    with pytest.raises(LabError, match="the board does not do its work with the good end either: Kernel panic"):
        bisection.run()
    with bisection_log(tmp_path) as log:
        assert not [each for each in log.events if isinstance(each, Skipped)], "no commit is blamed"


def test_a_line_that_was_cut_short_is_measured_again_and_counted_once(tmp_path: Path) -> None:
    bisection = _Bisection(tmp_path, FakeKernelBoots(_figures(_COMMITS[41])))
    expected = bisection.answer()
    path = tmp_path / LOG_FILE
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    again = _Bisection(tmp_path, FakeKernelBoots(_figures(_COMMITS[41])))
    assert again.answer() == expected
    with bisection_log(tmp_path) as log:
        numbers = [each.number for each in log.events if isinstance(each, Booted)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_two_processes_do_not_write_one_log(tmp_path: Path) -> None:
    with (
        bisection_log(tmp_path),
        pytest.raises(LabError, match="another process works on the bisection"),
        bisection_log(tmp_path),
    ):
        raise AssertionError


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del monkeypatch
    with bisection_log(tmp_path) as log:
        log.add(_asked(9))
        log.folder = Path("/dev/full")
        with pytest.raises(StorageError):
            log.add(Line(_COMMITS))
    with bisection_log(tmp_path) as log:
        assert len(log.events) == 1


def test_confirming_boots_have_random_choices_of_their_own(tmp_path: Path) -> None:
    bisection = _Bisection(tmp_path, FakeKernelBoots(_figures(_COMMITS[41])))
    bisection.run()
    with bisection_log(tmp_path) as log:
        booted = [each for each in log.events if isinstance(each, Booted)]
    fresh = {each.seed for each in booted if each.purpose is Purpose.CONFIRMATION}
    assert fresh
    assert not fresh & {each.seed for each in booted if each.purpose is not Purpose.CONFIRMATION}
