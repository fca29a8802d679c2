"""A gate's answer in words."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from fsjoule.report.comparison.words import direction
from fsjoule.verdicts.gated import Gated, GateVerdict, Tested

_NAMED: Final = 3


def headline(gated: Gated) -> str:
    """`regressed: ext4 write-16k 1.1 % more CPU time; new against old (simulated), 2 pairs of boots`."""
    sides = f"{gated.candidate.name} against {gated.baseline.name}"
    simulated = " (simulated)" if gated.simulated else ""
    match gated.verdict:
        case GateVerdict.NO_BASELINE | GateVerdict.IDENTICAL:
            return f"{gated.verdict}: {sides}: {gated.ended}"
        case GateVerdict.REGRESSED:
            told = _named([one for one in gated.tested if one.regressed])
        case GateVerdict.PASSED:
            better = [one for one in gated.tested if one.better]
            told = f"{len(gated.tested)} figures" + (f", {_named(better)}" if better else "")
        case GateVerdict.UNDECIDED:
            count = sum(one.undecided for one in gated.tested)
            told = f"{count} of {len(gated.tested)} figures"
    return f"{gated.verdict}: {told}; {sides}{simulated}, {_pairs(gated.pairs)} of boots, {gated.ended}"


def name(one: Tested) -> str:
    return f"{one.subject.label} {one.metric}"


def outcome(one: Tested) -> str:
    """What is said of one test."""
    if one.regressed:
        return f"regressed: {change(one)}"
    if one.undecided:
        return "not decided" if one.state.pairs else "no figures"
    return f"better: {change(one)}" if one.better else "not regressed"


def change(one: Tested) -> str:
    """`1.1 % more CPU time`. Empty without a ratio."""
    ratio = one.state.ratio
    if ratio is None:
        return ""
    return f"{percent(abs(ratio - 1))} {direction(one.metric, ratio)}"


def percent(share: float) -> str:
    """A fraction in percent: a tenth of it is enough, unless there is less."""
    value = 100 * share
    return f"{value:.1f} %" if value >= 1 else f"{value:.2f} %"


def evidence(one: Tested) -> str:
    """How far the evidence has come towards either decision, of what that takes."""
    return f"{100 * one.state.towards_regressed:.0f} / {100 * one.state.towards_not_regressed:.0f} %"


def facts(gated: Gated) -> list[tuple[str, str]]:
    """What each side was, and where the figures are."""
    told = [("baseline", gated.baseline.title), ("candidate", gated.candidate.title)]
    if gated.folder is not None:
        told.append(("run", gated.folder))
    return told


def stalls(gated: Gated) -> list[tuple[str, str]]:
    """Boots that the test looked past, and the reader should not."""
    return [
        (name(one), f"baseline {one.state.stalls_baseline}, candidate {one.state.stalls_candidate}")
        for one in gated.tested
        if one.state.stalls_baseline or one.state.stalls_candidate
    ]


def unusable(gated: Gated) -> list[tuple[str, str]]:
    """Figures that could not be used."""
    return [(name(one), ", ".join(one.state.unusable)) for one in gated.tested if one.state.unusable]


def rules(gated: Gated) -> str:
    """What the answer is worth."""
    policy = gated.policy
    return (
        "evidence: towards regressed / not regressed, of what either takes; the interval holds with 95 %, whenever the "
        f"gate ends. Without any loss the gate says regressed with {100 * policy.alpha:g} % at most; a loss of what "
        f"matters or more passes a figure with {100 * policy.beta:g} % at most (docs/gate.md)"
    )


def command(gated: Gated) -> str:
    """The command that does it again, as a shell takes it."""
    return shlex.join(gated.command)


def _pairs(count: int) -> str:
    return "1 pair" if count == 1 else f"{count} pairs"


def _named(tested: Sequence[Tested]) -> str:
    """`ext4 write-16k 1.1 % slower, 0.9 % hungrier; ext4 read-16k 1.0 % slower and 2 more series`."""
    groups: dict[str, list[Tested]] = {}
    for one in sorted(tested, key=lambda one: abs((one.state.ratio or 1) - 1), reverse=True):
        groups.setdefault(one.subject.label, []).append(one)
    parts = [f"{label} {', '.join(map(change, group))}" for label, group in list(groups.items())[:_NAMED]]
    rest = len(groups) - _NAMED
    return "; ".join(parts) + (f" and {rest} more series" if rest > 0 else "")
