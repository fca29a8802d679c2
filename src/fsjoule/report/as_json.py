"""A run as one JSON document, for scripts: the rows of the tables and every measurement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Final

from fsjoule.model import FioWorkload, HeldWorkload, Measurement, OperationWorkload
from fsjoule.model.metrics import metrics_of
from fsjoule.report.answer import answer_document
from fsjoule.report.summary import Summary, SummaryRow
from fsjoule.verdicts.filesystems import contests

SHOW_SCHEMA: Final = "fsjoule.show/1"


def to_json(summary: Summary, measurements: Sequence[Measurement]) -> str:
    """`run`, `answer` (which filesystem is better), `summary` (fio, timed, phases and so on) and `measurements`.

    Absent figures are null, never zero.
    """
    shown = asdict(summary)
    run = shown.pop("run")
    del shown["layers"]  # a script has the series
    shown["fio"] = [_row(row) for row in summary.fio]
    shown["timed"] = [_row(row) for row in summary.timed]
    shown["held"] = [_row(row) for row in summary.held]
    shown["invalid"] = [
        {"number": m.number, "slug": m.slug, "reasons": list(m.invalid_reasons)} for m in summary.invalid
    ]
    document: dict[str, object] = {
        "schema": SHOW_SCHEMA,
        "simulated": summary.simulated,
        "run": run,
        "answer": answer_document(summary, contests(measurements)),
        "summary": shown,
        "measurements": [{**asdict(m), "valid": m.valid} for m in measurements],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _row(row: SummaryRow[FioWorkload] | SummaryRow[OperationWorkload] | SummaryRow[HeldWorkload]) -> dict[str, object]:
    """Figures have the names of the index's columns; those that the workload does not have are left out."""
    projected = row.projected and asdict(replace(row.projected, figures={}))
    if row.projected and projected:
        projected["figures"] = {metric.row.column: asdict(value) for metric, value in row.projected.figures.items()}
    document: dict[str, object] = asdict(replace(row, figures={}, uncertainties={}, projected=None))
    document["projected"] = projected
    del document["figures"], document["uncertainties"]
    for metric in metrics_of(row.workload):
        spread = row.figures.get(metric)
        document[metric.row.column] = spread and asdict(spread)
        if metric.row.uncertain:
            document[f"{metric.row.column}_uncertainty"] = row.uncertainties.get(metric)
    return document
