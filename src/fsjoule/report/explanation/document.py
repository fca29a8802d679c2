"""Explanations for programs: one JSON document, or folded stacks for a flame graph."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from fsjoule.report.explanation.words import headline, module_text
from fsjoule.verdicts.explanation.changes import Explanation, TimeChange

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


def _change(change: TimeChange) -> dict[str, object]:
    return {**asdict(change), "difference_ns": change.difference_ns}


# They part the fields and the frames of a line.
_SEPARATORS: Final = re.compile(r"[\s;]+")


def to_folded(explanation: Explanation) -> str:
    """A line for each function, in ns per unit: folder of the source, module, function. Callers are not known."""
    lines: list[str] = []
    for each in explanation.functions:
        frames = (each.subsystem, module_text(each.module), each.name)
        stack = ";".join(_SEPARATORS.sub("_", frame) for frame in frames)
        lines.append(f"{stack} {each.baseline_ns:.0f} {each.candidate_ns:.0f}\n")
    return "".join(lines)
