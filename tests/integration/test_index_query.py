"""What an index must answer, on every database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from index_runs import made_run, write_run
from results_factory import make_run

from fsjoule.errors import ConfigError
from fsjoule.model import (
    INSTRUCTIONS,
    KERNEL_INSTRUCTIONS,
    MIB,
    USER_INSTRUCTIONS,
    CrashFacts,
    CrashFate,
    DeviceCounters,
    FlashCounters,
    HeldFacts,
    Measurement,
    RunStatus,
    Value,
)
from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Metric, figure_of, uncertainty_of
from fsjoule.model.series import Order, Series, Where, comparable
from fsjoule.store.folder import RunFolder
from fsjoule.store.index import trend as index_trend
from fsjoule.store.index.database import Index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.queries import list_series, points, run_folders, stats
from fsjoule.store.index.selection import booted, resolve
from fsjoule.store.index.trend import Newest, kernel_labels, run_names
from fsjoule.store.selection import kernel_within
from fsjoule.store.trend_rows import NewestRows

NewLocation = Callable[[], str]

# Oldest first; their names would sort otherwise, and so do the times at which they are measured below.
KERNELS = (
    ("5.10.0-9-armmp", "5.10.70-1"),
    ("5.10.0-32-armmp", "5.10.223-1"),
    ("6.1.0-44-armmp", "6.1.9-1"),
    ("6.1.0-44-armmp", "6.1.164-1"),
    ("6.1.0-44-armmp", "6.1.164-2~bpo11+1"),
    ("6.1.0-44-armmp", "6.1.164-2"),
    ("6.12-rc7-armmp", ""),
    ("6.12.9-armmp", "6.12.9-1"),
    ("6.12.43+deb13-armmp", "6.12.43-1"),
)


# Those that fio reports.
PERCENTILES_NS = {
    f"{percent:f}": round(10_500_000 + (percent - 99) * 1e4)
    for percent in (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)
}


def with_all_figures(measurement: Measurement) -> Measurement:
    """Every figure another number."""
    energy = next(one.energy for one in made_run().measurements if one.energy is not None)
    fio = measurement.fio
    return replace(
        measurement,
        invalid_reasons=(),
        throughput_mib_per_s=1.5,
        iops=2.5,
        energy_mj_per_mib=Value(3.5, 0.35),
        energy_net_mj_per_mib=Value(4.5, 0.45),
        energy=replace(energy, gross_mj=Value(5.5, 0.55), net_mj=Value(6.5, 0.65), mean_power_w=Value(7.5, 0.75)),
        cpu_s_per_mib=8.5,
        write_amplification=9.5,
        fio=fio and replace(fio, latency_percentiles_ns=PERCENTILES_NS, runtime_ns=11_500_000_000),
        duration_s=11.5,
        counts={INSTRUCTIONS: 12, KERNEL_INSTRUCTIONS: 131, USER_INSTRUCTIONS: 141},
        crash=CrashFacts("", 1, 1, 1, 21, 21, {CrashFate.LOST: 20, CrashFate.OK: 1}),
        image_bytes=27 * MIB // 2,
        held=HeldFacts(interrupts_per_s=31.5, resume_s=32.5),
        counters=DeviceCounters(1, 1, 1, 1, 0, 0, 0, flash=FlashCounters(700, 128 * MIB, MIB // 8, 0, 0, 0)),
    )


def newest_rows(index: Index, where: Where, *, at_most: int | None, of_each: int = 1) -> list[NewestRows]:
    with index.reading() as connection:
        newest = Newest(connection, where, [Metric.DURATION], at_most=at_most, of_each=of_each)
        return list(newest.rows(newest.numbers))


class TestAsking:
    """Series, kernels and selections."""

    # ------------------------------------------------------------------------------------------- figures

    def test_every_figure_comes_back_under_its_own_name(self, index: Index, results: Path) -> None:
        written = write_run(results, change=with_all_figures, branch="topic")
        import_runs(index, [results])
        source = next(m for m in written.measurements if m.fio is not None)
        (point,) = points(index)[Series(source.series, simulated=True)]
        assert point.figures == {metric: figure_of(source, metric) for metric in Metric}
        assert len(set(point.figures.values()) - {None}) == len(Metric) - 1  # a state's power is its mean power
        assert (point.figures[Metric.NET_ENERGY], point.figures[Metric.POWER]) == (4.5, 7.5)
        uncertain = {metric: uncertainty_of(source, metric) for metric in Metric if metric.row.uncertain}
        assert point.uncertainties == uncertain
        assert len(set(uncertain.values()) - {None}) == len(uncertain) - 1
        assert (point.run_id, point.number, point.started_utc) == ("aaaaaa", source.number, source.started_utc)
        assert (point.boot, point.repetition) == (source.boot, source.repetition)
        assert (point.branch, point.commit) == ("topic", "c0ffee")
        assert point.kernel == Kernel("6.1.0-44-armmp", "6.1.164-1")

    def test_a_missing_figure_is_absent_and_an_invalid_measurement_is_left_out(
        self, index: Index, results: Path
    ) -> None:
        written = write_run(results)
        import_runs(index, [results])
        invalid, without_energy = written.measurements[1:3]
        found = {point.number: point for group in points(index).values() for point in group}
        assert sorted(found) == [m.number for m in written.measurements if m is not invalid]
        assert not {Metric.POWER, Metric.ENERGY, Metric.OPERATION_ENERGY} & found[without_energy.number].figures.keys()
        everything = points(index, Where(invalid_too=True))
        (kept,) = everything[Series(invalid.series, simulated=True)]
        assert (kept.valid, kept.invalid_reasons) == (False, invalid.invalid_reasons)

    def test_only_the_figures_that_were_asked_for(self, index: Index, results: Path) -> None:
        write_run(results, change=with_all_figures)
        import_runs(index, [results])
        for metric in Metric:
            names = {name for group in points(index, metrics=[metric]).values() for p in group for name in p.figures}
            assert names == {metric}

    # --------------------------------------------------------------------------------------------- order

    def test_series_are_in_the_order_of_kernels_or_of_time(self, index: Index, results: Path) -> None:
        for day, place in enumerate((4, 8, 0, 6, 2, 7, 1, 5, 3), start=1):
            started = f"2026-03-{day:02d}T10:00:00Z"
            write_run(results, f"run{place}", started=started, kernel=KERNELS[place], only=[5, 6])
        write_run(results, "again4", started="2026-03-30T10:00:00Z", kernel=KERNELS[4], only=[5, 6])
        import_runs(index, [results])
        assert [(kernel.release, kernel.version) for kernel in stats(index).kernels] == list(KERNELS)
        for group in points(index, order=Order.KERNEL).values():
            expected = ["run0", "run1", "run2", "run3", "run4", "again4", "run5", "run6", "run7", "run8"]
            assert [point.run_id for point in group] == expected
        for group in points(index).values():
            assert [point.run_id[-1] for point in group] == list("4806271534")

    def test_times_count_in_utc_whatever_zone_they_were_written_in(self, index: Index, results: Path) -> None:
        for run_id, started in (("late", "2026-03-09T10:00:00+00:00"), ("early", "2026-03-09T11:30:00+02:00")):
            write_run(results, run_id, only=[5], change=lambda m, s=started: replace(m, started_utc=s))
        import_runs(index, [results])
        (group,) = points(index).values()
        assert [(p.run_id, p.started_utc) for p in group] == [
            ("early", "2026-03-09T09:30:00Z"),
            ("late", "2026-03-09T10:00:00Z"),
        ]

    # ------------------------------------------------------------------------------------------- choices

    def test_each_choice_restricts(self, index: Index, results: Path) -> None:
        write_run(results, "old", started="2026-03-01T10:00:00Z", kernel=KERNELS[1], branch="main", only=range(4, 16))
        write_run(results, "new", started="2026-03-02T10:00:00Z", kernel=KERNELS[7], branch="topic", only=range(4, 16))
        other = write_run(
            results,
            "other",
            started="2026-03-03T10:00:00Z",
            only=[5],
            simulated=False,
            change=lambda m: replace(m, series=replace(m.series, board="colibri", suite="emmc")),
        )
        import_runs(index, [results])

        def runs_of(where: Where) -> dict[str, int]:
            found = [point.run_id for group in points(index, where).values() for point in group]
            assert sum(count.valid for count in list_series(index, where)) == len(found)
            return {run_id: found.count(run_id) for run_id in sorted(set(found))}

        key = Series(other.measurements[0].series, simulated=False).key
        assert runs_of(Where()) == {"new": 12, "old": 12, "other": 1}
        assert runs_of(Where(runs=("old", "other"))) == {"old": 12, "other": 1}
        assert runs_of(Where(kernels=(Kernel(*KERNELS[7]),))) == {"new": 12}
        assert runs_of(Where(branches=("main", "nothing"))) == {"old": 12}
        assert runs_of(Where(boards=("colibri",))) == {"other": 1}
        assert runs_of(Where(suites=("quick",))) == {"new": 12, "old": 12}
        assert runs_of(Where(simulated=False)) == {"other": 1}
        assert runs_of(Where(series=(key[:6],))) == {"other": 1}
        assert runs_of(Where(since_utc="2026-03-02T00:00:00Z", until_utc="2026-03-03T00:00:00Z")) == {"new": 12}
        assert runs_of(Where(filesystems=("btrfs",), runs=("old",)))["old"] < 12
        assert runs_of(Where(workloads=("mkfs",), branches=("topic",)))["new"] <= 2
        assert runs_of(Where(kernels=(Kernel("6.6", ""),))) == {}
        assert runs_of(Where(boards=("nothing",))) == {}

    def test_series_are_counted(self, index: Index, results: Path) -> None:
        for day, kernel in enumerate((KERNELS[1], KERNELS[7], KERNELS[7]), start=1):
            write_run(results, f"run{day}", started=f"2026-03-0{day}T10:00:00Z", kernel=kernel, only=[1, 2])
        import_runs(index, [results])
        counts = {count.valid: count for count in list_series(index)}
        assert sorted(counts) == [0, 3]
        for count in counts.values():
            assert (count.measurements, count.runs, count.kernels) == (3, 3, 2)
            assert count.first_utc.startswith("2026-03-01")
            assert count.last_utc.startswith("2026-03-03")
        held = stats(index)
        assert (held.runs, held.measurements, held.valid, held.series, held.boards) == (3, 6, 3, 2, 1)
        assert (held.first_utc, held.last_utc) == ("2026-03-01T10:00:01Z", "2026-03-03T10:00:02Z")

    def test_an_empty_index_answers_too(self, index: Index) -> None:
        assert points(index) == {}
        assert list_series(index) == stats(index).kernels == ()
        assert (stats(index).measurements, stats(index).first_utc) == (0, None)

    # ------------------------------------------------------------------------------------------- naming

    def test_runs_kernels_and_branches_are_found_by_their_names(self, index: Index, results: Path) -> None:
        path = write_run(results, "aaaaaa", kernel=KERNELS[3], branch="main", only=[5]).path
        write_run(results, "bbbbbb", kernel=KERNELS[5], choice="sid", branch="6.1", only=[5])
        write_run(results, "cccccc", kernel=KERNELS[8], choice="6.12", only=[5])
        import_runs(index, [results])
        for text in ("aaaaaa", "run:aaaaaa", str(path), path.name):
            assert resolve(index, text).where == Where(runs=("aaaaaa",))
        newest = Where(kernels=(Kernel(*KERNELS[5]),))
        for text in ("kernel:6.1", "6.1.0-44", "6.1.0-44-armmp", "sid", "6.1.164-2"):
            assert resolve(index, text).where == newest
        assert "newest of 2 that are 6.1" in resolve(index, "kernel:6.1").title
        assert resolve(index, "6.1.164-1").where == Where(kernels=(Kernel(*KERNELS[3]),))
        assert resolve(index, "6.12").where == Where(kernels=(Kernel(*KERNELS[8]),))
        assert resolve(index, "main").where == Where(branches=("main",))
        assert resolve(index, "branch:6.1").where == Where(branches=("6.1",))

    def test_a_run_of_several_kernels_has_each_measurement_under_its_own(self, index: Index, results: Path) -> None:
        made = make_run(kernels=("6.1", "6.12"), repeat=1)
        folder = RunFolder(results)
        folder.begin(replace(made.run, status=RunStatus.RUNNING))
        for measurement in made.measurements:
            folder.add(measurement, None, {})
        boards = {label: replace(board, kernel_release=f"{label}.0-armmp") for label, board in made.run.boards.items()}
        folder.finish(replace(made.run, boards=boards))
        import_runs(index, [results])
        assert [kernel.release for kernel in stats(index).kernels] == ["6.1.0-armmp", "6.12.0-armmp"]
        for label in ("6.1", "6.12"):
            where = resolve(index, label).where
            assert [kernel.release for kernel in where.kernels] == [f"{label}.0-armmp"]
            found = {point.number for series in points(index, where).values() for point in series}
            assert found == {m.number for m in made.measurements if m.kernel == label and m.valid}

    def test_a_kernel_is_found_within_a_run_or_a_branch(self, index: Index, results: Path) -> None:
        path = write_run(results, "aaaaaa", kernel=KERNELS[3], branch="main", only=[5]).path
        write_run(results, "bbbbbb", kernel=KERNELS[5], choice="sid", branch="topic", only=[5])
        import_runs(index, [results])
        run, branch = resolve(index, "aaaaaa"), resolve(index, "branch:topic")
        for name in ("6.1", "kernel:6.1", "6.1.0-44-armmp", "6.1.164-1"):
            assert kernel_within(name, run, booted(index, run.where)).where == Where(
                runs=("aaaaaa",), kernels=(Kernel(*KERNELS[3]),)
            )
        for name in ("sid", "6.1"):
            found = kernel_within(name, branch, booted(index, branch.where)).where
            assert found == Where(branches=("topic",), kernels=(Kernel(*KERNELS[5]),))
        with pytest.raises(ConfigError, match=r"(?s)branch topic has no kernel '6\.12'.*it has sid: 6\.1\.0-44-armmp"):
            kernel_within("6.12", branch, booted(index, branch.where))
        assert run_folders(index, ("aaaaaa", "nothing")) == {"aaaaaa": path.resolve()}

    def test_a_name_of_nothing_or_of_two_things_is_refused(self, index: Index, results: Path) -> None:
        write_run(results, "aaaaaa", kernel=KERNELS[3], branch="6.1", only=[5])
        import_runs(index, [results])
        with pytest.raises(ConfigError, match=r"(?s)more than one thing.*kernel:6\.1 or branch:6\.1"):
            resolve(index, "6.1")
        for text in ("6.12", "branch:main", "run:6.1", "", "kernel:", "6.1.0-4"):
            with pytest.raises(ConfigError, match=r"(?s)the index has no.*6\.1\.0-44-armmp \(6\.1\.164-1\).*6\.1"):
                resolve(index, text)

    def test_simulated_and_real_figures_are_never_of_one_series(self, index: Index, results: Path) -> None:
        write_run(results, "aaaaaa", only=[5])
        write_run(results, "bbbbbb", only=[5], simulated=False)
        import_runs(index, [results])
        simulated, real = (points(index, resolve(index, name).where) for name in ("aaaaaa", "bbbbbb"))
        assert [len(side) for side in (simulated, real)] == [1, 1]
        with pytest.raises(ConfigError, match="differ in simulated: True against False"):
            comparable(simulated, real)
        assert comparable(real, real) == tuple(real)
        with pytest.raises(ConfigError, match="second side has no valid measurement"):
            comparable(real, {})

    def test_the_newest_measurements_are_those_that_points_gives_last(self, index: Index, results: Path) -> None:
        for number, run in enumerate(("cccccc", "aaaaaa", "bbbbbb")):
            write_run(results, run, started=f"2026-03-{9 - number:02d}T10:00:00Z", branch=run[:1], only=[5, 6])
        import_runs(index, [results])
        whole = newest_rows(index, Where(), at_most=None)
        given = points(index, Where(), metrics=[Metric.DURATION])
        assert [each.series for each in whole] == list(given)
        for found in whole:
            assert not found.older
            expected = [(p.started_utc, p.number, p.boot, p.figures[Metric.DURATION]) for p in given[found.series]]
            assert [(row[0], row[2], row[4], row[5]) for row in found.rows] == expected
            assert len({row[3] for row in found.rows}) == len({p.kernel for p in given[found.series]})
        cut = newest_rows(index, Where(), at_most=4)
        assert [(len(each.rows), each.older) for each in cut] == [(2, True)] * 2
        names = run_names(index, {row[1] for each in cut for row in each.rows})
        assert sorted(name.run_id for name in names.values()) == ["aaaaaa", "cccccc"]
        with index.reading() as connection:
            labels = kernel_labels(connection, names)
        assert {run for run, _ in labels} == set(names)
        assert set(labels.values()) == {"6.1"}
        both = newest_rows(index, Where(), at_most=2, of_each=2)
        assert both == cut

    @pytest.mark.parametrize("run_cost", [0, 10**9])
    def test_the_newest_of_a_branch_are_the_same_however_they_are_read(
        self, index: Index, results: Path, monkeypatch: pytest.MonkeyPatch, run_cost: int
    ) -> None:
        monkeypatch.setattr(index_trend, "_RUN_COST", run_cost)
        for day, branch in enumerate("babbab", start=1):
            write_run(results, f"run{day}", started=f"2026-03-{day:02d}T10:00:00Z", branch=branch, only=[5, 6])
        import_runs(index, [results])
        where = Where(branches=("b",))
        whole = newest_rows(index, where, at_most=None)
        given = points(index, where, metrics=[Metric.DURATION])
        assert [each.series for each in whole] == list(given)
        for found in whole:
            assert [row[5] for row in found.rows] == [p.figures[Metric.DURATION] for p in given[found.series]]
        names = run_names(index, {row[1] for each in whole for row in each.rows})
        assert sorted(name.run_id for name in names.values()) == ["run1", "run3", "run4", "run6"]
        cut = newest_rows(index, where, at_most=4)
        assert [(len(each.rows), each.older) for each in cut] == [(2, True)] * 2
        assert {names[row[1]].run_id for each in cut for row in each.rows} == {"run4", "run6"}

    @pytest.mark.parametrize("order", Order)
    def test_the_newest_points_are_the_last_ones_of_all(self, index: Index, results: Path, order: Order) -> None:
        for number, (release, version) in enumerate(KERNELS[:3]):
            for run in range(2):
                day = f"2026-03-{9 - number - 3 * run:02d}"
                write_run(results, f"run{number}{run}", started=f"{day}T10:00:00Z", kernel=(release, version))
        import_runs(index, [results])
        for where in (Where(), Where(invalid_too=True), Where(filesystems=("ext4",)), Where(runs=("run11", "run20"))):
            everything = points(index, where, order=order)
            assert points(index, where, order=order, at_most=99) == everything
            cut = points(index, where, order=order, at_most=2)
            assert cut.keys() == everything.keys()
            for series, found in cut.items():
                newest_two = sorted(everything[series], key=lambda point: point.started_utc)[-2:]
                assert list(found) == [point for point in everything[series] if point in newest_two]
