"""From two sides to verdicts: what is paired, what is told, what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from compared_runs import in_guest_time, write_kernels
from results_factory import IMAGE

from fsjoule.errors import ConfigError, ResultError
from fsjoule.model import KERNEL_WARNED, Measurement
from fsjoule.model.metrics import FIO_METRICS, Metric
from fsjoule.model.series import Point, Where
from fsjoule.report.comparison import ComparisonView, answer
from fsjoule.statistics.outcome import Criteria, Outcome
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.sides import Sources
from fsjoule.verdicts.compare import compare_sides
from fsjoule.verdicts.comparison import Compared, Judged

EVERY = tuple(Metric)


def compared(
    baseline: str | Path,
    candidate: str | Path,
    *,
    within: Path | str | None = None,
    index: Path | str = "nowhere.sqlite",
    where: Where | None = None,
    criteria: Criteria | None = None,
    metrics: tuple[Metric, ...] = (),
) -> Compared:
    with Sources(str(index)) as sources:
        one, other = (
            sources.side(str(text), where or Where(), EVERY, within=None if within is None else str(within))
            for text in (baseline, candidate)
        )
    return compare_sides(one, other, criteria, metrics=metrics)


def judged(found: Compared, label: str, metric: Metric) -> Judged:
    (one,) = (one for one in found.findings if one.subject.label == label and one.metric is metric)
    return one


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three kernels: 6.12 does btrfs's random writes 7 % slower, 6.6 does not."""
    return write_kernels(tmp_path_factory.mktemp("results"), speeds={"6.1": 1.0, "6.6": 1.0, "6.12": 0.93})


# ------------------------------------------------------------------------------------------------------- verdicts


def test_a_planted_change_is_found_where_it_was_planted(matrix: Path) -> None:
    found = compared("6.1", "6.12", within=matrix)
    changed = {(one.subject.label, one.metric): one.basis for one in found.findings if one.changed}
    assert set(changed) == {("btrfs randwrite-16k", m) for m in (Metric.THROUGHPUT, Metric.ENERGY, Metric.CPU)}
    assert {verdict.outcome for verdict in changed.values()} == {Outcome.REGRESSED}
    ratio = changed["btrfs randwrite-16k", Metric.THROUGHPUT].ratio
    assert ratio is not None
    assert ratio.value == pytest.approx(0.93, abs=0.01)
    assert ratio.interval.high < 1
    assert found.counts == {Outcome.UNCHANGED: 8, Outcome.REGRESSED: 3}
    one = judged(found, "btrfs randwrite-16k", Metric.THROUGHPUT)
    assert one.baseline is not None
    assert one.candidate is not None
    assert one.candidate / one.baseline == pytest.approx(ratio.value)


def test_the_other_way_round_it_is_an_improvement(matrix: Path) -> None:
    found = compared("6.12", "6.1", within=matrix)
    assert found.counts == {Outcome.IMPROVED: 3, Outcome.UNCHANGED: 8}


def test_without_a_change_none_is_told(matrix: Path) -> None:
    found = compared("6.1", "6.6", within=matrix)
    assert not any(one.changed for one in found.findings)
    assert found.interleaved
    assert found.notes == ()


def test_fio_jobs_and_timed_operations_have_their_own_figures(matrix: Path) -> None:
    found = compared("6.1", "6.6", within=matrix)
    metrics: dict[str, list[Metric]] = {}
    for one in found.findings:
        metrics.setdefault(one.subject.label, []).append(one.metric)
    writing = [metric for metric in FIO_METRICS if not metric.row.seldom]
    assert metrics == {
        "btrfs randwrite-16k": writing,
        "ext4 read-16k": [metric for metric in writing if metric is not Metric.WRITE_AMPLIFICATION],
        "ext4 mkfs": [Metric.DURATION, Metric.OPERATION_ENERGY],
    }
    assert list(metrics)[-1] == "ext4 mkfs"
    chosen = compared("6.1", "6.6", within=matrix, metrics=(Metric.NET_ENERGY,), where=Where(filesystems=("ext4",)))
    assert [(one.subject.label, one.metric) for one in chosen.findings] == [("ext4 read-16k", Metric.NET_ENERGY)]


def test_a_boot_counts_once_however_often_it_measured(tmp_path: Path) -> None:
    def second(measurement: Measurement) -> Measurement:
        return replace(measurement, boot=(measurement.boot + 3) // 4)

    path = write_kernels(tmp_path, speeds={"6.1": 1.0}, boots=16, change=second)
    other = write_kernels(tmp_path, "bbbbbb", speeds={"6.12": 0.5}, boots=10, seed=2)
    found = compared(path, other)
    verdict = judged(found, "ext4 mkfs", Metric.DURATION).basis
    assert (verdict.n_baseline, verdict.n_candidate) == (4, 10)
    assert (found.baseline.boots, found.baseline.measurements) == (4, 48)


def test_boots_that_take_turns_decide_soon(tmp_path: Path) -> None:
    few = write_kernels(tmp_path, speeds={"6.1": 1.0, "6.12": 0.5}, boots=3)
    found = compared("6.1", "6.12", within=few)
    assert found.paired
    assert found.counts == {Outcome.REGRESSED: 3, Outcome.UNCHANGED: 8}
    one = judged(found, "btrfs randwrite-16k", Metric.THROUGHPUT)
    assert (one.candidate or 0) / (one.baseline or 1) == pytest.approx(one.ratio)


def test_too_few_repetitions_say_how_many_more(tmp_path: Path) -> None:
    few = write_kernels(tmp_path, speeds={"6.1": 1.0, "6.12": 0.5}, boots=3, in_turn=False, change=in_guest_time)
    found = compared("6.1", "6.12", within=few)
    assert not found.paired
    assert found.counts == {Outcome.TOO_FEW: 11}
    # 11 comparisons at once: a lone change must reach 1 % / 11, which takes seven of each side.
    assert {one.basis.more_baseline for one in found.findings} == {4}
    enough = compared("6.1", "6.12", within=few, metrics=(Metric.THROUGHPUT,), where=Where(filesystems=("btrfs",)))
    assert [one.basis.more_baseline for one in enough.findings] == [3]


def test_all_comparisons_are_one_request(tmp_path: Path) -> None:
    """What is certain alone is not always among many."""
    path = write_kernels(tmp_path, speeds={"6.1": 1.0, "6.12": 0.93}, in_turn=False, change=in_guest_time)
    found = compared("6.1", "6.12", within=path)
    known = sorted((one.basis.p, one.basis.q) for one in found.findings if one.basis.p is not None)
    p, q = known[0]
    assert p is not None
    # Three metrics go together, so that the least p of 11 is multiplied by 11 / 3.
    assert q == pytest.approx(p * 11 / 3)


@pytest.mark.parametrize("broken", [math.nan, 0.0, -1.0, math.inf, None])
def test_a_figure_that_is_none_is_never_a_verdict(broken: float | None, matrix: Path) -> None:
    """No run folder holds what is not a number, but an index may be anybody's."""
    with Sources("nowhere.sqlite") as sources:
        one, other = (sources.side(name, Where(), EVERY, within=str(matrix)) for name in ("6.1", "6.12"))
    metrics = (Metric.THROUGHPUT, Metric.ENERGY)

    def spoilt(point: Point) -> Point:
        rest = {metric: figure for metric, figure in point.figures.items() if metric not in metrics}
        return point._replace(figures=rest if broken is None else {**rest, **dict.fromkeys(metrics, broken)})

    bad = {series: tuple(map(spoilt, points)) for series, points in other.points.items()}
    found = compare_sides(one, replace(other, points=bad))
    for label in ("btrfs randwrite-16k", "ext4 read-16k"):
        for metric in metrics:
            about = judged(found, label, metric)
            assert about.basis.outcome is Outcome.UNDECIDED
            assert (about.basis.n_candidate, about.candidate) == (0, None)
            assert len(about.basis.left_out) == 10
    assert {one.metric for one in found.findings if one.changed} == {Metric.CPU}


def test_what_neither_side_has_is_not_compared_and_said(tmp_path: Path) -> None:
    path = write_kernels(
        tmp_path,
        speeds={"6.1": 1.0, "6.12": 1.0},
        change=lambda m: replace(m, energy=None, energy_mj_per_mib=None, energy_net_mj_per_mib=None),
    )
    found = compared("6.1", "6.12", within=path)
    assert Metric.ENERGY not in {one.metric for one in found.findings}
    assert "energy: not compared in 2 series, because neither side has it" in found.notes
    with pytest.raises(ConfigError, match="no series of the two sides has net-energy"):
        compared("6.1", "6.12", within=path, metrics=(Metric.NET_ENERGY,))


def test_invalid_measurements_are_counted_and_not_used(tmp_path: Path) -> None:
    def spoil(measurement: Measurement) -> Measurement:
        if measurement.kernel == "6.12" and measurement.repetition == 1:
            return replace(measurement, invalid_reasons=("no end mark",), throughput_mib_per_s=0.001)
        return measurement

    path = write_kernels(tmp_path, speeds={"6.1": 1.0, "6.12": 1.0}, change=spoil)
    found = compared("6.1", "6.12", within=path)
    assert found.baseline.invalid == ()
    assert [(one.label, one.reasons) for one in found.candidate.invalid] == [
        (label, ("no end mark",)) for label in ("ext4 mkfs", "btrfs randwrite-16k", "ext4 read-16k")
    ]
    verdict = judged(found, "ext4 read-16k", Metric.THROUGHPUT).basis
    assert (verdict.n_baseline, verdict.n_candidate, verdict.left_out) == (9, 9, ())


# ---------------------------------------------------------------------------------------------------------- sides


def test_folders_need_not_be_imported_and_nothing_is_left_of_reading_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    one = write_kernels(tmp_path / "one", speeds={"6.1": 1.0})
    other = write_kernels(tmp_path / "other", "bbbbbb", speeds={"6.12": 0.9}, started="2026-03-10T10:00:00+00:00")
    found = compared(one, other / "run.json")
    assert found.candidate.title == "run bbbbbb"
    assert found.candidate.kernels == ("6.12.0-armmp (6.12.7-1)",)
    told = judged(found, "btrfs randwrite-16k", Metric.THROUGHPUT).basis
    assert (told.outcome, told.more_baseline) == (Outcome.UNDECIDED, None)
    assert told.reason.startswith("the two sides ran one after the other: a change of the lab's level cannot be told")
    assert "e-values over runs" in ComparisonView(found).rules
    assert "p <=" not in ComparisonView(found).rules
    assert list(temporary.iterdir()) == []
    write_kernels(tmp_path / "one", "cccccc", speeds={"6.1": 1.0}, seed=3)
    assert compared(tmp_path / "one", other).baseline.title == f"2 runs of {tmp_path / 'one'}"


def test_runs_kernels_and_branches_of_an_index(tmp_path: Path) -> None:
    write_kernels(tmp_path, speeds={"6.1": 1.0, "6.12": 0.9}, branch="main")
    write_kernels(tmp_path, "bbbbbb", speeds={"6.12": 0.8}, branch="topic", started="2026-03-10T10:00:00+00:00")
    file = tmp_path / "index.sqlite"
    with open_index(file, create=True) as index:
        import_runs(index, [tmp_path])
    kernels = compared("kernel:6.1", "6.12", index=file)
    assert kernels.candidate.runs == ("aaaaaa", "bbbbbb")
    assert compared("6.12@branch:main", "branch:topic", index=file).baseline.boots == 10
    assert compared("6.12@main", "run:bbbbbb", index=file).candidate.commits == ("cbbbbbb",)
    assert compared("6.1", "6.12", index=file, within="aaaaaa").candidate.runs == ("aaaaaa",)
    # A run of several kernels: each is compared with itself.
    itself = compared("main", "topic", index=file)
    assert {one.subject.kernel for one in itself.findings} == {"6.12.0-armmp"}
    assert "each kernel was compared with itself, because the sides have several" in itself.notes
    assert itself.baseline.only_here == tuple(
        f"{label}, kernel 6.1.0-armmp (6.1.7-1)" for label in ("ext4 mkfs", "btrfs randwrite-16k", "ext4 read-16k")
    )
    with pytest.raises(ConfigError, match="the index has no run, kernel or branch 'elsewhere'"):
        compared("elsewhere", "main", index=file)


def test_a_kernel_within_a_run_goes_by_what_the_run_calls_it(matrix: Path, tmp_path: Path) -> None:
    path = write_kernels(tmp_path, "bbbbbb", speeds={"6.1": 1.0, "6.1.9-mine": 1.0})
    found = compared("6.1", "kernel:6.1.9-mine", within=path)
    assert found.baseline.title == "kernel 6.1.0-armmp (6.1.7-1)"
    assert found.candidate.name == "6.1.9-mine"
    across = compared(f"6.1@{matrix}", f"6.1@{path}")
    assert (across.baseline.kernels, across.baseline.boots) == (("6.1.0-armmp (6.1.7-1)",), 10)
    with pytest.raises(ConfigError, match=r"(?s)run bbbbbb has no kernel '7\.0'.*it has 6\.1: 6\.1\.0-armmp"):
        compared("7.0", "6.1", within=path)
    with pytest.raises(ConfigError, match=r"is a run folder, not a kernel"):
        compared(path, "6.1", within=path)


# -------------------------------------------------------------------------------------------------------- refused


def test_a_side_is_not_compared_with_itself(matrix: Path) -> None:
    with pytest.raises(ConfigError, match="both sides are the same 90 measurements: run aaaaaa"):
        compared(matrix, matrix)
    with pytest.raises(ConfigError, match="both sides are the same 30 measurements"):
        compared("6.1", "kernel:6.1.0-armmp", within=matrix)
    with pytest.raises(ConfigError, match="30 measurements are on both sides"):
        compared(matrix, f"6.1@{matrix}")


DIFFERENT: list[tuple[str, Callable[[Path], Path]]] = [
    ("board: virtual against colibri", lambda at: write_kernels(at, "bbbbbb", speeds={"6.1": 1.0}, board="colibri")),
    ("simulated: True against False", lambda at: write_kernels(at, "bbbbbb", speeds={"6.1": 1.0}, simulated=False)),
    (
        "workload: randwrite-16k against randwrite-4k",
        lambda at: write_kernels(
            at,
            "bbbbbb",
            speeds={"6.1": 1.0},
            change=lambda m: replace(m, series=replace(m.series, workload=m.series.workload.replace("16k", "4k"))),
        ),
    ),
]


@pytest.mark.parametrize(("differs", "write"), DIFFERENT, ids=[name.partition(":")[0] for name, _ in DIFFERENT])
def test_what_is_not_comparable_is_refused_with_what_differs(
    differs: str, write: Callable[[Path], Path], tmp_path: Path
) -> None:
    one = write_kernels(tmp_path, speeds={"6.1": 1.0}, series=[0])
    other = write(tmp_path / "other")
    with pytest.raises(ConfigError, match=differs):
        compared(one, other, where=Where(filesystems=("btrfs",)))


def test_several_kernels_and_none_in_common_are_refused(matrix: Path, tmp_path: Path) -> None:
    other = write_kernels(tmp_path, "bbbbbb", speeds={"5.10": 1.0})
    with pytest.raises(ConfigError, match=r"(?s)no common one: run aaaaaa has 6\.1\.0-armmp.*KERNEL@RUN"):
        compared(matrix, other)


def test_nothing_valid_and_nothing_of_that_kind_is_refused(matrix: Path, tmp_path: Path) -> None:
    bad = write_kernels(tmp_path, "bbbbbb", speeds={"6.1": 1.0}, change=lambda m: replace(m, invalid_reasons=("no",)))
    with pytest.raises(ConfigError, match="run bbbbbb cannot be compared: its 30 measurements are invalid"):
        compared(matrix, bad)
    with pytest.raises(ConfigError, match="run aaaaaa has no filesystem 'f2fs'"):
        compared("6.1", "6.12", within=matrix, where=Where(filesystems=("f2fs",)))


def test_a_name_without_an_index_says_both_ways(matrix: Path, tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"(?s)6\.12 is not a run folder, and there is no index at .*index rebuild"):
        compared(matrix, "6.12", index=tmp_path / "index.sqlite")
    with pytest.raises(ResultError, match=r"^there is no folder no/where\n  hint: list the runs: fsjoule runs$"):
        compared(matrix, "no/where", index=tmp_path / "index.sqlite")


# ------------------------------------------------------------------------------------------------- what is told beside


def test_series_that_one_side_lacks_are_named(matrix: Path, tmp_path: Path) -> None:
    less = write_kernels(tmp_path, "bbbbbb", speeds={"6.1": 1.0}, series=[1])
    found = compared(f"6.1@{matrix}", less)
    assert found.baseline.only_here == ("ext4 mkfs", "btrfs randwrite-16k")
    assert found.candidate.only_here == ()
    assert {one.subject.label for one in found.findings} == {"ext4 read-16k"}


def test_one_side_after_the_other_is_said(tmp_path: Path) -> None:
    path = write_kernels(tmp_path, speeds={"6.1": 1.0, "6.12": 1.0}, in_turn=False)
    found = compared("6.1", "6.12", within=path)
    assert (found.baseline_first, found.interleaved) == (1.0, False)
    (note,) = found.notes
    assert note.startswith("not interleaved: the boots of the baseline ran before those of the candidate (2026-")
    assert "drift between them looks like a change" in note
    assert {one.outcome for one in found.findings} == {Outcome.UNDECIDED}
    assert "--kernel" not in note
    backwards = compared("6.12", "6.1", within=path)
    assert backwards.baseline_first == 0.0
    assert "the boots of the candidate ran before those of the baseline" in backwards.notes[0]


def test_two_runs_are_told_how_kernels_take_turns(matrix: Path, tmp_path: Path) -> None:
    other = write_kernels(tmp_path, "bbbbbb", speeds={"6.1": 1.0}, started="2026-03-10T10:00:00+00:00")
    (note,) = compared(f"6.1@{matrix}", other).notes
    assert note.endswith("Kernels measured in one run take turns: --kernel A,B")
    single = write_kernels(tmp_path / "single", "cccccc", speeds={"6.1": 1.0, "6.12": 1.0}, boots=1)
    assert compared("6.1", "6.12", within=single).notes == ()


def test_what_only_the_candidates_kernel_warns_of_comes_first(tmp_path: Path) -> None:
    warned = (f"{KERNEL_WARNED}WARNING fs/a.c f",)
    results = write_kernels(
        tmp_path,
        speeds={"6.1": 1.0, "6.12": 1.0},
        change=lambda m: replace(m, notes=warned) if m.kernel == "6.12" and m.boot % 3 else m,
    )
    found = compared("6.1", "6.12", within=results)
    told = next(iter(found.kernel_warnings))
    assert (told.text, told.baseline, told.of_baseline, told.of_candidate) == ("WARNING fs/a.c f", 0, 10, 10)
    assert 0 < told.candidate < 10
    assert answer(found).startswith("the candidate warns: WARNING fs/a.c f; ")
    assert ComparisonView(found).document()["kernel_warnings"] == [asdict(told)]


def test_programs_that_differ_are_named(tmp_path: Path) -> None:
    one = write_kernels(
        tmp_path, speeds={"6.1": 1.0}, branch="main", versions={"qemu": "7.2", "fio": "3.33", "pipeline": "1"}
    )
    other = write_kernels(
        tmp_path, "bbbbbb", speeds={"6.1": 1.0}, branch="topic", versions={"qemu": "10.0", "pipeline": "2"}
    )
    assert compared(one, other).notes[0] == "the sides differ in more than their names say: qemu 7.2 against 10.0"


def test_a_card_that_another_computer_made_differently_is_named(tmp_path: Path) -> None:
    sides = [write_kernels(tmp_path, run_id, speeds={"6.1": 1.0}) for run_id in ("aaaaaa", "bbbbbb")]
    for side, digest in zip(sides, ("a" * 64, "f" * 64), strict=True):
        document = json.loads((side / "run.json").read_text())
        document["images"] = [asdict(replace(IMAGE, card_sha256=digest))]
        (side / "run.json").write_text(json.dumps(document))
    card = f"the card with {IMAGE.kernel_package} and ext4 {'a' * 12} against {'f' * 12}"
    assert compared(*sides).notes[0] == f"the sides differ in more than their names say: {card}"


def test_what_cannot_be_read_is_left_out_and_named(tmp_path: Path) -> None:
    path = write_kernels(tmp_path, speeds={"6.1": 1.0, "6.12": 1.0})
    folder = next((path / "measurements").glob("01-*"))
    (folder / "measurement.json").write_text("{")
    found = compared("6.1", "6.12", within=path)
    assert [Path(path).name for path in found.damaged] == [folder.name]


def test_labels_tell_boards_and_options_apart(tmp_path: Path) -> None:
    def options(measurement: Measurement) -> Measurement:
        return replace(measurement, series=replace(measurement.series, mount_options=("compress=zstd",)))

    def as_it_is(measurement: Measurement) -> Measurement:
        return measurement

    speeds = {"6.1": 1.0, "6.12": 1.0}
    for run_id, board, change in (("a", "virtual", as_it_is), ("b", "colibri", as_it_is), ("c", "virtual", options)):
        write_kernels(tmp_path, run_id * 6, speeds=speeds, board=board, series=[0], change=change)
    labels = {one.subject.label for one in compared("6.1", "6.12", within=f"{tmp_path}/").findings}
    assert labels == {
        "btrfs (default) randwrite-16k, virtual",
        "btrfs (default) randwrite-16k, colibri",
        "btrfs (compress=zstd) randwrite-16k, virtual",
    }
