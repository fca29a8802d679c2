"""Figures for Allure's metrics tab, by a key that is the same in every build, and how to read each. Pure."""

from __future__ import annotations

from typing import Final

from fsjoule.model import Measurement
from fsjoule.model.metrics import Metric, figure_of
from fsjoule.model.series import Series
from fsjoule.report.allure import documents

SHOWN: Final = (
    Metric.THROUGHPUT,
    Metric.ENERGY,
    Metric.CPU,
    Metric.WRITE_AMPLIFICATION,
    Metric.DURATION,
    Metric.OPERATION_ENERGY,
)
_WORDS: Final = {
    Metric.THROUGHPUT: "throughput",
    Metric.ENERGY: "energy",
    Metric.CPU: "CPU time",
    Metric.WRITE_AMPLIFICATION: "write amplification",
    Metric.DURATION: "time",
    Metric.OPERATION_ENERGY: "energy",
}
# A fio job's duration follows from its throughput, and its energy is shown per MiB.
_TIMED: Final = frozenset({Metric.DURATION, Metric.OPERATION_ENERGY})

# Allure shows three decimals.
_SCALES: Final = {Metric.CPU: (1000.0, "ms/MiB")}

# Key -> title, unit, group, in the form of Allure's configuration. Not `better`: Allure would colour any change since
# the build before, and a colour without an error rate contradicts verdicts.
Legend = dict[str, dict[str, str]]


def metrics_of(measurement: Measurement, label: str) -> tuple[documents.Metric, ...]:
    """The figures of a valid measurement; `label` is the kernel's if runs have several, else empty."""
    return tuple(documents.Metric(_key(measurement, metric, label), value) for metric, value in _figures(measurement))


def legend_of(measurement: Measurement, label: str) -> Legend:
    """How to read the same figures."""
    return {_key(measurement, metric, label): _row(measurement, metric, label) for metric, _ in _figures(measurement)}


def groups_of(legend: Legend) -> dict[str, dict[str, str]]:
    return {row["group"]: {"title": row["group"]} for row in legend.values()}


def _figures(measurement: Measurement) -> list[tuple[Metric, float]]:
    if not measurement.valid or measurement.outcome is not None:
        return []
    per_mib = measurement.throughput_mib_per_s is not None
    chosen = [metric for metric in SHOWN if not (per_mib and metric in _TIMED)]
    figures = [(metric, figure_of(measurement, metric)) for metric in chosen]
    return [(metric, figure * _SCALES.get(metric, (1.0, ""))[0]) for metric, figure in figures if figure is not None]


def _key(measurement: Measurement, metric: Metric, label: str) -> str:
    """The series' key, also for `fsjoule trend --series`, with kernel and metric."""
    series = Series(measurement.series, measurement.simulated)
    return ".".join(filter(None, (series.key, label, metric.value)))


def _row(measurement: Measurement, metric: Metric, label: str) -> dict[str, str]:
    series = measurement.series
    filesystem = f"{series.filesystem}, kernel {label}" if label else series.filesystem
    simulated = " (simulated)" if measurement.simulated else ""
    better = "more is better" if metric.more_is_better else "less is better"
    return {
        "title": f"{series.filesystem} {measurement.workload.label}, {_WORDS[metric]} ({better})",
        "unit": _SCALES[metric][1] if metric in _SCALES else metric.unit,
        "group": f"{series.board}, {series.suite}{simulated}: {filesystem}",
    }
