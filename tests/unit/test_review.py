"""A review: which kernels are built and judged, which patch is named, and how the answer reads in a mail."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from command_line import command_line
from kernel_trees import commit, git, new_tree

from fsjoule.errors import KernelBuildError
from fsjoule.kernels.tree.commits import Commit
from fsjoule.model import Provision, SeriesKey
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Series
from fsjoule.report.renderers import to_junit
from fsjoule.report.review import ReviewView
from fsjoule.runs.gate import Sides
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.request import choose
from fsjoule.runs.review import GUEST_TIME_POLICY, LineJudge, touched_filesystems, with_figures
from fsjoule.store.gate import Gated, GateSide
from fsjoule.store.review import PatchState, Review
from fsjoule.testing import FakeKernelBuilds
from fsjoule.verdicts.gate import BootPair, Judge

GUEST = Path(__file__).parents[2] / "env" / "deterministic.yaml"
WORKLOADS = ("read-16k 32768KiB", "write-16k 32768KiB", "randwrite-16k 32768KiB")
SUBJECTS = ("base", "a comment", "a text", "a loop in each write", "a move", "another message")
LINE = tuple(
    Commit(f"c{at}", f"t{at}", f"c{at}", (f"c{at - 1}",), f"ext4: {subject}") for at, subject in enumerate(SUBJECTS)
)
NAMES = Sides("v6.1", "v6.1..topic")


@dataclass
class Board:
    """The gate over boots of kernels that execute so many instructions more in writes, by their folders' names."""

    costs: Mapping[str, float] = field(default_factory=dict[str, float])
    gates: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def gate(self, names: Sides, folders: Sides) -> Gated:
        self.gates.append((folders.baseline, folders.candidate))
        judge = Judge(GUEST_TIME_POLICY)
        ended, number = None, 0
        while ended is None:
            number += 1
            ended = judge.see(self._pair(number, folders))
        judge.finish()
        return Gated(
            judge.verdict,
            GateSide(names.baseline, names.baseline),
            GateSide(names.candidate, names.candidate),
            GUEST_TIME_POLICY,
            ended,
            pairs=number,
            findings=judge.findings,
        )

    def _pair(self, number: int, folders: Sides) -> BootPair:
        figures = {
            (series(workload), metric): (
                level * (1 + 1e-4 * number),
                level * (1 + (2e-4 - 1e-4 * number)) * (1 + self._loss(workload, metric, folders)),
            )
            for workload in WORKLOADS
            for metric, level in ((Metric.INSTRUCTIONS, 1e6), (Metric.THROUGHPUT, 70.0), (Metric.ENERGY, 20.0))
        }
        return BootPair(number, figures, len(WORKLOADS))

    def _loss(self, workload: str, metric: Metric, folders: Sides) -> float:
        if metric is not Metric.INSTRUCTIONS or "write" not in workload:
            return 0.0
        return self.costs.get(folders.candidate, 0.0) - self.costs.get(folders.baseline, 0.0)


def series(workload: str) -> Series:
    return Series(SeriesKey("quick", "imx6ul", "card", "ext4", (), (), Provision.SCRATCH, workload), simulated=True)


def reviewed(board: Board, builds: FakeKernelBuilds, *, each: bool | None = None) -> Review:
    command = (
        "fsjoule",
        "review",
        "v6.1..topic",
        "--tree",
        "/a/long/path/to/some/kernel/tree",
        "--json",
        "--seed",
        "1",
    )
    return LineJudge(LINE, NAMES, GUEST_TIME_POLICY, board.gate, command, "gcc 12.2.0").judged(builds, each=each)


def costly() -> Board:
    """From patch 3 on a write executes 0.5 % more."""
    return Board(dict.fromkeys(("c3", "c4", "c5"), 0.005))


def built(builds: FakeKernelBuilds) -> list[str]:
    return [wanted.commit for wanted in builds.taken]


def test_a_series_that_moves_nothing_is_judged_as_a_whole_only() -> None:
    board, builds = Board(), FakeKernelBuilds()
    review = reviewed(board, builds)
    assert (review.exit_code, review.patches, board.gates) == (0, (), [("c0", "c5")])
    assert built(builds) == ["c0", "c5"]
    assert ReviewView(review).headline == "unchanged or better (simulated)"


def test_the_patch_that_moves_a_series_is_named() -> None:
    board, builds = costly(), FakeKernelBuilds(images={"c2": "c1"})
    review = reviewed(board, builds)
    assert review.exit_code == 1
    assert board.gates == [("c0", "c5"), ("c0", "c1"), ("c1", "c3"), ("c3", "c4"), ("c4", "c5")]
    assert built(builds) == ["c0", "c5", "c1", "c3", "c4"]
    assert [patch.answer for patch in review.patches] == [
        "unchanged or better",
        "same kernel",
        "regressed",
        "unchanged or better",
        "unchanged or better",
    ]
    assert ReviewView(review).headline == "regressed by patch 3 (simulated)"
    assert review.boots == sum(2 * gated.pairs for gated in review.gates)


def test_the_mail_is_plain_and_narrow_and_begins_with_the_verdict() -> None:
    text = ReviewView(reviewed(costly(), FakeKernelBuilds(images={"c2": "c1"}))).text()
    lines = text.splitlines()
    assert lines[0] == "fsjoule: regressed by patch 3 (simulated)"
    assert max(map(len, lines)) <= 72
    assert text.isascii()
    assert not any(line != line.rstrip() for line in lines)
    at = lines.index("  3/5  ext4: a loop in each write")
    assert lines[at + 1] == "       regressed"
    assert re.fullmatch(r" {7}ext4 randwrite-16k instructions: \+0\.48 %, \+0\.3\d to \+0\.6\d %", lines[at + 2])
    words = " ".join(text.split())
    assert "0.2 % of instructions, or 2 % of throughput and write-amplification, or 5 % of energy." in words
    assert "Compiler: gcc 12.2.0." in words
    assert words.endswith("review v6.1..topic --tree /a/long/path/to/some/kernel/tree \\ --seed 1")


def test_one_patch_that_is_all_of_the_change_is_not_measured_again() -> None:
    board = costly()
    builds = FakeKernelBuilds(images={"c1": "c0", "c2": "c0", "c4": "c3", "c5": "c3"})
    review = reviewed(board, builds)
    assert (board.gates, built(builds)) == ([("c0", "c5")], ["c0", "c5"])
    assert [patch.number for patch in review.patches if patch.regressed] == [3]
    assert review.boots == 2 * review.whole.pairs


def test_a_loss_that_a_later_patch_heals_is_found_with_each() -> None:
    board = Board({"c3": 0.005})
    assert reviewed(board, FakeKernelBuilds()).exit_code == 0
    builds = FakeKernelBuilds()
    review = reviewed(board, builds, each=True)
    assert review.exit_code == 1
    assert ReviewView(review).headline.startswith("unchanged or better, though patch 3 regressed")
    assert [wanted.commit for wanted in builds.expected[0]] == ["c1", "c2", "c3", "c4"]


def test_a_series_that_no_build_reads_builds_its_base_alone() -> None:
    board, builds = Board(), FakeKernelBuilds(images={f"c{at}": "c0" for at in range(6)})
    review = reviewed(board, builds)
    assert (built(builds), board.gates, review.exit_code) == (["c0"], [], 0)
    text = ReviewView(review).text()
    assert text.startswith("fsjoule: identical: this board's build reads no changed file; nothing\nwas booted\n")
    assert text.count("same kernel") == len(LINE) - 1


def test_a_patch_in_the_midst_that_does_not_build_is_told() -> None:
    board = costly()
    review = reviewed(board, FakeKernelBuilds(broken=frozenset({"c2"})))
    assert [patch.state for patch in review.patches if patch.why] == [PatchState.UNBUILT]
    assert ("c1", "c3") in board.gates
    view = ReviewView(review)
    assert view.headline == "regressed by patch 3; patch 2 of 5 does not build (simulated)"
    assert "does not build: drivers/a.c:1: error: expected ';'" in view.text()
    assert "regressed, with patch 2, which does not build alone" in view.text()
    calm = reviewed(Board(), FakeKernelBuilds(broken=frozenset({"c2"})), each=True)
    assert calm.exit_code == KernelBuildError.exit_code


def test_a_series_whose_end_does_not_build_names_the_first_patch_that_breaks_it() -> None:
    board, builds = Board(), FakeKernelBuilds(broken=frozenset({"c3", "c4", "c5"}))
    review = reviewed(board, builds)
    assert (board.gates, built(builds)) == ([], ["c0", "c5", "c1", "c2", "c3"])
    assert review.exit_code == KernelBuildError.exit_code
    assert ReviewView(review).headline == "patch 3 of 5 does not build; nothing was measured"


def test_a_base_that_does_not_build_is_an_error() -> None:
    with pytest.raises(KernelBuildError, match=r"the base, v6\.1, does not build: drivers/a\.c:1"):
        reviewed(Board(), FakeKernelBuilds(broken=frozenset({"c0"})))


def test_remarks_of_the_gates_stand_in_the_reply_once() -> None:
    review = reviewed(costly(), FakeKernelBuilds())
    text = ReviewView(replace(review, whole=replace(review.whole, notes=("both sides: place a was out",)))).text()
    assert text.count("\n\nNote: both sides: place a was out.\n\n") == 1


def test_every_format_has_the_patches() -> None:
    view = ReviewView(reviewed(costly(), FakeKernelBuilds(images={"c2": "c1"})))
    cases = {case.get("name", ""): case for case in ET.fromstring(to_junit(view)).iter("testcase")}
    assert cases["3/5 ext4: a loop in each write (simulated)"].find("failure") is not None
    assert cases["2/5 ext4: a text (simulated)"].find("failure") is None
    document = json.loads(json.dumps(view.document(), default=str))
    assert (document["schema"], document["exit_code"]) == ("fsjoule.review/1", 1)
    assert [patch["answer"] for patch in document["patches"]][2] == "regressed"
    assert document["patches"][2]["gate"]["schema"] == "fsjoule.gate/1"
    note = view.markdown()
    assert note.startswith("**fsjoule review: regressed by patch 3 (simulated)**\n")
    assert "- 3/5 ext4: a loop in each write: regressed" in note


def test_the_filesystems_are_those_that_a_series_touches() -> None:
    assert touched_filesystems(["fs/btrfs/inode.c", "fs/fat/dir.c", "mm/vmstat.c"]) == "btrfs,vfat"
    assert touched_filesystems(["mm/vmstat.c", "fs/inode.c"]) == "ext4"


def test_a_boot_measures_only_what_is_judged() -> None:
    chosen = choose(BenchOptions(suite="quick", fs="ext4", repeat=2), pair=("6.1", "6.1"))
    workloads = with_figures(chosen, GUEST_TIME_POLICY).workloads
    assert workloads is not None
    assert {*workloads} == {"read-16k", "randread-16k", "write-16k", "randwrite-16k"}


def test_documentation_alone_is_neither_built_nor_booted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FSJOULE_CACHE_DIR", str(tmp_path / "cache"))
    tree = new_tree(tmp_path / "linux")
    commit(tree, "Documentation/a.rst", "A text")
    monkeypatch.chdir(tree)
    done = command_line(monkeypatch, capfd)(
        "review", "v6.1..main", "--lg-env", GUEST, "--results", tmp_path / "results"
    )
    assert done.code == 0, done.err
    assert done.out.startswith("fsjoule: identical: only documentation changes; nothing was built\n")
    assert not (tmp_path / "results").exists()
    assert git(tree, "status", "--porcelain") == ""
