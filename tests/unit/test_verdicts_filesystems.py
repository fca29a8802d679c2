"""Which filesystem of a run is better: the very statistics of a comparison, over all pairs of all operations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rivals import MKFS, READ, WRITE, rivals

from fsjoule.model.metrics import Metric
from fsjoule.statistics.comparison import Comparison, compare
from fsjoule.statistics.outcome import Outcome
from fsjoule.verdicts.filesystems import MOST_PAIRS, Contest, contests


def named(found: tuple[Contest, ...]) -> dict[tuple[str, Metric], Contest]:
    return {(one.workload.slug, one.metric): one for one in found}


def test_the_better_filesystem_is_told_with_ratio_and_interval() -> None:
    found = named(contests(rivals({"ext4": 1.0, "btrfs": 0.8}, workloads=(READ, MKFS))))
    assert set(found) == {
        (READ.slug, Metric.THROUGHPUT),
        (READ.slug, Metric.ENERGY),
        (MKFS.slug, Metric.DURATION),
        (MKFS.slug, Metric.OPERATION_ENERGY),
    }
    for (_, metric), one in found.items():
        assert one.names == ("ext4", "btrfs")
        assert one.decided
        finding = one.behind["btrfs"]
        assert finding.ratio == pytest.approx(1.25 if metric is Metric.THROUGHPUT else 0.8, rel=0.02)
        assert finding.interval is not None
        assert finding.interval.low < (finding.ratio or 0) < finding.interval.high


def test_it_is_the_statistics_of_compare_and_no_other() -> None:
    measurements = rivals({"ext4": 1.0, "btrfs": 0.97, "f2fs": 0.99}, boots=9)
    figures = {
        fs: tuple(m.throughput_mib_per_s for m in measurements if m.series.filesystem == fs)
        for fs in ("ext4", "btrfs", "f2fs")
    }
    joules = {
        fs: tuple(m.energy_mj_per_mib.value for m in measurements if m.series.filesystem == fs and m.energy_mj_per_mib)
        for fs in figures
    }
    found = contests(measurements)
    order = [
        pair for one in found[:1] for pair in ((a, b) for i, a in enumerate(one.names) for b in one.names[i + 1 :])
    ]
    expected = compare(
        [Comparison("", Metric.THROUGHPUT, figures[worse], figures[better]) for better, worse in order]
        + [Comparison("", Metric.ENERGY, joules[worse], joules[better]) for better, worse in order]
    )
    for one, first in zip(found, (expected[0], expected[3]), strict=True):
        basis = one.findings[0].basis
        assert (basis.p, basis.q, basis.ratio, basis.outcome) == (first.p, first.q, first.ratio, first.outcome)


def test_equal_filesystems_are_not_told_apart() -> None:
    """All pairs of a request together say `better` in about 1 % of requests without any difference."""
    wrong = 0
    for seed in range(20):
        same = rivals({"ext4": 1.0, "btrfs": 1.0, "f2fs": 1.0}, workloads=(READ, WRITE), boot_noise=0.03, seed=seed)
        wrong += any(one.behind for one in contests(same))
    assert wrong <= 1


def test_two_that_lead_together_are_both_named() -> None:
    (speed, _) = contests(rivals({"ext4": 1.0, "f2fs": 1.0, "btrfs": 0.7}, boots=10))
    assert not speed.decided
    assert set(speed.behind) == {"btrfs"}
    assert {speed.names[0], *speed.level} == {"ext4", "f2fs"}


def test_options_make_another_filesystem_and_kernels_another_contest() -> None:
    found = contests(rivals({"ext4": 1.0, "ext4 nobarrier": 1.4}, kernels=("6.1", "6.12")))
    assert [(one.kernel, one.metric) for one in found] == [
        ("6.1", Metric.THROUGHPUT),
        ("6.1", Metric.ENERGY),
        ("6.12", Metric.THROUGHPUT),
        ("6.12", Metric.ENERGY),
    ]
    assert {one.names for one in found} == {("ext4 (nobarrier)", "ext4 (default)")}
    assert all(one.decided for one in found)


def test_what_is_invalid_or_absent_takes_no_part() -> None:
    measurements = rivals({"ext4": 1.0, "btrfs": 0.8}, meter=False)
    assert [one.metric for one in contests(measurements)] == [Metric.THROUGHPUT]
    invalid = [replace(m, invalid_reasons=("no",)) if m.series.filesystem == "btrfs" else m for m in measurements]
    assert contests(invalid) == ()
    assert contests([]) == ()
    zero = [replace(m, throughput_mib_per_s=0.0) if m.series.filesystem == "btrfs" else m for m in measurements]
    assert contests(zero) == ()


def test_few_boots_give_no_verdict_but_say_how_many_would() -> None:
    (speed, _) = contests(rivals({"ext4": 1.0, "btrfs": 0.8}, boots=3))
    finding = speed.level["btrfs"]
    assert finding.outcome is Outcome.TOO_FEW
    assert 6 <= 3 + (finding.basis.more_baseline or 0) <= 9


def test_single_boots_in_guest_time_differ_far_or_not() -> None:
    (speed, _) = contests(rivals({"ext4": 1.0, "btrfs": 0.8, "f2fs": 0.99}, boots=1, noise=0.001, guest_time=True))
    assert not speed.decided
    assert speed.level["btrfs"].far
    assert not speed.level["f2fs"].far
    (speed, _) = contests(rivals({"ext4": 1.0, "btrfs": 0.8}, boots=1))
    assert not speed.level["btrfs"].far


def test_more_pairs_than_anyone_waits_for_are_not_compared() -> None:
    many = {f"fs{n}": 1.0 for n in range(210)}
    assert len(many) * (len(many) - 1) // 2 > MOST_PAIRS
    assert contests(rivals(many, boots=1, meter=False)) == ()
