"""Which filesystem of a run is better: the rule over all pairs of all operations together."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from rivals import MKFS, READ, WRITE, rivals

from fsjoule.model.metrics import Metric
from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.superiority import REAL_TIME, statements
from fsjoule.verdicts.filesystems import MOST_PAIRS, Contest, contests


def named(found: tuple[Contest, ...]) -> dict[tuple[str, Metric], Contest]:
    return {(one.workload.slug, one.metric): one for one in found}


def test_the_better_filesystem_is_told_with_ratio_and_interval() -> None:
    found = named(contests(rivals({"ext4": 1.0, "btrfs": 0.8}, workloads=(READ, MKFS), boots=3)))
    assert set(found) == {
        (READ.slug, Metric.THROUGHPUT),
        (READ.slug, Metric.ENERGY),
        (MKFS.slug, Metric.DURATION),
        (MKFS.slug, Metric.OPERATION_ENERGY),
    }
    for (_, metric), one in found.items():
        assert one.names == ("ext4", "btrfs")
        assert one.has_winner
        finding = one.those(Outcome.IMPROVED)["btrfs"]
        assert finding.ratio == pytest.approx(1.25 if metric is Metric.THROUGHPUT else 0.8, rel=0.02)
        assert finding.interval is not None
        assert finding.interval.low < (finding.ratio or 0) < finding.interval.high
        assert (finding.candidate or 0) / (finding.baseline or 1) == pytest.approx(finding.ratio)


def test_it_is_the_rule_over_all_pairs_of_the_run() -> None:
    measurements = rivals({"ext4": 1.0, "btrfs": 0.97, "f2fs": 0.99}, boots=5)

    def figures(name: str) -> tuple[list[float], list[float]]:
        its = [m for m in measurements if m.series.filesystem == name]
        return [m.throughput_mib_per_s or 0 for m in its], [
            m.energy_mj_per_mib.value for m in its if m.energy_mj_per_mib
        ]

    found = contests(measurements)
    order = [(a, b) for i, a in enumerate(found[0].names) for b in found[0].names[i + 1 :]]
    speed, joules = ([np.log(figures(a)[kind]) - np.log(figures(b)[kind]) for a, b in order] for kind in range(2))
    expected = statements([speed, [-each for each in joules]], REAL_TIME)
    for one, its in zip(found, expected, strict=True):
        for finding, statement in zip(one.findings, its, strict=False):
            basis = finding.basis
            assert (basis.outcome, basis.more_boots) == (statement.outcome, statement.more_boots)
            assert (basis.better, basis.worse, basis.equal) == pytest.approx(
                (statement.better, statement.worse, statement.equal)
            )
    less = found[1].findings[0]
    assert less.ratio == pytest.approx(1 / (less.basis.ratio or math.nan))


def test_figures_of_one_boot_are_compared_with_each_other() -> None:
    """A level that all filesystems of a boot share cancels; a boot that only one has takes no part."""
    measurements = rivals({"ext4": 1.0, "btrfs": 0.97}, boots=6, boot_noise=0.3, noise=0.001)
    (speed, _) = contests(measurements)
    assert speed.findings[0].outcome is Outcome.IMPROVED
    alone = [m for m in measurements if m.series.filesystem == "ext4" or m.repetition < 3]
    (speed, _) = contests(alone)
    assert speed.findings[0].boots == (2, 2)
    assert speed.more_boots == 1


def test_equal_filesystems_are_not_told_apart() -> None:
    """Of the runs without a difference, at most 1 % call any filesystem better."""
    for seed in range(20):
        same = rivals({"ext4": 1.0, "btrfs": 1.0, "f2fs": 1.0}, workloads=(READ, WRITE), boot_noise=0.03, seed=seed)
        assert not any(one.those(Outcome.IMPROVED) for one in contests(same))


def test_two_that_lead_together_are_both_named() -> None:
    (speed, _) = contests(rivals({"ext4": 1.0, "f2fs": 1.0, "btrfs": 0.7}, boots=10))
    assert speed.decided
    assert not speed.has_winner
    assert set(speed.those(Outcome.IMPROVED)) == {"btrfs"}
    assert {speed.names[0], *speed.those(Outcome.UNCHANGED)} == {"ext4", "f2fs"}


def test_options_make_another_filesystem_and_kernels_another_contest() -> None:
    found = contests(rivals({"ext4": 1.0, "ext4 nobarrier": 1.4}, kernels=("6.1", "6.12")))
    assert [(one.kernel, one.metric) for one in found] == [
        ("6.1", Metric.THROUGHPUT),
        ("6.1", Metric.ENERGY),
        ("6.12", Metric.THROUGHPUT),
        ("6.12", Metric.ENERGY),
    ]
    assert {one.names for one in found} == {("ext4 (nobarrier)", "ext4 (default)")}
    assert all(one.has_winner for one in found)


def test_what_is_invalid_or_absent_takes_no_part() -> None:
    measurements = rivals({"ext4": 1.0, "btrfs": 0.8}, meter=False)
    assert [one.metric for one in contests(measurements)] == [Metric.THROUGHPUT]
    invalid = [replace(m, invalid_reasons=("no",)) if m.series.filesystem == "btrfs" else m for m in measurements]
    assert contests(invalid) == ()
    assert contests([]) == ()
    zero = [replace(m, throughput_mib_per_s=0.0) if m.series.filesystem == "btrfs" else m for m in measurements]
    assert contests(zero) == ()


def test_one_boot_decides_nothing_but_says_how_many_would() -> None:
    for guest_time, more in ((False, 2), (True, 1)):
        (speed, _) = contests(rivals({"ext4": 1.0, "btrfs": 0.8}, boots=1, guest_time=guest_time))
        finding = speed.those(Outcome.UNDECIDED)["btrfs"]
        assert (finding.interval, speed.more_boots, speed.with_card) == (None, more, guest_time)


def test_more_pairs_than_anyone_waits_for_are_not_compared() -> None:
    many = {f"fs{n}": 1.0 for n in range(210)}
    assert len(many) * (len(many) - 1) // 2 > MOST_PAIRS
    assert contests(rivals(many, boots=1, meter=False)) == ()
