"""A comparison as one JSON document, for scripts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from fsjoule.report.comparison.words import headline
from fsjoule.verdicts.comparison import Compared, Judged

COMPARE_SCHEMA: Final = "fsjoule.compare/1"


def to_document(compared: Compared, *, only_changes: bool = False) -> dict[str, object]:
    """The whole comparison. Effects, p and q are fractions; unknown values are null, never zero.

    `statistic` is what `baseline`, `candidate` and `ratio` of all verdicts are made of.
    """
    shown = [one for one in compared.findings if one.changed or not only_changes]
    return {
        "schema": COMPARE_SCHEMA,
        "headline": headline(compared),
        "simulated": compared.simulated,
        "baseline": asdict(compared.baseline),
        "candidate": asdict(compared.candidate),
        "criteria": asdict(compared.criteria),
        "counts": {outcome.value: count for outcome, count in compared.counts.items()},
        "interleaved": compared.interleaved,
        "statistic": _statistic(compared),
        "baseline_first": compared.baseline_first,
        "kernel_warnings": [asdict(each) for each in compared.kernel_warnings],
        "notes": list(compared.notes),
        "damaged": compared.damaged,
        "verdicts": [_verdict(one) for one in shown],
    }


def _statistic(compared: Compared) -> str:
    if compared.by_runs:
        return "median of boots, ratio between runs"
    return "geometric mean of neighbouring boots" if compared.paired else "median of boots"


def _verdict(one: Judged) -> dict[str, object]:
    """The verdict's fields, with interval and subject flattened and both sides' figures added."""
    told = asdict(one.basis)
    subject = told.pop("subject")
    return {
        "series": {"key": subject["key"], **subject["series"], "simulated": subject["simulated"]},
        "label": subject["label"],
        "kernel": subject["kernel"] or None,
        "unit": one.metric.unit,
        "baseline": one.baseline,
        "candidate": one.candidate,
        **told,
        "ratio": one.ratio,
        "interval": None if one.interval is None else [one.interval.low, one.interval.high],
    }
