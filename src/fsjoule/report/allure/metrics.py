"""Figures for Allure's metrics tab, by a key that is the same in every build, and how to read each. Pure."""

from __future__ import annotations

from typing import Final

from fsjoule.model import Measurement
from fsjoule.model.metrics import Metric, Use, figure_of, fio_metrics, held_metrics, timed_metrics
from fsjoule.model.series import Series
from fsjoule.report.allure import documents

# A fio job's duration follows from its throughput, and its energy is shown per MiB.
_FIO: Final = fio_metrics(Use.ALLURE)
_HELD: Final = held_metrics(Use.ALLURE)
SHOWN: Final = (*_FIO, *timed_metrics(Use.ALLURE), *_HELD)

# Key -> title, unit, group, in the form of Allure's configuration. Not `better`: Allure would colour any change since
# the build before, and a colour without an error rate contradicts verdicts.
Legend = dict[str, dict[str, str]]


def metrics_of(measurement: Measurement, label: str) -> tuple[documents.AllureMetric, ...]:
    """The figures of a valid measurement; `label` is the kernel's if runs have several, else empty."""
    return tuple(
        documents.AllureMetric(_key(measurement, metric, label), value) for metric, value in _figures(measurement)
    )


def legend_of(measurement: Measurement, label: str) -> Legend:
    """How to read the same figures."""
    return {_key(measurement, metric, label): _row(measurement, metric, label) for metric, _ in _figures(measurement)}


def groups_of(legend: Legend) -> dict[str, dict[str, str]]:
    return {row["group"]: {"title": row["group"]} for row in legend.values()}


def _figures(measurement: Measurement) -> list[tuple[Metric, float]]:
    if not measurement.valid or measurement.outcome is not None:
        return []
    chosen = _HELD if measurement.held else SHOWN if measurement.throughput_mib_per_s is None else _FIO
    figures = [(metric, figure_of(measurement, metric)) for metric in chosen]
    return [(metric, figure * _scale(metric)[0]) for metric, figure in figures if figure is not None]


def _scale(metric: Metric) -> tuple[float, str]:
    return metric.row.small or (1.0, metric.unit)


def _key(measurement: Measurement, metric: Metric, label: str) -> str:
    """The series' key, also for `fsjoule trend --series`, with kernel and metric."""
    series = Series(measurement.series, measurement.simulated)
    return ".".join(filter(None, (series.key, label, metric.value)))


def _row(measurement: Measurement, metric: Metric, label: str) -> dict[str, str]:
    series = measurement.series
    filesystem = f"{series.filesystem_title}, kernel {label}" if label else series.filesystem_title
    simulated = " (simulated)" if measurement.simulated else ""
    better = "more is better" if metric.more_is_better else "less is better"
    return {
        "title": f"{series.filesystem_title} {measurement.workload.label}, {metric.row.name} ({better})",
        "unit": _scale(metric)[1],
        "group": f"{series.board}, {series.suite}{simulated}: {filesystem}",
    }
