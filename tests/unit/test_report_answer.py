"""The head of a run's page: which filesystem is better, where an aborted run ended, and what a gate said."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from results_factory import make_run
from rivals import MKFS, READ, WRITE, rivals

from fsjoule.model import Fault, Measurement, Run, RunStatus, TimedWorkload
from fsjoule.report.answer import UNDECIDED, RunAnswer, answer, answer_document
from fsjoule.report.page import ended_text, render_page
from fsjoule.report.summary import summarise
from fsjoule.suites import suite
from fsjoule.verdicts.filesystems import contests

RUN = make_run(filesystems=("ext4",), repeat=1).run


def answered(measurements: Sequence[Measurement], run: Run = RUN) -> RunAnswer:
    return answer(summarise(run, measurements), contests(measurements))


def text(page: str) -> str:
    return " ".join(re.sub(r"(?s)<style>.*?</style>|<[^>]*>", " ", page).split())


def test_the_answer_says_which_by_how_much_and_how_sure() -> None:
    found = answered(rivals({"ext4": 1.0, "btrfs": 0.55}, workloads=(READ, MKFS), boots=3))
    assert found.headline == (
        "ext4 is faster in 2 of 2 operations (read 16 KiB: 1.8 times as fast) and uses less energy in 2 of 2 "
        "operations (read 16 KiB: 45 % less)."
    )
    (read, mkfs) = found.lines
    assert read.operation == READ.label
    assert read.speed is not None
    assert (read.speed.best, read.speed.brief) == ("ext4", "1.8 times as fast")
    assert re.fullmatch(r"1\.8 times as fast as btrfs \(95 %: 1\.\d\d to 1\.\d\d\)", read.speed.why), read.speed.why
    assert mkfs.energy is not None
    assert re.fullmatch(r"4\d % less energy than btrfs \(95 %: 4\d to 4\d %\)", mkfs.energy.why), mkfs.energy.why
    assert "at most 1 % of what is said is false" in found.rules


def test_what_is_open_says_how_many_boots_would_decide_it() -> None:
    found = answered(rivals({"ext4": 1.0, "btrfs": 0.97}, boots=3))
    assert found.headline == "Not yet decided: 2 of 2 figures (2 more boots)."
    (line,) = found.lines
    assert line.speed is not None
    assert (line.speed.best, line.speed.brief, line.speed.decided) == (UNDECIDED, "2 more boots", False)
    assert re.fullmatch(r"2 more boots; so far ext4 3\.\d % faster than btrfs \(95 %: 2.*\)", line.speed.why)
    (line,) = answered(rivals({"ext4": 1.0, "btrfs": 0.97}, noise=0.2)).lines
    assert line.speed is not None
    assert line.speed.best == UNDECIDED
    assert line.speed.why.startswith("more than 100 more boots; so far btrfs ")


def test_what_is_equal_says_within_what() -> None:
    found = answered(rivals({"ext4": 1.0, "btrfs": 1.0}, noise=0.002))
    assert found.headline == "btrfs and ext4 are equal within 5 % in 2 of 2 figures."
    (line,) = found.lines
    assert line.speed is not None
    assert (line.speed.best, line.speed.why, line.speed.decided) == ("equal within 5 %", "btrfs and ext4", True)


def test_one_boot_is_no_answer_and_two_in_guest_time_are() -> None:
    found = answered(rivals({"ext4": 1.0, "btrfs": 0.7}, boots=1, guest_time=True))
    assert found.headline == "Not yet decided: 2 of 2 figures (1 more boot)."
    found = answered(rivals({"ext4": 1.0, "btrfs": 0.7}, boots=2, guest_time=True))
    assert found.headline.startswith("ext4 is faster in 1 of 1 operation (read 16 KiB: 44 % faster)")
    assert "With the card" in found.rules


def test_of_three_those_that_lead_together_are_named() -> None:
    (line,) = answered(rivals({"ext4": 1.0, "f2fs": 1.0, "btrfs": 0.7}, boots=10)).lines
    assert line.speed is not None
    assert set(line.speed.best.split(" or ")) == {"ext4", "f2fs"}
    assert "than btrfs" in line.speed.why
    assert line.speed.why.endswith("; ext4 equal within 5 %")
    assert line.speed.decided


def test_many_filesystems_keep_the_cell_short() -> None:
    many = {f"ext4 option{n}": 1.0 + n / 5 for n in range(9)}
    (line,) = answered(rivals(many, boots=10, noise=0.001)).lines
    assert line.speed is not None
    assert line.speed.best == "ext4 (option8)"
    assert line.speed.why.count(" than ") == 4
    assert line.speed.why.endswith("and than 5 others")


@pytest.mark.parametrize(
    ("measurements", "headline"),
    [
        ([], "Nothing was measured: there is no answer."),
        (rivals({"ext4": 1.0}), "Only ext4 has valid figures: there is nothing to compare it with."),
        (
            rivals({"ext4": 1.0}, kernels=("6.1", "6.12")),
            (
                "Only ext4 has valid figures: there is nothing to compare it with. "
                "To compare its kernels: fsjoule compare 6.1 6.12 --within k3v9q2"
            ),
        ),
        (
            [replace(m, invalid_reasons=("no",)) for m in rivals({"ext4": 1.0, "btrfs": 0.8}, boots=1)],
            "No measurement is valid: there is no answer.",
        ),
        (
            [*rivals({"ext4": 1.0}), *rivals({"btrfs": 1.0}, workloads=(WRITE,))],
            "No operation has valid figures of two filesystems: there is no answer.",
        ),
        (
            rivals({f"fs{n}": 1.0 for n in range(210)}, boots=1, meter=False),
            "210 filesystems are too many to compare each with each: there is no answer.",
        ),
    ],
)
def test_without_two_filesystems_the_headline_says_so(measurements: list[Measurement], headline: str) -> None:
    found = answered(measurements)
    assert (found.headline, found.lines) == (headline, ())


def test_a_boot_from_power_on_says_what_it_takes_and_where() -> None:
    whole, *parts = (each for each in suite("power-on").workloads if isinstance(each, TimedWorkload))
    [boot] = rivals({"ext4": 1.0}, boots=1, workloads=(whole,))
    energy = boot.energy
    assert energy is not None
    shares = {"power": None, "spl": 0.001, "u-boot": 0.6, "kernel": 0.3, "init": 0.099}
    segments = [
        replace(
            boot,
            workload=part,
            number=number,
            series=replace(boot.series, workload=part.identity),
            duration_s=None if share is None else 1.0,
            energy=None if share is None else replace(energy, gross_mj=replace(energy.gross_mj, value=share * 25_000)),
        )
        for number, (part, share) in enumerate(zip(parts, shares.values(), strict=True), boot.number + 1)
    ]
    assert [part.segment for part in parts] == list(shares)
    boot = replace(boot, duration_s=24.21, energy=replace(energy, gross_mj=replace(energy.gross_mj, value=25_000.0)))
    found = answered([boot, *segments])
    said = "24.2 s and 25 J from power-on to ready; most joules: u-boot 60 %, kernel 30 %, init 10 %."
    assert (found.headline, len(found.tiles)) == (said, 5)


def test_a_single_filesystem_shows_its_figures_in_the_tiles() -> None:
    measurements = rivals({"ext4": 1.0}, workloads=(READ, MKFS), guest_time=True)
    found = answered(measurements)
    assert [
        (tile.operation, tile.speed and tile.speed.best, tile.energy and tile.energy.best) for tile in found.tiles
    ] == [
        (READ.label, "20.0 MiB/s", "4.00 mJ/MiB"),
        (MKFS.label, "0.892 s", "1112 mJ"),
    ]
    assert "<dd>20.0 MiB/s</dd>" in render_page(summarise(RUN, measurements), measurements, lambda _: None)


def test_the_documents_figures_come_in_the_pages_order() -> None:
    measurements = rivals({"ext4": 1.0, "btrfs": 0.8}, workloads=(MKFS, WRITE, READ), boots=1)
    document = answer_document(summarise(RUN, measurements), contests(measurements))
    figures = document["figures"]
    assert isinstance(figures, list)
    assert [figure["operation"] for figure in figures] == [
        each for each in (READ.slug, WRITE.slug, MKFS.slug) for _ in "12"
    ]


def test_kernels_and_a_missing_meter_are_on_the_page() -> None:
    measurements = rivals({"ext4": 1.0, "btrfs": 0.8}, kernels=("6.1", "6.12"), meter=False)
    run = replace(RUN, plan=replace(RUN.plan, kernels=("6.1", "6.12")))
    page = text(render_page(summarise(run, measurements), measurements, lambda _: None))
    assert "ext4 is faster in 2 of 2 operations (" in page
    assert "kernel 6.12 ext4 2" in page
    assert "less energy" not in page


def test_an_aborted_run_says_where_it_ended_and_why() -> None:
    entries = RUN.plan.entries
    aborted = replace(RUN, status=RunStatus.ABORTED, abort_reason="interrupted (SIGINT)")
    first, second, third = entries[:3]
    assert ended_text(aborted, [first.number]) == (
        f"It ended at measurement {second.number:02d} of {len(entries)}, {second.slug} in repetition 1: "
        "interrupted (SIGINT)."
    )
    passed = Fault(first.number, "", "", "no login within 180 s", transient=True)
    assert f"{second.slug} in" in ended_text(replace(aborted, faults=(passed,)), [])
    fatal = Fault(second.number, "", "", "the outlet does not answer\n  console|", transient=False)
    ended = replace(aborted, faults=(passed, fatal), abort_reason="the outlet does not answer")
    assert f"{second.slug} in" in ended_text(ended, [first.number])
    later = ended_text(replace(ended, abort_reason="interrupted"), [first.number])
    assert f"{third.slug} in repetition 1: interrupted." in later
    assert later.endswith(f"The last fault before, at {second.slug} in repetition 1: the outlet does not answer.")
    lost = replace(ended, abort_reason="2 of 3 measurements were not taken")
    assert ended_text(lost, [first.number]).startswith(f"1 of {len(entries)} planned measurements are stored: 2 of 3 ")
    assert second.slug in ended_text(lost, [first.number])
    assert ended_text(aborted, [entry.number for entry in entries]).startswith(f"{len(entries)} of {len(entries)} ")
    page = text(render_page(summarise(aborted, []), [], lambda _: None))
    assert f"It ended at measurement {first.number:02d} of {len(entries)}, {first.slug}" in page
