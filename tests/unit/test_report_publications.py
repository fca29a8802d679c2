"""A run of a publication's suite in the publication's own form."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from results_factory import MadeRun, make_measurement, make_run

from fsjoule.model import (
    DamageOutcome,
    FileFate,
    FlakeyModel,
    FlakeyWorkload,
    Measurement,
    Plan,
    Planned,
    PowerLossWorkload,
    Provision,
    TimedKind,
    TimedWorkload,
)
from fsjoule.report import publications
from fsjoule.report.page import render_page
from fsjoule.report.publications import SuitePage, suite_page
from fsjoule.report.summary import summarise
from fsjoule.report.table import Table, Tone
from fsjoule.report.tables import PUBLISHED
from fsjoule.suites.published.catalogue import PUBLICATIONS
from fsjoule.suites.published.statements import Holds


def _of_suite(made: MadeRun, suite: str) -> MadeRun:
    """The same run, as one of another suite."""
    plan = made.run.plan
    entries = tuple(replace(entry, suite=suite) for entry in plan.entries)
    run = replace(made.run, plan=replace(plan, suite=suite, size_factors={suite: 0.0625}, entries=entries))
    return MadeRun(
        run,
        tuple(replace(m, series=replace(m.series, suite=suite)) for m in made.measurements),
        made.traces,
    )


@pytest.fixture(scope="module")
def energy() -> MadeRun:
    return _of_suite(make_run(block_sizes_kib=(16, 32, 64), size_mib=1), "energy-emmc-2025")


def _page(made: MadeRun) -> SuitePage:
    page = suite_page(summarise(made.run, made.measurements))
    assert page is not None
    return page


def _column(table: Table, name: str) -> list[str]:
    index = [column.name for column in table.columns].index(name)
    return [row[index].joined for row in table.rows]


def test_tables_lie_beside_the_publications_own(energy: MadeRun) -> None:
    tables = _page(energy).sections[0].tables
    numbers = ("I", "II", "III", "IV", "V", "VI")
    assert [table.title.partition(":")[0] for table in tables[:6]] == [f"Table {number}" for number in numbers]
    assert [table.title.partition(": ")[2] for table in tables[:6]] == [
        f"{filesystem}, {kib} KiB" for filesystem, kib in product(("ext4", "btrfs"), (16, 32, 64))
    ]
    for table in tables[:6]:
        assert _column(table, "operation") == ["read", "write", "randread", "randwrite"]
        # Throughput, power and energy each have what is printed and the ratio to it.
        assert [column.name for column in table.columns].count(PUBLISHED) == 3
        assert [column.name for column in table.columns].count("ratio") == 3
    assert _column(tables[1], PUBLISHED) == ["44.3", "12.4", "20.0", "10.9"]


def test_a_publication_without_a_form_of_its_own_has_published_figures_beside_measured_ones(
    energy: MadeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = replace(PUBLICATIONS["energy-emmc-2025"], sections="")
    monkeypatch.setattr(publications, "PUBLICATIONS", {**PUBLICATIONS, plain.name: plain})
    (section,) = _page(energy).sections
    (table,) = section.tables
    ext4 = [row for row in table.rows if row[1].joined == "ext4"]
    published = [column.name for column in table.columns].index(PUBLISHED)
    assert [row[published].joined for row in ext4 if row[0].joined == "read 32 KiB"] == ["44.3"]
    titles = ["Figures: time", "Figures: throughput"]
    assert [title for title, draw in zip(titles, section.charts, strict=True) if title in (draw() or "")] == titles
    copies = _page(_of_suite(make_run(), "copy-2015")).sections
    assert PUBLISHED not in {column.name for section in copies for table in section.tables for column in table.columns}


def test_doubtful_cells_are_marked_where_they_stand_and_explained(energy: MadeRun) -> None:
    page = _page(energy)
    doubtful = {
        (table.title, cell.joined)
        for table in page.sections[0].tables
        for row in table.rows
        for cell in row
        if cell.tone is Tone.DOUBT
    }
    assert doubtful == {
        ("Table I: ext4, 16 KiB", "1.26 ± ‡0.6"),
        ("Table IV: btrfs, 16 KiB", "1.37 ± ‡0.9"),
        ("Table IV: btrfs, 16 KiB", "‡144.03"),
        ("Table V: btrfs, 32 KiB", "‡147.15"),
        ("Table VI: btrfs, 64 KiB", "‡105.31"),
    }
    assert any("‡" in note for note in page.sections[0].notes)
    assert len(page.doubts) == len(doubtful)
    assert dict(page.doubts)["btrfs write 64 KiB energy"].startswith("printed 105.31 mJ/MiB, expected 104.42 mJ/MiB")


def test_statements_say_which_figures_decide_them(energy: MadeRun) -> None:
    page = _page(energy)
    lines = {line.text: line for line in page.statements}
    faster = lines["ext4 is faster than btrfs in every pattern at every block size"]
    assert faster.details[0].startswith("here: ")
    assert " of 12 pairs; " in faster.details[0]
    assert " KiB: " in faster.details[0] or "not measured" in faster.details[0]
    contradicted = lines["Larger blocks improve sequential reads of ext4"]
    assert "its tables do not" in contradicted.details[1]
    counted = sum(int(part.split()[0]) for part in page.tally.split(", "))
    assert counted == len(page.statements)


def test_all_of_it_is_on_the_page(energy: MadeRun) -> None:
    page = _page(energy)
    html = render_page(summarise(energy.run, energy.measurements), energy.measurements, lambda _: None)
    assert all(f"<h3>{table.title}</h3>" in html for table in page.sections[0].tables)
    assert f"Here {page.tally}." in html
    assert "size factor 0.0625" in html


# ----------------------------------------------------------------------------------------------------------- hazards


def _hazards(outcomes: dict[tuple[str, FlakeyModel | bool], list[DamageOutcome]]) -> MadeRun:
    """Iterations by filesystem and model of damage, or by filesystem and whether it is mounted sync."""
    made = make_run(repeat=1)
    entries: list[Planned] = []
    measurements: list[Measurement] = []
    for (filesystem, how), found in outcomes.items():
        flakey = isinstance(how, FlakeyModel)
        suite = f"elc2015/{'dm-flakey' if flakey else 'power-loss'}"
        workload = FlakeyWorkload(how) if isinstance(how, FlakeyModel) else PowerLossWorkload(how)
        mount = TimedWorkload(TimedKind.MOUNT)
        for repetition, outcome in enumerate(found, start=1):
            entry = Planned(
                len(entries) + 1, repetition, "6.1", filesystem, workload, suite=suite, provision=Provision.SCRATCH
            )
            measured, _ = make_measurement(replace(entry, workload=mount))
            series = replace(measured.series, suite=suite, workload=workload.slug)
            entries.append(entry)
            measurements.append(replace(measured, workload=workload, series=series, outcome=outcome))
    suites = dict.fromkeys((entry.suite for entry in entries), 1.0)
    filesystems = tuple(dict.fromkeys(name for name, _ in outcomes))
    plan = Plan("elc2015", filesystems, ("6.1",), 2, 7, suites, tuple(entries))
    return MadeRun(replace(made.run, plan=plan), tuple(measurements), {})


def _kept(**fates: int) -> DamageOutcome:
    files = {FileFate(name): count for name, count in fates.items()}
    return DamageOutcome(files, mounts=True, read_only=False, check_exit=0, check_clean=True)


def test_damage_that_is_told_and_damage_that_is_not() -> None:
    made = _hazards(
        {
            ("ext4", FlakeyModel.AFTER_10S): [_kept(intact=3, silent=6), _kept(intact=9)],
            ("ext4", FlakeyModel.ALTERNATING): [_kept(intact=5, zeroed=4), _kept(intact=5, silent=4)],
            ("btrfs", FlakeyModel.AFTER_10S): [_kept(intact=3, detected=6), _kept(intact=9)],
            ("btrfs", FlakeyModel.ALTERNATING): [_kept(detected=9), _kept(detected=9)],
        }
    )
    page = _page(made)
    section = page.sections[0]
    mounts, files = section.tables
    assert section.anchor == "dm-flakey"
    assert _column(mounts, "damage") == ["after-10s", "after-10s", "alternating", "alternating"]
    assert _column(mounts, "filesystem") == ["ext4", "btrfs", "ext4", "btrfs"]
    assert _column(mounts, "failed") == ["1", "1", "2", "2"]
    assert sum(map(int, _column(files, "silent"))) == 10
    assert sum(map(int, _column(files, "detected"))) == 24
    told = {line.text: line.holds for line in page.statements}
    assert set(told.values()) == {Holds.YES}
    assert {text.split(",")[0].split(" ")[0] for text in told} == {"btrfs", "ext4"}


def test_a_lost_file_contradicts_the_statement_and_says_how_often() -> None:
    bad = [_kept(intact=9, missing=1), _kept(intact=10)]
    made = _hazards({("ext4", True): [_kept(intact=9)] * 2, ("ext4", False): bad})
    page = _page(made)
    line = next(line for line in page.statements if line.text.startswith("ext4 loses no file"))
    assert line.holds is Holds.NO
    assert line.details[0] == "here: ext4 power-loss-async 1 of 2 (1 to 99 %)"
    assert "not among our data" in line.details[1]
