"""A bisection as JSON, and as a log for `git bisect replay`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from fsjoule.report.bisection import words
from fsjoule.report.bisection.tables import first_bad
from fsjoule.report.explanation.document import explained
from fsjoule.statistics.bisection.answer import AnswerKind
from fsjoule.verdicts.bisection.answer import Bisected, bisected
from fsjoule.verdicts.bisection.state import BisectionState
from fsjoule.verdicts.explanation.changes import Explanation

SCHEMA: Final = "fsjoule.bisected/1"


def to_document(state: BisectionState, explanations: Sequence[Explanation] = ()) -> dict[str, Any]:
    """The question, the answer (None before there is one), each commit's probability, all boots and skips, and why."""
    standing, answer = words.standing_of(state)
    told = None if answer is None else bisected(state, answer)
    probable = first_bad(state)
    return {
        "schema": SCHEMA,
        "headline": words.lead(state, told, standing),
        "asked": asdict(state.asked),
        "answer": None if told is None else _answer(told),
        "commits": [
            {"commit": commit, "subject": words.subject(state, commit), "first_bad": float(probability)}
            for commit, probability in zip(state.line.commits, probable, strict=True)
        ],
        "boots": [asdict(each) for each in state.booted],
        "built": [asdict(each) for each in state.built],
        "skipped": [asdict(each) for each in state.skipped],
        "profiled": [asdict(each) for each in state.profiled],
        "explanations": [explained(each) for each in explanations],
    }


def _answer(told: Bisected) -> dict[str, Any]:
    return asdict(told) | {"changes": [asdict(each) | {"words": each.words} for each in told.changes]}


def git_log(state: BisectionState) -> str:
    """The steps of git's own bisection, for `git bisect replay`; commits that we made are left out."""
    _, answer = words.standing_of(state)
    told = None if answer is None else bisected(state, answer)
    ours = set(state.asked.good) | set(state.asked.bad)
    lines = ["git bisect start", *(f"git bisect bad {each}" for each in state.asked.bad)]
    lines += [f"git bisect good {each}" for each in state.asked.good]
    lines += [f"git bisect skip {each}" for each in _skipped(state) if each not in ours]
    if told is not None and told.kind is AnswerKind.CULPRIT:
        lines += [f"git bisect good {told.parent}", f"git bisect bad {told.commits[0]}"]
    return "\n".join(lines) + "\n"


def _skipped(state: BisectionState) -> list[str]:
    plain = (each.kernel for each in state.skipped if each.kernel.is_plain)
    return list(dict.fromkeys(kernel.commit for kernel in plain))
