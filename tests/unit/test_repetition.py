"""Boots go on until each statement about two filesystems is decided, and no further."""

from __future__ import annotations

from rivals import READ, WRITE, rivals

from fsjoule.model import Plan
from fsjoule.runs.options import BenchOptions
from fsjoule.runs.plan import Repetition
from fsjoule.runs.request import choose
from fsjoule.suites import Planning, plan_entries, suite


def plan(repeat: int = 12) -> Plan:
    entries = plan_entries(suite("quick"), Planning(("ext4", "btrfs"), ("6.1",), repeat=repeat, seed=3)).entries
    return Plan("quick", ("ext4", "btrfs"), ("6.1",), repeat, 3, {}, entries, until_decided=True)


def repetition(boards: int = 1, begun: int = 0, *, guest_time: bool = True) -> Repetition:
    measured = rivals({"ext4": 1.0, "btrfs": 0.5}, boots=begun) if begun else ()
    return Repetition.of(plan(), suite("quick"), guest_time=guest_time, boards=boards, measured=measured)


def test_two_boots_decide_a_large_difference_and_are_the_runs_plan() -> None:
    boots = repetition()
    assert boots.intent().startswith("2 to 12 boots of each")
    boots, line = boots.after(rivals({"ext4": 1.0, "btrfs": 0.5}, boots=2, boot_noise=0.001))
    assert (line, boots.until) == ("after 2 boots: 2 of 2 figures decided", 2)
    ended = boots.ended()
    assert (ended.repeat, ended.until_decided) == (2, True)
    assert ended.entries == plan(2).entries


def test_boots_go_on_one_for_each_board_and_end_at_the_most() -> None:
    boots, lines = repetition(boards=4, guest_time=False), list[str]()
    while True:
        before = boots.until
        noisy = rivals({"ext4": 1.0, "btrfs": 0.99}, boots=before, noise=0.3, seed=2)
        boots, line = boots.after(noisy)
        lines.append(line)
        if boots.until == before:
            break
    assert lines[0].endswith("0 of 2 figures decided so far; boots 4 to 7 follow, of at most 12")
    assert lines[2].endswith("; boot 12 follows, of at most 12")
    assert lines[-1].endswith("more boots are not measured (--repeat N measures N)")


def test_a_run_that_goes_on_completes_what_it_has_begun() -> None:
    assert repetition(begun=5).until == 5


def test_without_two_filesystems_nothing_is_decided() -> None:
    assert repetition().after(rivals({"ext4": 1.0}, boots=2))[1] == ""


def test_the_first_decided_figure_is_news() -> None:
    boots = repetition()
    measured = rivals({"ext4": 1.0, "btrfs": 0.5}, workloads=(READ, WRITE), boots=2, boot_noise=0.001)
    assert boots.news([each for each in measured if each.repetition == 1]) == ""
    assert boots.news(measured).startswith(f"so far: {READ.label}: ext4 is 2.0 times as fast as btrfs (95 %: ")


def test_crash_states_are_counted_in_one_boot() -> None:
    counted = choose(BenchOptions(suite="crash-states", fs="ext4,vfat"))
    assert (counted.repeat, counted.until_decided) == (1, False)
    judged = choose(BenchOptions(suite="quick", fs="ext4,vfat"))
    assert (judged.repeat, judged.until_decided) == (12, True)
