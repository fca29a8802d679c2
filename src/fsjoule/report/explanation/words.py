"""Sentences about what changed between two profiles."""

from __future__ import annotations

import math
from typing import Final

from fsjoule.model.labels import counted
from fsjoule.report.numbers import percent
from fsjoule.verdicts.explanation.changes import ExplainedSide, Explanation, FunctionChange, Presence

_FOLDERS: Final = 3
# The share of a change from which on a few functions explain it.
_MOST: Final = 0.5
_COUNTED: Final = (
    "every instruction between the marks is counted, so nothing is sampled; figures are the same without a profile. "
    "Functions are told flat, without their callers"
)
# Standard errors that hold 95 % of what sampling adds.
CERTAIN: Final = 1.96
_PRESENCE: Final = {
    Presence.BOTH: "",
    Presence.NEW: "new in {candidate}, or called otherwise in {baseline}",
    Presence.GONE: "not in {candidate}: removed, renamed, or inlined into its callers",
    Presence.CALLED_NOW: "not called in {baseline}",
    Presence.NOT_CALLED: "not called in {candidate}",
    Presence.INLINED: "inlined into its callers in {candidate}, but for {parts}",
    Presence.NOT_INLINED: "inlined into its callers in {baseline}, but for {parts}",
}


def headline(explanation: Explanation) -> str:
    """`btrfs read-16k: sid is busy for 33,900,000 ns per MiB instead of 24,500,000 in 6.12, 38.5 % more`."""
    baseline, candidate = explanation.baseline, explanation.candidate
    change = candidate.busy_ns / baseline.busy_ns - 1 if baseline.busy_ns else 0.0
    how = "the same" if not change else f"{percent(abs(change))} {'more' if change > 0 else 'less'}"
    error_ns = CERTAIN * math.hypot(baseline.error_ns, candidate.error_ns)
    if error_ns and baseline.busy_ns:
        how += f" (± {percent(error_ns / baseline.busy_ns)} by sampling)"
    return (
        f"{explanation.series}: {candidate.kernel} is busy for {ns_text(candidate.busy_ns)} ns per {explanation.unit} "
        f"instead of {ns_text(baseline.busy_ns)} in {baseline.kernel}, {how}"
    )


def because(explanation: Explanation) -> str:
    """The functions and folders that make the difference."""
    share = explanation.explained()
    if share is None or not explanation.functions:
        return "every function takes the time that it took"
    folders = (
        f"{each.name} {share_of_change(each.difference_ns, explanation.change_ns)}"
        for each in explanation.subsystems[:_FOLDERS]
    )
    top = f"the ten functions with the largest differences make {100 * share:.0f} % of it"
    spread = top if share >= _MOST else f"it is spread over many functions: {top}"
    return f"{spread}; by folder of the source: {', '.join(folders)}"


def method(explanation: Explanation) -> str:
    """How the times were found, and how exact they are."""
    if not explanation.period_ns:
        return _COUNTED
    return (
        f"perf sampled each processor every {explanation.period_ns / 1e6:.1f} ms, in boots whose figures do not count; "
        "± is what chance makes of so many samples (95 %). Work with interrupts off is told where they are on again. "
        "Functions are told flat, without their callers"
    )


def facts(explanation: Explanation) -> list[tuple[str, str]]:
    """Each side: its kernel, its boots, its window."""
    sides = (("baseline", explanation.baseline), ("candidate", explanation.candidate))
    return [(name, _side(side, explanation.unit)) for name, side in sides]


def remark(change: FunctionChange, explanation: Explanation) -> str:
    """The remark on a function beside its times; may be empty."""
    baseline, candidate = explanation.baseline.kernel, explanation.candidate.kernel
    parts = change.candidate_names if change.presence is Presence.INLINED else change.baseline_names
    said = [_PRESENCE[change.presence].format(baseline=baseline, candidate=candidate, parts=", ".join(parts))]
    if change.moved_from is not None:
        said.append(f"in {module_text(change.moved_from)} in {baseline}")
    if change.perhaps is not None:
        said.append(f"perhaps {change.perhaps} there, by its name")
    both = change.presence in (Presence.BOTH, Presence.CALLED_NOW, Presence.NOT_CALLED)
    if both and change.baseline_names != change.candidate_names:
        said.append(f"{', '.join(change.baseline_names)} is {', '.join(change.candidate_names)} in {candidate}")
    return "; ".join(filter(None, said))


def module_text(module: str) -> str:
    return module or "kernel"


def ns_text(time_ns: float) -> str:
    return f"{time_ns:,.0f}"


def signed_ns(time_ns: float) -> str:
    return f"{time_ns:+,.0f}"


def share_of_change(difference_ns: float, change_ns: float) -> str:
    return f"{100 * difference_ns / change_ns:+.1f} %" if change_ns else ""


def _side(side: ExplainedSide, unit: str) -> str:
    idle = 0.0 if side.error_ns else side.window_ns - side.busy_ns  # samples are of all processors
    spread = "" if side.spread is None else f", busy time within {percent(side.spread)}"
    waits = f", for {ns_text(idle)} ns of which nothing ran" if idle >= 1 else ""
    return (
        f"kernel {side.kernel}, {counted(side.boots, 'boot')}{spread}: from mark to mark "
        f"{ns_text(side.window_ns)} ns per {unit}{waits}"
    )
