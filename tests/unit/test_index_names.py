"""How the index names and orders kernels, series and figures."""

from __future__ import annotations

import itertools
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_runs import made_run

from fsjoule.model import KernelOrigin, Measurement, Provision, SeriesKey
from fsjoule.model.kernel import Kernel, is_of, kernels_of, version_key
from fsjoule.model.metrics import Metric
from fsjoule.model.series import Series, what_differs
from fsjoule.store.index.catalogue import COLUMNS, series_of, series_row
from fsjoule.store.index.run_rows import figures_of
from fsjoule.store.index.schema import FIGURE_COLUMNS, UNCERTAINTY_COLUMNS
from fsjoule.store.points import points_of
from fsjoule.store.reader import LoadedRun

SERIES = SeriesKey(
    suite="quick",
    board="virtual",
    storage="QEMU!",
    filesystem="ext4",
    make_options=("-q", "-F"),
    mount_options=("noatime",),
    provision=Provision.SCRATCH,
    workload="randread-16k 32768KiB",
)

# Upstream version and revision as Debian writes them; an epoch no kernel has.
_VERSIONS = st.from_regex(r"[0-9][0-9a-zA-Z.+~]{0,8}(-[0-9a-zA-Z.+~]{1,5})?", fullmatch=True)


@settings(max_examples=100)
@given(_VERSIONS, _VERSIONS)
def test_versions_are_ordered_as_debian_orders_them(one: str, other: str) -> None:
    ours, theirs = version_key(one), version_key(other)
    relation = "lt" if ours < theirs else "gt" if ours > theirs else "eq"
    assert subprocess.run(["dpkg", "--compare-versions", one, relation, other], check=False, timeout=20).returncode == 0


def test_kernels_are_ordered_by_version_then_by_package() -> None:
    kernels = [
        Kernel("4.19.0-27-armmp", "4.19.316-1"),
        Kernel("5.10.0-9-armmp", "5.10.70-1"),
        Kernel("5.10.0-32-armmp", "5.10.223-1"),
        Kernel("6.1.0-rc1", ""),
        Kernel("6.1.0-rc10", ""),
        Kernel("6.1.0", ""),
        Kernel("6.1.0-0.deb11.21-armmp", "6.1.90-1~bpo11+1"),
        Kernel("6.1.0-21-armmp", "6.1.90-1~bpo11+1"),
        Kernel("6.1.0-21-armmp", "6.1.90-1"),
        Kernel("6.1.0-21-armmp", "6.1.90-2"),
        Kernel("6.12-rc7-armmp", "6.12~rc7-1~exp1"),
        Kernel("6.12-armmp", "6.12-1~exp1"),
        Kernel("6.12.9-armmp", "6.12.9-1"),
        Kernel("6.12.43+deb13-armmp", "6.12.43-1"),
        Kernel("6.13.0-00012-gabcdef0", ""),
        Kernel("10.0.0", ""),
    ]
    for earlier, later in itertools.pairwise(kernels):
        assert earlier.order < later.order


@pytest.mark.parametrize(
    ("release", "wanted", "answer"),
    [
        ("6.1.0-50-armmp", "6.1", True),
        ("6.1.0-50-armmp", "6", True),
        ("6.1.0-50-armmp", "6.1.0-50", True),
        ("6.1.0-50-armmp", "6.1.0-5", False),
        ("6.12.3", "6.1", False),
        ("6.12.3", "6.12.3", True),
        ("6.12.3", "6.12.3-armmp", False),
        ("6.12.43+deb13-armmp", "6.12.43", True),
    ],
)
def test_a_short_version_means_whole_numbers(release: str, wanted: str, answer: bool) -> None:
    assert is_of(release, wanted) is answer


def test_a_kernel_s_version_is_its_package_s_or_what_it_says_itself() -> None:
    run = made_run().run
    (label,) = run.boards
    assert kernels_of(run) == {label: Kernel("6.1.0-44-armmp", "6.1.164-1")}
    assert kernels_of(replace(run, kernels=())) == {label: Kernel("6.1.0-44-armmp", "6.1.164-1")}
    board = replace(run.boards[label], kernel_version="#3 SMP PREEMPT Mon Mar 9 10:00:00 UTC 2026")
    unpackaged = replace(run.kernels[0], package="")
    assert kernels_of(replace(run, boards={label: board}, kernels=(unpackaged,))) == {
        label: Kernel("6.1.0-44-armmp", "")
    }
    assert kernels_of(replace(run, boards={})) == {}


def test_kernels_that_somebody_built_are_told_apart_by_their_content() -> None:
    run = made_run().run
    (label,) = run.boards
    board = replace(run.boards[label], kernel_release="6.1.0", kernel_version="#1 SMP Mon Mar 9 10:00:00 UTC 2026")
    built = replace(
        run.kernels[0], origin=KernelOrigin.FOLDER, package="", git_describe="v6.1-3-gabc", digest="ab" * 32
    )
    kernels = [
        kernels_of(replace(run, boards={label: board}, kernels=(kernel,)))[label]
        for kernel in (built, replace(built, digest="cd" * 32), replace(built, git_describe=""))
    ]
    assert [kernel.version for kernel in kernels] == ["v6.1-3-gabc abababababab", "v6.1-3-gabc cdcdcdcdcdcd", "ab" * 6]
    assert len(set(kernels)) == 3


def test_a_series_key_is_the_same_in_every_index_and_version() -> None:
    """An index on another machine, and links to a series, rely on these very keys."""
    assert Series(SERIES, simulated=True).key == "ee0ebc0bab4a091b"
    assert Series(SERIES, simulated=False).key == "94142b65763e011a"


@pytest.mark.parametrize(
    "change",
    [
        {"suite": "emmc"},
        {"board": "colibri"},
        {"storage": "mmc"},
        {"filesystem": "btrfs"},
        {"make_options": ("-q -F",)},
        {"make_options": ("-q",), "mount_options": ("-F", "noatime")},
        {"mount_options": ()},
        {"provision": Provision.ROOT},
        {"workload": "randread-16k 16384KiB"},
    ],
)
def test_every_part_of_a_series_makes_another_key_and_is_named(change: dict[str, object]) -> None:
    one, other = Series(SERIES, simulated=True), Series(replace(SERIES, **change), simulated=True)
    assert one.key != other.key
    assert what_differs(one, other) == {name: (getattr(SERIES, name), value) for name, value in change.items()}
    row = series_row(other)
    assert series_of(*(row[name] for name in COLUMNS)) == other


def _columns(measurement: Measurement) -> dict[str, float | None]:
    run = made_run().run
    loaded = LoadedRun(Path(), run, (measurement,), {}, {})
    ((_, point),) = points_of(loaded).points
    return figures_of(point)


def test_every_metric_has_its_columns_and_no_figure_is_made_up() -> None:
    for measurement in made_run().measurements:
        figures = _columns(measurement)
        assert tuple(figures) == FIGURE_COLUMNS
        silent = _columns(replace(measurement, energy=None, energy_mj_per_mib=None, energy_net_mj_per_mib=None))
        assert {name for name, value in silent.items() if value is not None} <= {
            Metric.THROUGHPUT.row.column,
            Metric.IOPS.row.column,
            *(UNCERTAINTY_COLUMNS[each] for each in (Metric.THROUGHPUT, Metric.IOPS)),
            Metric.CPU.row.column,
            Metric.WRITE_AMPLIFICATION.row.column,
            Metric.P99_LATENCY.row.column,
            Metric.DURATION.row.column,
        }


@pytest.mark.parametrize(
    ("percentiles", "expected"),
    [
        ({"50": 1, "99": 2_500_000, "99.9": 3}, 2.5),
        ({"99.000000": 9_000_000}, 9.0),
        ({"99.9": 3}, None),
        ({"p99": 3}, None),
        ({}, None),
    ],
)
def test_the_99th_percentile_is_found_however_fio_writes_it(
    percentiles: dict[str, int], expected: float | None
) -> None:
    measurement = next(m for m in made_run().measurements if m.fio is not None)
    assert measurement.fio is not None
    changed = replace(measurement, fio=replace(measurement.fio, latency_percentiles_ns=percentiles))
    assert _columns(changed)["latency_p99_ms"] == expected
