from __future__ import annotations

from dataclasses import replace

import pytest
from results_factory import make_measurement

from fsjoule.model import (
    FioWorkload,
    IoPattern,
    Measurement,
    Planned,
    Provision,
    TimedKind,
    TimedWorkload,
)
from fsjoule.model.metrics import (
    FIO_METRICS,
    TIMED_METRICS,
    Metric,
    figure_of,
    step_of,
    uncertainty_of,
)
from fsjoule.statistics.figures import Turn, interleaved, one_per_boot


def measured(operation: IoPattern | TimedKind) -> Measurement:
    workload = FioWorkload(operation, 16384, 1 << 20) if isinstance(operation, IoPattern) else TimedWorkload(operation)
    return make_measurement(Planned(1, 1, "6.1", "ext4", workload, "quick", Provision.SCRATCH))[0]


def test_a_write_has_all_figures_that_are_compared() -> None:
    measurement = measured(IoPattern.RANDWRITE)
    assert measurement.energy_mj_per_mib is not None
    assert measurement.fio is not None
    assert {metric: figure_of(measurement, metric) for metric in FIO_METRICS} == {
        Metric.THROUGHPUT: measurement.throughput_mib_per_s,
        Metric.ENERGY: measurement.energy_mj_per_mib.value,
        Metric.CPU: measurement.cpu_s_per_mib,
        Metric.WRITE_AMPLIFICATION: measurement.write_amplification,
        Metric.P99_LATENCY: measurement.fio.latency_percentiles_ns["99.000000"] / 1e6,
        Metric.INSTRUCTIONS: None,  # on a board in guest time only
    }
    net = measurement.energy_net_mj_per_mib
    assert net is not None
    assert figure_of(measurement, Metric.NET_ENERGY) == net.value
    assert uncertainty_of(measurement, Metric.NET_ENERGY) == net.uncertainty
    assert uncertainty_of(measurement, Metric.CPU) is None


def test_throughput_is_as_uncertain_as_the_millisecond_of_fios_time() -> None:
    work = measured(IoPattern.READ)
    assert work.fio is not None
    short = replace(
        work, duration_s=0.086, throughput_mib_per_s=32 / 0.086, fio=replace(work.fio, runtime_ns=86_000_000)
    )
    uncertainty = uncertainty_of(short, Metric.THROUGHPUT)
    # As if all of the last millisecond were equally likely: 1 ms / sqrt(12) = 0.289 ms of 86 ms, 0.336 %.
    assert uncertainty == pytest.approx(32 / 0.086 * 0.28868 / 86, rel=1e-4)
    assert step_of(Metric.THROUGHPUT, figure_of(short, Metric.THROUGHPUT), uncertainty) == pytest.approx(1 / 86)
    by_window = replace(short, duration_s=0.0933)  # the marks' time, not fio's
    assert uncertainty_of(by_window, Metric.THROUGHPUT) is None
    energy = figure_of(work, Metric.ENERGY), uncertainty_of(work, Metric.ENERGY)
    assert step_of(Metric.ENERGY, *energy) == 0


def test_a_read_has_no_write_amplification() -> None:
    assert figure_of(measured(IoPattern.READ), Metric.WRITE_AMPLIFICATION) is None


def test_a_timed_operation_has_its_time_and_energy() -> None:
    measurement = measured(TimedKind.MKFS)
    assert measurement.energy is not None
    assert [figure_of(measurement, metric) for metric in TIMED_METRICS] == [
        measurement.duration_s,
        measurement.energy.gross_mj.value,
        None,  # instructions, on a board in guest time only
    ]


@pytest.mark.parametrize("metric", list(Metric))
def test_what_was_not_measured_is_missing(metric: Metric) -> None:
    bare = replace(
        measured(IoPattern.WRITE),
        duration_s=None,
        throughput_mib_per_s=None,
        iops=None,
        energy=None,
        energy_mj_per_mib=None,
        energy_net_mj_per_mib=None,
        cpu_s_per_mib=None,
        write_amplification=None,
        fio=None,
    )
    assert figure_of(bare, metric) is None
    assert uncertainty_of(bare, metric) is None


def test_a_boot_counts_once() -> None:
    figures = [("run 1 boot 1", 3.0), ("run 1 boot 2", 5.0), ("run 1 boot 1", 4.0), ("run 2 boot 1", None)]
    assert one_per_boot(figures) == (3.5, 5.0, None)
    assert one_per_boot([("boot", 1.0), ("boot", None)]) == (None,)


@pytest.mark.parametrize("seed", range(5))
def test_order_balances_every_four_boots(seed: int) -> None:
    order = interleaved(9, seed=seed)
    assert len(order) == 9
    assert order == interleaved(9, seed=seed)
    for pair in order:
        assert set(pair) == set(Turn)
    for first, second in zip(order[:8:2], order[1:8:2], strict=True):
        assert first == second[::-1]


def test_order_is_drawn() -> None:
    assert len({interleaved(8, seed=seed) for seed in range(20)}) > 5
