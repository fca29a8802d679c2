"""Earlier runs as evidence of a bisection: what counts, what does not and why, and that it is asked for once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from bisections import COMMITS, Bisection, asked, figures
from results_factory import make_run
from whole_runs import write_whole

from fsjoule.model import Measurement, Run
from fsjoule.runs.bisect.recorded import EarlierRuns
from fsjoule.statistics.bisection.question import Purpose
from fsjoule.store.bisection import Recorded, RecordedBoot, bisection_log
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.testing import FakeKernelBoots
from fsjoule.verdicts.bisection.recorded import boots_of_kernel, recorded_boots, series_of
from fsjoule.verdicts.bisection.state import BisectionState

FIGURES = ("ext4-randread-16k throughput", "ext4-randread-16k energy")


def write(results: Path, run_id: str, digests: dict[str, str], **other: str) -> Path:
    """A run of kernels with these digests, three boots each; `other` are parts of its series."""
    made = make_run(kernels=tuple(digests), filesystems=("ext4",))
    facts = tuple(replace(made.run.kernels[0], label=label, digest=digest) for label, digest in digests.items())
    run: Run = replace(made.run, run_id=run_id, kernels=facts)
    measured = (replace(each, boot=each.repetition, series=replace(each.series, **other)) for each in made.measurements)
    return write_whole(results, run, measured)


@pytest.fixture
def index(tmp_path: Path) -> str:
    """Runs of the image `good`: one that counts, one of another board, one of another card; one of other kernels."""
    results = tmp_path / "results"
    write(results, "aaaaaa", {"a": "good", "b": "bad"})
    write(results, "bbbbbb", {"a": "good"}, board="another")
    write(results, "cccccc", {"a": "good"}, storage="another card")
    write(results, "dddddd", {"a": "something else"})
    location = str(tmp_path / "index.sqlite")
    with open_index(location, create=True) as opened:
        import_runs(opened, [results])
    return location


def test_runs_of_the_same_kernel_board_and_suite_count_and_others_are_named(index: str, tmp_path: Path) -> None:
    own = write(tmp_path / "own", "ffffff", {"x": "good"})
    found = EarlierRuns(index, "quick", ("ext4",)).of("good", own, FIGURES, ())
    assert {(each.run_id, each.boot) for each in found.boots} == {("aaaaaa", boot) for boot in (1, 2, 3)}
    assert all(each.figures[FIGURES[0]] and each.steps.keys() == {FIGURES[0]} for each in found.boots)
    named = sorted(found.mismatches)
    assert len(named) == 2
    assert named[0] == "run bbbbbb: board was another, is virtual"
    assert named[1].startswith("run cccccc: storage was another card, is ")
    assert not EarlierRuns(index, "quick", ("ext4",)).of("good", own, FIGURES, {"aaaaaa"}).boots
    assert EarlierRuns(index, "quick", ("ext4",)).of("nobody's", own, FIGURES, ()) == Recorded("nobody's", ())


def test_a_kernel_without_valid_figures_does_not_count() -> None:
    measured: list[Measurement] = [replace(each, invalid_reasons=("clipped",)) for each in make_run().measurements]
    wanted = series_of(measured, FIGURES)
    assert boots_of_kernel("r", measured, wanted, FIGURES) == ((), "it has no valid measurement of these figures")


def boot(run: str, number: int, value: float) -> RecordedBoot:
    return RecordedBoot(run, number, f"2026-03-0{len(run)}T10:00:00Z", {FIGURES[0]: value})


def test_each_run_has_a_level_of_its_own_and_one_kernel_alone_says_nothing() -> None:
    found = [(boot("a", 2, 80.0), 9), (boot("a", 1, 81.0), 0), (boot("bb", 1, 70.0), 0), (boot("bb", 2, 70.0), 0)]
    told = recorded_boots(found, FIGURES[:1])
    assert [(each.position, each.number, each.board) for each in told] == [(0, -2, "run a"), (9, -1, "run a")]
    assert all(each.purpose is Purpose.RECORDED for each in told)
    assert told[0].figures[0] < told[1].figures[0], "larger is worse"


def test_each_seed_of_a_run_has_a_level_if_kernels_share_it() -> None:
    pairs = [
        (replace(boot("a", n, 80.0 + n), repetition=1 + n // 2), position) for n, position in enumerate([0, 9, 9, 0])
    ]
    told = recorded_boots([*pairs, (replace(boot("a", 9, 80.0), repetition=9), 0)], FIGURES[:1], seeded=True)
    assert [(each.position, each.board) for each in told] == [
        (0, "run a 1"),
        (9, "run a 1"),
        (9, "run a 2"),
        (0, "run a 2"),
    ]


@dataclass
class Known(EarlierRuns):
    """Two earlier runs of the ends; remembers for which kernels it was asked."""

    asked_for: list[str] = field(default_factory=list[str])

    def of(self, image: str, like: Path, figures: Sequence[str], without: Collection[str]) -> Recorded:
        del like, figures
        assert without
        self.asked_for.append(image)
        if image not in (COMMITS[0], COMMITS[-1]):
            return Recorded(image, (), (f"run x: {image} was on another board",))
        factor = 0.95 if image == COMMITS[-1] else 1.0
        names = asked(9).figures
        boots = tuple(
            RecordedBoot(run, 2 * n + (factor < 1), "2026-03-01T10:00:00Z", dict(zip(names, both, strict=True)))
            for run in ("a", "b")
            for n in range(4)
            for both in [(70 * factor + 0.1 * (n % 2), 0.02 / factor)]
        )
        return Recorded(image, boots)


def test_a_bisection_takes_them_in_once_and_goes_on_with_them(tmp_path: Path) -> None:
    earlier = Known("", "quick", ("ext4",))
    bisection = Bisection(tmp_path, FakeKernelBoots(figures(COMMITS[41])), earlier=earlier)
    answer = bisection.answer()
    assert answer.commits == (COMMITS[41],)
    assert len(earlier.asked_for) == len({*earlier.asked_for})
    assert "recorded before: 8 boots of this kernel" in bisection.said
    assert any(text.endswith("was on another board") for text in bisection.said)
    with bisection_log(tmp_path) as log:
        state = BisectionState.of(log.events)
    earlier_boots = [each for each in state.evidence().boots if each.purpose is Purpose.RECORDED]
    assert {each.position for each in earlier_boots} == {0, 63}
    assert len(earlier_boots) == 16
    ends = [each for each in state.booted if each.purpose is Purpose.END]
    assert len(ends) == 2, "one fresh boot of each"
    assert answer.boots == len(state.booted)
    assert Bisection(tmp_path, FakeKernelBoots(figures(COMMITS[41]))).answer() == answer
