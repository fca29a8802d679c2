"""Runs as CSV (RFC 4180): a row for each measurement, or for each sample of its trace."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from fsjoule.model.metrics import Metric, figure_of, uncertainty_of
from fsjoule.report.exports.timeline import measurement_facts
from fsjoule.store.reader import LoadedRun

_SAMPLES: Final = (
    *("run", "number", "slug", "simulated", "time_us", "in_window", "voltage_v", "current_a", "power_w"),
)


def write_csv(file: Path, runs: Sequence[LoadedRun], *, samples: bool) -> None:
    """Write the table. Raises ResultError if a trace is damaged, OSError."""
    with file.open("w", encoding="utf-8", newline="") as opened:
        csv.writer(opened).writerows(_samples(runs) if samples else _measurements(runs))


def _measurements(runs: Sequence[LoadedRun]) -> Iterator[Sequence[object]]:
    """Figures in the units that the columns name; an absent one is empty, never 0."""
    columns = [metric.row.column for metric in Metric]
    measured = [(loaded, m, measurement_facts(m)) for loaded in runs for m in loaded.measurements]
    names = [name for name in (measured[0][2] if measured else ()) if name not in columns]
    uncertain = [metric for metric in Metric if metric.row.uncertain]
    uncertainties = [f"{metric.row.column}_uncertainty" for metric in uncertain]
    yield ["run", "started_utc", "kernel_release", "imported_from", *names, *columns, *uncertainties]
    for loaded, m, facts in measured:
        board = loaded.run.boards.get(m.kernel)
        yield [
            *(loaded.run.run_id, m.started_utc, board.kernel_release if board else ""),
            loaded.run.imported.text if loaded.run.imported else "",
            *(facts.get(name, "") for name in names),
            *(_cell(figure_of(m, metric)) for metric in Metric),
            *(_cell(uncertainty_of(m, metric)) for metric in uncertain),
        ]


def _samples(runs: Sequence[LoadedRun]) -> Iterator[Sequence[object]]:
    """Times are the meter's own; a quantity that the instrument does not measure is empty."""
    yield _SAMPLES
    for loaded in runs:
        for m in loaded.measurements:
            trace = loaded.trace(m.number)
            if trace is None:
                continue
            first_us, last_us = (m.window.start_us, m.window.stop_us) if m.window else (0.0, -1.0)
            of = (loaded.run.run_id, m.number, m.slug, str(m.simulated).lower())
            rows = (trace.times_us, trace.voltage_v, trace.current_a, trace.power_w)
            for time_us, *quantities in zip(*(column.tolist() for column in rows), strict=True):
                inside = str(first_us <= time_us < last_us).lower()
                yield (*of, time_us, inside, *("" if each != each else f"{each:.7g}" for each in quantities))  # noqa: PLR0124 - NaN


def _cell(figure: float | None) -> str:
    return "" if figure is None else repr(figure)
