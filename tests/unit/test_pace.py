"""The time that is left of a run."""

from __future__ import annotations

import pytest

from fsjoule.model import KIB, MIB, FioWorkload, IoPattern, Planned, Provision
from fsjoule.suites import Pace

READ = FioWorkload(IoPattern.READ, 16 * KIB, 16 * MIB)
WRITE = FioWorkload(IoPattern.WRITE, 16 * KIB, 16 * MIB)


def entries(repetitions: int) -> list[Planned]:
    """Two workloads on two filesystems in each boot."""
    wanted = [(r, fs, work) for r in range(1, repetitions + 1) for fs in ("ext4", "btrfs") for work in (READ, WRITE)]
    return [
        Planned(number, repetition, "6.1", fs, work, "quick", Provision.SCRATCH)
        for number, (repetition, fs, work) in enumerate(wanted, start=1)
    ]


def test_nothing_is_said_before_there_is_enough_to_learn_from() -> None:
    pace = Pace(entries(2))
    pace.note(1, 50.0, 20.0)
    pace.note(2, 30.0, 0.0)
    assert (pace.left_s, pace.text) == (None, "")


def test_what_is_left_takes_as_long_as_its_like_took_with_its_boots() -> None:
    pace = Pace(entries(3))
    for number, seconds, booting_s in ((1, 50.0, 20.0), (2, 60.0, 0.0), (3, 40.0, 0.0), (4, 70.0, 0.0)):
        pace.note(number, seconds, booting_s)
    # A boot of 20 s and 30 + 60 + 40 + 70 s of work, twice more.
    assert pace.left_s == pytest.approx(2 * 220.0)
    assert pace.text == "about 8 min left"


def test_a_run_that_may_end_early_says_at_most_and_a_finished_one_nothing() -> None:
    pace = Pace(entries(1), may_end_early=True)
    for number in (1, 2, 3):
        pace.note(number, 30.0, 0.0)
    assert pace.text == "about 1 min left at most"
    pace.note(4, 30.0, 0.0)
    assert pace.text == ""


def test_an_entry_of_another_plan_changes_nothing() -> None:
    pace = Pace(entries(1))
    pace.note(99, 30.0, 0.0)
    assert pace == Pace(entries(1))
