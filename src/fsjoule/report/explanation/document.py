"""Explanations as one JSON document, for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from fsjoule.report.explanation.words import headline
from fsjoule.verdicts.explanation.changes import Change, Explanation

EXPLAIN_SCHEMA: Final = "fsjoule.explain/1"


def to_document(explanations: Sequence[Explanation], folder: Path) -> dict[str, object]:
    """All that was found. Shares are fractions; what is not known is null."""
    return {
        "schema": EXPLAIN_SCHEMA,
        "run": str(folder),
        "explanations": [explained(each) for each in explanations],
    }


def explained(explanation: Explanation) -> dict[str, object]:
    """One of them, as a part of a document."""
    return {
        "headline": headline(explanation),
        "series": explanation.series,
        "unit": explanation.unit,
        "simulated": explanation.simulated,
        "sampling_period_ns": explanation.period_ns or None,
        "baseline": asdict(explanation.baseline),
        "candidate": asdict(explanation.candidate),
        "change_ns": explanation.change_ns,
        "explained_by_ten": explanation.explained(),
        "functions": [_change(each) for each in explanation.functions],
        "modules": [_change(each) for each in explanation.modules],
        "subsystems": [_change(each) for each in explanation.subsystems],
    }


def _change(change: Change) -> dict[str, object]:
    return {**asdict(change), "difference_ns": change.difference_ns}
