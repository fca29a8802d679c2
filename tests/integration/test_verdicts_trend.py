"""Histories from run folders through a real index, and the changes in them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from nights import Nights, slower_at

from fsjoule.model import REFERENCE_KERNEL, IoPattern, Provision, SeriesKey
from fsjoule.model.kernel import Kernel
from fsjoule.model.metrics import Figure, Metric
from fsjoule.model.series import Order, Series, Where
from fsjoule.statistics.finder import RupturesFinder
from fsjoule.statistics.outcome import Confirmed
from fsjoule.store.confirmations import Confirmation, ConfirmedPoint, confirmations, keep
from fsjoule.store.index.database import open_index
from fsjoule.store.index.importer import import_runs
from fsjoule.store.index.trend import trend_reader
from fsjoule.store.trend_rows import NewestRows
from fsjoule.verdicts.trend.changes import ChangeStatus
from fsjoule.verdicts.trend.history import histories, interval
from fsjoule.verdicts.trend.trend import METHOD, Trend, judged, trend_of

EVERYTHING = Where()
BTRFS = Where(filesystems=("btrfs",), workloads=("randwrite-16k",))


def looked_at(
    results: Path,
    where: Where = EVERYTHING,
    *,
    order: Order = Order.TIME,
    metrics: tuple[Metric, ...] = (),
    at_most: int | None = None,
    known: tuple[Confirmation, ...] = (),
) -> Trend:
    location = results / "index.sqlite"
    there = location.exists()
    with open_index(location, create=True) as index:
        if not there:
            import_runs(index, [results])
        read = trend_reader(index, where, order=order, metrics=metrics, at_most=at_most)
        return trend_of(read, confirmations=known, all_names=True)


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("stepped")
    Nights(speed=slower_at(21)).write(results, 36)
    return results


def test_a_kernel_measured_for_reference_is_no_change_of_the_one_under_test(tmp_path: Path) -> None:
    Nights().write(tmp_path, 12)
    Nights(
        prefix="r",
        seed=2,
        speed=lambda _night, _fs, _pattern, _kernel: 0.7,
        kernels=lambda _: ("6.12",),
        versions=lambda _: {"kernel_role": REFERENCE_KERNEL},
    ).write(tmp_path, 12)
    trend = looked_at(tmp_path, BTRFS)
    assert sorted({(history.label, len(history.points)) for history in trend.histories}) == [("", 12), ("6.12", 12)]
    assert trend.changes == ()


def test_a_step_is_found_at_its_run_and_its_kernel(stepped: Path) -> None:
    trend = looked_at(stepped)
    assert len(trend.histories) == 8  # of two filesystems, two workloads and two metrics
    assert {(c.history.series.label, c.history.metric) for c in trend.changes} == {
        ("btrfs randwrite-16k", Metric.THROUGHPUT),
        ("btrfs randwrite-16k", Metric.ENERGY),
    }
    assert trend.unchanged == 6
    for change in trend.changes:
        assert trend.runs[change.since.run].run_id == "n00021"
        assert trend.runs[change.last.run].run_id == "n00020"
        assert trend.kernels[change.since.kernel or 0].release == "6.1.107-armmp"
        assert trend.runs[change.since.run].commit == f"{21:012x}{0:028x}"
        assert change.worse
        assert change.status is ChangeStatus.NOMINATED
        expected = 0.93 if change.history.metric is Metric.THROUGHPUT else 0.93**-0.7
        assert change.ratio == pytest.approx(expected, rel=0.01)


def test_over_kernels_a_step_is_found_at_its_kernel(stepped: Path) -> None:
    trend = looked_at(stepped, BTRFS, order=Order.KERNEL, metrics=(Metric.THROUGHPUT,))
    (change,) = trend.changes
    assert trend.kernels[change.since.kernel or 0].release == "6.1.107-armmp"
    assert trend.kernels[change.last.kernel or 0].release == "6.1.106-armmp"
    assert [point.runs for point in change.history.points] == [3] * 12
    assert [len(point.boots) for point in change.history.points] == [9] * 12


def test_flat_series_have_no_change(tmp_path: Path) -> None:
    Nights().write(tmp_path, 40)
    trend = looked_at(tmp_path, metrics=(Metric.THROUGHPUT, Metric.ENERGY, Metric.CPU))
    assert trend.changes == ()
    assert trend.unchanged == len(trend.histories) == 12


def test_a_night_of_stalls_is_no_change(tmp_path: Path) -> None:
    def speed(night: int, _fs: str, _pattern: IoPattern, _kernel: str) -> Figure:
        return 0.4 if night == 17 else 1.0

    Nights(speed=speed).write(tmp_path, 40)
    assert looked_at(tmp_path).changes == ()


def test_missing_figures_are_no_change(tmp_path: Path) -> None:
    def speed(night: int, fs: str, _pattern: IoPattern, _kernel: str) -> Figure:
        return None if (night >= 20 if fs == "ext4" else night % 2) else 1.0

    Nights(speed=speed, boots=2).write(tmp_path, 40)
    trend = looked_at(tmp_path, metrics=(Metric.THROUGHPUT,))
    assert trend.changes == ()
    by_fs = {h.series.series.filesystem: h for h in trend.histories if "randwrite" in h.series.label}
    assert len(by_fs["btrfs"].points) == 20
    assert by_fs["btrfs"].unusable == {"missing": 40}


def test_zeros_are_counted_and_no_change(tmp_path: Path) -> None:
    with open_index(tmp_path / "index.sqlite", create=True) as index:
        Nights(filesystems=("btrfs",)).write(tmp_path, 30)
        import_runs(index, [tmp_path])
        with index.writing() as connection:
            connection.exec_driver_sql("UPDATE measurements SET throughput_mib_per_s = 0 WHERE run > 15")
            connection.exec_driver_sql("UPDATE measurements SET energy_mj_per_mib = -1 WHERE run > 15")
        trend = trend_of(trend_reader(index, BTRFS))
    assert trend.changes == ()
    assert {h.metric: h.unusable for h in trend.histories} == {
        Metric.THROUGHPUT: {"zero": 45},
        Metric.ENERGY: {"negative": 45},
    }


def test_each_kernel_of_a_run_with_several_has_a_history_of_its_own(tmp_path: Path) -> None:
    def speed(night: int, _fs: str, _pattern: IoPattern, kernel: str) -> Figure:
        return {"5.10": 1.2, "6.1": 1.0, "sid": 0.9 if night < 15 else 0.82}[kernel]

    Nights(
        speed=speed,
        kernels=lambda _: ("5.10", "6.1", "sid"),
        release=lambda night, label: f"6.{night}" if label == "sid" else f"{label}.1",
        patterns=(IoPattern.READ,),
        filesystems=("ext4",),
        boots=2,
    ).write(tmp_path, 30)
    trend = looked_at(tmp_path, metrics=(Metric.THROUGHPUT,))
    assert sorted(history.label for history in trend.histories) == ["5.10", "6.1", "sid"]
    (change,) = trend.changes
    assert (change.history.label, trend.runs[change.since.run].run_id) == ("sid", "n00015")
    (by_kernel,) = looked_at(tmp_path, order=Order.KERNEL, metrics=(Metric.THROUGHPUT,)).histories
    assert len(by_kernel.points) == 32


def test_the_limit_takes_whole_runs_from_the_newest_and_says_so(stepped: Path) -> None:
    whole = looked_at(stepped)
    assert whole.cut_short == 0
    trend = looked_at(stepped, at_most=4 * 10)
    assert trend.cut_short == trend.series == 4
    for history in trend.histories:
        assert [trend.runs[point.run].run_id for point in history.points] == ["n00033", "n00034", "n00035"]
        assert all(len(point.boots) == 3 for point in history.points)
    assert trend.too_short == 8


def test_what_is_meant_is_looked_at(stepped: Path) -> None:
    where = replace(BTRFS, since_utc="2026-01-11", until_utc="2026-01-21")
    (history, _) = looked_at(stepped, where).histories
    assert [point.started_utc[:10] for point in history.points] == [f"2026-01-{day}" for day in range(11, 21)]
    assert looked_at(stepped, replace(BTRFS, boards=("another",))).series == 0


# ------------------------------------------------------------------------------------------- confirmations


def side(run: str, day: int, release: str) -> ConfirmedPoint:
    return ConfirmedPoint(run, f"2026-01-{day:02d}T02:00:00Z", f"{release}-armmp", f"{release}-1")


def told(trend: Trend, **changed: object) -> Confirmation:
    """What fresh boots said about the throughput of btrfs, whose change came on the 22nd."""
    series = next(h.series for h in trend.histories if h.series.label == "btrfs randwrite-16k")
    made = Confirmation(
        made_utc="2026-03-01T00:00:00Z",
        series=series.key,
        metric="throughput",
        before=side("n00018", 19, "6.1.106"),
        after=side("n00023", 24, "6.1.107"),
        nominated_ratio=0.93,
        outcome=Confirmed.CONFIRMED,
        ratio=0.94,
        pairs=4,
        smallest_effect=0.05,
        alpha=0.01,
        beta=0.01,
        run_id="fresh",
    )
    return replace(made, **changed)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({}, ChangeStatus.CONFIRMED),
        ({"outcome": Confirmed.REFUTED}, ChangeStatus.REFUTED),
        ({"outcome": Confirmed.UNDECIDED}, ChangeStatus.NOMINATED),
        ({"nominated_ratio": 1.07}, ChangeStatus.NOMINATED),
        ({"metric": "energy"}, ChangeStatus.NOMINATED),
        ({"series": "0" * 16}, ChangeStatus.NOMINATED),
        ({"before": side("n00022", 23, "6.1.107")}, ChangeStatus.NOMINATED),
        ({"after": side("n00020", 21, "6.1.106")}, ChangeStatus.NOMINATED),
    ],
)
def test_a_confirmation_is_shown_where_it_belongs(
    stepped: Path, order: Order, changed: dict[str, object], status: ChangeStatus
) -> None:
    known = told(looked_at(stepped), **changed)
    trend = looked_at(stepped, BTRFS, order=order, metrics=(Metric.THROUGHPUT,), known=(known,))
    (change,) = trend.changes
    assert change.status is status
    assert (change.confirmation == known) is (
        status is not ChangeStatus.NOMINATED or known.outcome is Confirmed.UNDECIDED
    )


def test_the_newest_decision_counts(stepped: Path) -> None:
    trend = looked_at(stepped)
    known = (
        told(trend),
        told(trend, outcome=Confirmed.REFUTED, made_utc="2026-03-02T00:00:00Z"),
        told(trend, outcome=Confirmed.UNDECIDED, made_utc="2026-03-03T00:00:00Z"),
    )
    (change,) = looked_at(stepped, BTRFS, metrics=(Metric.THROUGHPUT,), known=known).changes
    assert change.status is ChangeStatus.REFUTED


def test_confirmations_are_kept_and_read_back(stepped: Path, tmp_path: Path) -> None:
    one = told(looked_at(stepped))
    other = replace(one, outcome=Confirmed.UNDECIDED, ratio=None, made_utc="2026-02-01T00:00:00Z")
    path = keep(tmp_path / "kept", one)
    keep(tmp_path / "kept", other)
    assert path.name.startswith("20260301T000000Z-")
    assert confirmations(tmp_path / "kept") == ([other, one], [])
    assert confirmations(tmp_path / "none") == ([], [])


@pytest.mark.parametrize(
    ("was", "is_"),
    [
        ('"pairs": 4', '"pairs": '),
        ("confirmation/1", "confirmation/2"),
        ('"confirmed"', '"perhaps"'),
        ('"pairs": 4', '"pairs": "4"'),
        ('"run_id": "fresh"', '"run": "fresh"'),
        ('"kernel_release": "6.1.107-armmp"', '"kernel_release": 6'),
    ],
)
def test_a_damaged_confirmation_is_named_and_left_out(stepped: Path, tmp_path: Path, was: str, is_: str) -> None:
    path = keep(tmp_path, told(looked_at(stepped)))
    assert was in path.read_text()
    path.write_text(path.read_text().replace(was, is_))
    found, faults = confirmations(tmp_path)
    assert found == []
    assert str(path) in faults[0]


# ------------------------------------------------------------------------------------------------ intervals


def test_the_interval_of_a_median_has_its_confidence() -> None:
    assert interval([3.0]) == (3.0, 3.0, 0.0)
    assert interval([1.0, 3.0, 2.0]) == (1.0, 3.0, 0.75)
    # Tables of the sign test: with ten figures the second ones, with twenty the sixth ones.
    assert interval(list(map(float, range(10)))) == (1.0, 8.0, pytest.approx(0.9785, abs=1e-4))
    assert interval(list(map(float, range(20)))) == (5.0, 14.0, pytest.approx(0.9586, abs=1e-4))


def test_the_interval_of_many_goes_on_from_that_of_few() -> None:
    low, _, confidence = interval(list(map(float, range(500))))
    more = interval(list(map(float, range(502))))
    assert abs(more[0] - low) <= 2
    assert confidence == pytest.approx(0.95, abs=0.01)


# What is found in fixed rows, by the number of the method. Whoever changes what is found raises `METHOD`: else
# the verdicts that indexes keep would stay the old ones.
ANSWERS = {1: "6fff960b49f66261"}


def test_other_answers_are_those_of_another_method() -> None:
    rng = np.random.default_rng(39)
    level = np.concatenate([np.full(20, 1.0), np.full(20, 0.8), np.full(20, 0.9), np.linspace(0.9, 1.05, 25)])
    series = Series(SeriesKey("quick", "virtual", "QEMU!", "ext4", (), (), Provision.SCRATCH, "randread-16k"), True)
    rows = [
        (
            f"2026-01-{night // 24 + 1:02d}T{night % 24:02d}:00:00Z",
            night,
            boot,
            night // 5,
            boot,
            20 * factor,
            80 / factor,
        )
        for night, factor in enumerate(level * np.exp(rng.normal(0, 0.004, len(level))))
        for boot in range(3)
    ]
    rows[60] = (*rows[60][:5], 0.0, None)
    metrics = (Metric.THROUGHPUT, Metric.ENERGY)
    kernels = {number: Kernel(f"6.1.{number}", "") for number in range(len(level))}
    texts: list[object] = []
    for order in Order:
        made = histories(NewestRows(series, rows, older=False), metrics, order, kernels=kernels, labels={})
        one = judged(made, RupturesFinder(), order, measurements=len(rows), older=False)
        assert order is Order.KERNEL or any(nominations for _, nominations in one.histories)
        texts.append(_rounded(json.loads(one.text)))
    assert hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16] == ANSWERS[METHOD]


def _rounded(value: Any) -> Any:
    """Without the last digits, which differ between processors."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return [_rounded(each) for each in cast("list[Any]", value)]
    return {key: _rounded(each) for key, each in value.items()} if isinstance(value, dict) else value
