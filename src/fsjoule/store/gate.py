"""A gate's answer, and `gate.json` in the folder of the run that measured it, which reports read back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from fsjoule.errors import ResultError, StorageError
from fsjoule.host.files import write_file
from fsjoule.model.labels import without_passwords
from fsjoule.statistics.gate import SequentialState
from fsjoule.statistics.outcome import Outcome
from fsjoule.statistics.policy import Policy
from fsjoule.store.documents import check_schema, parse
from fsjoule.store.finding import Finding, KernelWarning
from fsjoule.store.folder import GATE_FILE
from fsjoule.store.reader import LoadedRun

SCHEMA: Final = "fsjoule.gate/1"

Tested = Finding[SequentialState]
"""A figure of both sides with the state of its test."""


class GateVerdict(StrEnum):
    REGRESSED = "regressed"
    PASSED = "unchanged or better"
    UNDECIDED = "not decided"
    NO_BASELINE = "no baseline"
    IDENTICAL = "identical"

    @property
    def exit_code(self) -> int:
        """The command's exit code; no error has the same."""
        return _EXIT_CODES[self]


_EXIT_CODES: Final = {
    GateVerdict.REGRESSED: 1,
    GateVerdict.PASSED: 0,
    GateVerdict.UNDECIDED: 3,
    GateVerdict.NO_BASELINE: 0,
    GateVerdict.IDENTICAL: 0,
}


@dataclass(frozen=True, slots=True)
class GateSide:
    name: str
    title: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Gated:
    """A gate's answer with its evidence. `ended` says why there were no more pairs.

    `fresh` says whether boots were measured for it; `folder` and `seed` are that run's. `command` repeats it;
    `folders` are those of the runs that it read or measured, by name; `known_boots` of its pairs are of earlier ones.
    """

    verdict: GateVerdict
    baseline: GateSide
    candidate: GateSide
    policy: Policy
    ended: str
    pairs: int = 0
    findings: tuple[Tested, ...] = ()
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    kernel_warnings: tuple[KernelWarning, ...] = ()
    fresh: bool = False
    folder: str | None = None
    seed: int | None = None
    command: tuple[str, ...] = ()
    folders: Mapping[str, Path] = field(default_factory=dict[str, Path])
    known_boots: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "command", without_passwords(self.command))  # as a run's

    @property
    def simulated(self) -> bool:
        return any(one.subject.simulated for one in self.findings)


def keep_gate(gated: Gated, headline: str, folder: Path) -> None:
    """Store the answer in the run folder. Raises StorageError: a verdict that nobody can look up must not block."""
    file = folder / GATE_FILE
    try:
        write_file(file, (json.dumps(to_document(gated, headline), indent=2) + "\n").encode())
    except OSError as error:
        raise StorageError(
            f"{file} could not be stored: {error.strerror}; the answer was: {gated.verdict.value}",
            hint="make room on that disk; the measurements are whole",
        ) from error


def gate_of(loaded: LoadedRun) -> Gated | None:
    """The answer of the gate that measured the run; None if no gate did. Raises ResultError if it is damaged."""
    content = loaded.document(GATE_FILE)
    return None if content is None else from_document(content)


def to_document(gated: Gated, headline: str) -> dict[str, object]:
    """The whole gate with its headline. Effects and noise are fractions; unknown values are null, never zero."""
    return {
        "schema": SCHEMA,
        "verdict": gated.verdict.value,
        "exit_code": gated.verdict.exit_code,
        "headline": headline,
        "simulated": gated.simulated,
        "baseline": asdict(gated.baseline),
        "candidate": asdict(gated.candidate),
        "policy": asdict(gated.policy),
        "pairs": gated.pairs,
        "known_boots": gated.known_boots,
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
        check_schema(document, SCHEMA, GATE_FILE)
        findings = [_finding(test) for test in document["tests"]]
        gated = _adapter().validate_python({**document, "findings": findings, "folders": {}})
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


@cache
def _adapter() -> TypeAdapter[Gated]:
    return TypeAdapter(Gated)
