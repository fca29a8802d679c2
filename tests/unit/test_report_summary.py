"""Aggregation: means of valid repetitions, the published figures beside them, and where the time went."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from results_factory import MadeRun, make_run

from fsjoule.model import KIB, MIB, FioWorkload, IoPattern, TimedKind, TimedWorkload
from fsjoule.model.metrics import Metric
from fsjoule.report.numbers import decimals_for, mean_text, ratio_text, sd_text, seconds_text
from fsjoule.report.run import to_json
from fsjoule.report.summary import summarise
from fsjoule.report.tables import FEWER, fio_footnote, fio_table, published_table
from fsjoule.statistics.spread import Spread
from fsjoule.suites.published.catalogue import row_for


@pytest.fixture(scope="module")
def made() -> MadeRun:
    return make_run()


def test_rows_are_means_of_valid_repetitions_only(made: MadeRun) -> None:
    summary = summarise(made.run, made.measurements)
    row = summary.fio[0]
    assert (row.label, row.workload.operation, row.valid, row.invalid) == ("ext4", IoPattern.READ, 2, 1)
    group = [m for m in made.measurements if m.series == row.series and m.valid]
    speeds = [m.throughput_mib_per_s or 0.0 for m in group]
    assert row.figures[Metric.THROUGHPUT] == Spread(2, statistics.fmean(speeds), statistics.stdev(speeds))
    assert row.figures[Metric.P99_LATENCY] == Spread(2, 9.0, 0.0)
    assert [m.number for m in summary.invalid] == [2]


def test_rows_are_ordered_by_operation_and_then_as_the_plan_names_filesystems(made: MadeRun) -> None:
    summary = summarise(made.run, made.measurements)
    assert [(row.workload.operation.value, row.label) for row in summary.fio[:3]] == [
        ("read", "ext4"),
        ("read", "btrfs"),
        ("write", "ext4"),
    ]
    assert [row.workload.operation for row in summary.timed[:2]] == [TimedKind.BOOT, TimedKind.MKFS]


def test_a_figure_that_one_repetition_lacks_is_averaged_over_the_others_and_marked(made: MadeRun) -> None:
    summary = summarise(made.run, made.measurements)
    powers = [row.figures.get(Metric.POWER) for row in summary.fio]
    (index,) = (i for i, power in enumerate(powers) if power and power.n < summary.fio[i].valid)
    assert Metric.THROUGHPUT in summary.fio[index].figures
    cells = dict(zip((c.name for c in fio_table(summary).columns), fio_table(summary).rows[index], strict=True))
    assert cells["power"].text.startswith(FEWER)
    assert not cells["throughput"].text.startswith(FEWER)


def test_without_any_figure_there_is_none_and_never_a_zero() -> None:
    made = make_run(repeat=1)
    bare = [replace(m, energy=None, energy_mj_per_mib=None, throughput_mib_per_s=None) for m in made.measurements]
    summary = summarise(made.run, bare)
    assert all(Metric.ENERGY not in row.figures and row.throughput_ratio is None for row in summary.fio)
    assert all(not {Metric.OPERATION_ENERGY, Metric.POWER} & row.figures.keys() for row in summary.timed)


def test_an_empty_run_has_a_summary() -> None:
    made = make_run()
    summary = summarise(replace(made.run, boards={}, images=(), phases_s={}), [])
    assert (summary.measured, summary.fio, summary.timed, summary.phases, summary.utilisation) == (0, (), (), (), None)
    assert published_table(summary) is None


def test_variants_of_a_filesystem_are_told_apart(made: MadeRun) -> None:
    measurement = next(m for m in made.measurements if m.slug == "btrfs-read-16k")
    variant = replace(measurement, series=replace(measurement.series, mount_options=("compress=zstd",)))
    labels = {row.label for row in summarise(made.run, [measurement, variant]).fio}
    assert labels == {"btrfs (default)", "btrfs (compress=zstd)"}


def test_time_and_utilisation(made: MadeRun) -> None:
    summary = summarise(made.run, made.measurements)
    assert summary.utilisation == pytest.approx((118.0 + 31.1) / 301.5)
    assert sum(phase.share for phase in summary.phases) == pytest.approx(1.0)
    assert [phase.name for phase in summary.phases][:3] == ["setup", "flash", "boot"]
    extra = summarise(replace(made.run, phases_s={"store": 1.0, "boot": 3.0}), [])
    assert [(phase.name, phase.share) for phase in extra.phases] == [("boot", 0.75), ("store", 0.25)]


def test_notes_are_gathered(made: MadeRun) -> None:
    noted = [replace(m, notes=("no energy: silent",)) if m.number in (4, 9) else m for m in made.measurements]
    (remark,) = summarise(made.run, noted).remarks
    assert (remark.text, remark.numbers) == ("no energy: silent", (4, 9))


def test_published_figures_stand_beside_their_like(made: MadeRun) -> None:
    workload = FioWorkload(IoPattern.RANDWRITE, 32 * KIB, 500 * MIB)
    figure = row_for("energy-emmc-2025", "btrfs", workload)
    assert figure is not None
    assert (figure.throughput_mib_per_s, figure.energy_mj_per_mib) == (8.2, 147.15)
    assert row_for("quick", "btrfs", workload) == figure
    assert row_for("energy-emmc-2025", "xfs", workload) is None
    assert row_for("elc2015/bandwidth", "btrfs", workload) is None
    assert row_for("operations", "btrfs", workload) is None
    assert row_for("quick", "btrfs", replace(workload, jobs=4)) is None
    row = summarise(made.run, made.measurements).fio[0]
    assert row.throughput_ratio == row.figures[Metric.THROUGHPUT].mean / 44.8


def test_size_factor_is_told_for_published_suites_only(made: MadeRun) -> None:
    assert "size factor" not in fio_footnote(summarise(made.run, made.measurements))
    published = replace(made.run, plan=replace(made.run.plan, size_factors={"energy-emmc-2025": 0.03}))
    assert "(size factor 0.03)" in fio_footnote(summarise(published, made.measurements))


def test_json_holds_the_tables_and_every_measurement(made: MadeRun) -> None:
    document = json.loads(to_json(summarise(made.run, made.measurements), made.measurements))
    assert document["schema"] == "fsjoule.show/1"
    assert document["simulated"] is True
    assert document["summary"]["fio"][0]["published"]["throughput_mib_per_s"] == 44.8
    assert document["summary"]["invalid"][0]["number"] == 2
    assert [m["number"] for m in document["measurements"]] == [m.number for m in made.measurements]
    assert document["measurements"][1]["valid"] is False
    assert document["measurements"][2]["energy"] is None


@pytest.mark.parametrize(
    ("workload", "label"),
    [
        (FioWorkload(IoPattern.RANDREAD, 16 * KIB, MIB), "randread 16 KiB"),
        (FioWorkload(IoPattern.WRITE, 4 * MIB, MIB, direct=True, jobs=4), "write 4 MiB direct 4jobs"),
        (TimedWorkload(TimedKind.COPY, 24 * MIB), "copy 24 MiB"),
        (TimedWorkload(TimedKind.MOUNT), "mount"),
    ],
)
def test_labels_of_workloads(workload: FioWorkload | TimedWorkload, label: str) -> None:
    assert workload.label == label


def test_numbers_as_text() -> None:
    column = [Spread(3, 12.345, 0.21), Spread(3, 9.9, 0.18), None]
    assert decimals_for(column) == 2
    assert (mean_text(column[0], 1), sd_text(column[0], 1)) == ("12.3", "± 0.2")
    assert (mean_text(Spread(1, 12.345, None), 1), sd_text(Spread(1, 12.345, None), 1)) == ("12.3", "")
    assert (mean_text(None, 1), sd_text(None, 1)) == ("–", "")  # noqa: RUF001
    assert decimals_for([]) == 0
    assert ratio_text(0.274) == "× 0.27"  # noqa: RUF001
    assert ratio_text(0.001612) == "× 0.0016"  # noqa: RUF001
    assert ratio_text(0.0) == "× 0.00"  # noqa: RUF001
    assert seconds_text(8.31) == "8.3 s"
    assert seconds_text(252.2) == "4 min 12 s"


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=5), st.floats(0, 1e6))
def test_any_figures_have_a_text(means: list[float], sd: float) -> None:
    spreads = [Spread(2, mean, sd) for mean in means]
    decimals = decimals_for(spreads)
    assert 0 <= decimals <= 3
    assert all(sd_text(spread, decimals).startswith("± ") for spread in spreads)
