"""A run as one JSON document, for scripts: the rows of the tables and every measurement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from fsjoule.model import Measurement
from fsjoule.report.answer import answer_document
from fsjoule.report.summary import Summary
from fsjoule.verdicts.filesystems import contests

SHOW_SCHEMA: Final = "fsjoule.show/1"


def to_json(summary: Summary, measurements: Sequence[Measurement]) -> str:
    """`run`, `answer` (which filesystem is better), `summary` (fio, timed, phases and so on) and `measurements`.

    Absent figures are null, never zero.
    """
    shown = asdict(summary)
    run = shown.pop("run")
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
