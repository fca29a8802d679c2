"""A gate as one JSON document: for scripts, and as `gate.json` in its run folder, which reports read back."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from fsjoule.errors import ResultError
from fsjoule.report.gating.words import headline
from fsjoule.statistics.outcome import Outcome
from fsjoule.store.documents import check_schema, parse
from fsjoule.store.folder import GATE_FILE
from fsjoule.verdicts.gated import Gated, Tested

GATE_SCHEMA: Final = "fsjoule.gate/1"
_GATED: Final = TypeAdapter(Gated)


def to_document(gated: Gated) -> dict[str, object]:
    """The whole gate. Effects and noise are fractions; unknown values are null, never zero."""
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
        "tests": [_test(one) for one in gated.findings],
        "kernel_warnings": [asdict(each) for each in gated.kernel_warnings],
        "notes": list(gated.notes),
        "faults": list(gated.faults),
        "command": list(gated.command),
    }


def from_document(content: bytes) -> Gated:
    """Read such a document back. Raises ResultError if it is damaged, or of another version."""
    try:
        document: dict[str, Any] = parse(content)[0]
        check_schema(document, GATE_SCHEMA, GATE_FILE)
        findings = [_finding(test) for test in document["tests"]]
        gated = _GATED.validate_python({**document, "findings": findings, "folders": {}})
        _check(gated)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ResultError(f"{GATE_FILE} cannot be read: {where}: {first['msg']}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultError(f"{GATE_FILE} cannot be read: {str(error).splitlines()[0]}") from error
    return gated


def _check(gated: Gated) -> None:
    """Raise ValueError for numbers that no gate writes, such as ratios without a logarithm."""
    for one in gated.findings:
        ratios = [] if one.ratio is None else [one.ratio]
        ratios += [one.interval.low, one.interval.high] if one.interval else []
        if not all(0 < ratio < math.inf for ratio in ratios) or not 0 < one.matters < 1:
            raise ValueError(f"{one.name}: a ratio or the smallest effect is not a positive number")


def _test(one: Tested) -> dict[str, object]:
    subject = asdict(one.subject)
    return {
        "series": {"key": subject["key"], **subject["series"], "simulated": subject["simulated"]},
        "label": one.subject.label,
        "metric": one.metric.value,
        "unit": one.metric.unit,
        "smallest_effect": one.matters,
        "baseline": one.baseline,
        "candidate": one.candidate,
        "better": one.outcome is Outcome.IMPROVED,
        **asdict(one.basis),
        "interval": None if one.interval is None else [one.interval.low, one.interval.high],
    }


def _finding(test: dict[str, Any]) -> dict[str, object]:
    series, interval = test["series"], test["interval"]
    return {
        **test,
        "subject": {"key": series["key"], "series": series, "simulated": series["simulated"], "label": test["label"]},
        "outcome": Outcome.IMPROVED if test["better"] else test["decision"],
        "interval": None if interval is None else dict(zip(("low", "high"), interval, strict=True)),
        "matters": test["smallest_effect"],
        "boots": (test["pairs"], test["pairs"]),
        "basis": test,
    }
