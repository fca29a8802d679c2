"""A gate as one JSON document, for scripts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from fsjoule.report.gating.words import headline
from fsjoule.verdicts.gated import Gated, Tested

GATE_SCHEMA: Final = "fsjoule.gate/1"


def to_document(gated: Gated) -> dict[str, object]:
    """All that the gate found. Effects and noise are fractions; what is not known is null, never zero."""
    return {
        "schema": GATE_SCHEMA,
        "verdict": gated.verdict.value,
        "exit_code": gated.verdict.exit_code,
        "headline": headline(gated),
        "simulated": gated.simulated,
        "baseline": asdict(gated.baseline),
        "candidate": asdict(gated.candidate),
        "policy": asdict(gated.policy),
        "pairs": gated.pairs,
        "ended": gated.ended,
        "fresh": gated.fresh,
        "folder": gated.folder,
        "seed": gated.seed,
        "tests": [_test(one) for one in gated.tested],
        "notes": list(gated.notes),
        "faults": list(gated.faults),
        "command": list(gated.command),
    }


def _test(one: Tested) -> dict[str, object]:
    told = asdict(one.state)
    subject = asdict(one.subject)
    return {
        "series": {"key": subject["key"], **subject["series"], "simulated": subject["simulated"]},
        "label": one.subject.label,
        "metric": one.metric.value,
        "unit": one.metric.unit,
        "smallest_effect": one.effect,
        "baseline": one.baseline,
        "candidate": one.candidate,
        "better": one.better,
        **told,
        "interval": None if one.interval is None else [one.interval.low, one.interval.high],
    }
