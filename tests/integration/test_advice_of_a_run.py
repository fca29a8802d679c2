"""The advice in the report of a single run."""

from __future__ import annotations

from pathlib import Path

from advised_runs import PLAIN, changed, write_cuts, write_parts

from fsjoule.report.run import write_report

QUICK = {"ext4": PLAIN, "ext4:nobarrier": changed("write-4k-fsync1", joules=1.0, seconds=0.7, p99_ms=8.0)}


def test_a_run_that_has_all_parts_of_a_day_advises_in_its_report(tmp_path: Path) -> None:
    page = " ".join(write_report(write_parts(tmp_path / "whole", "aaaaaa", QUICK)).read_text().split())
    section = page[page.index('<section id="advice">') :].partition("</section>")[0]
    assert "<h3>logger: a data logger on a battery that sleeps between its samples</h3>" in section
    assert "ext4: it flushes what is synced; last ext4:nobarrier (the least energy, 38." in section
    assert "not measured: loss" in section
    assert "Not measured: power-loss-async." in section
    assert "fsjoule advise . --profile logger -o logger.html" in section
    # The other profiles do what this run has not measured.
    assert section.count("<h3>") == 1
    assert "simulated" in section


def test_a_run_with_too_little_advises_nothing(tmp_path: Path) -> None:
    lacking = {slug: part for slug, part in PLAIN.items() if slug != "read-64k"}
    runs = {
        "one filesystem": write_parts(tmp_path / "1", "aaaaaa", {"ext4": PLAIN}),
        "a part is missing": write_parts(tmp_path / "2", "aaaaaa", {"ext4": lacking, "btrfs": lacking}),
        "one of two has a part": write_parts(tmp_path / "3", "aaaaaa", {"ext4": PLAIN, "btrfs": lacking}),
        "only power cuts": write_cuts(tmp_path / "4", "aaaaaa", {"ext4": (0,), "btrfs": (1,)}),
    }
    for why, run in runs.items():
        assert 'id="advice"' not in write_report(run).read_text(), why
