"""A gate's answer in words."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

from fsjoule.model.labels import counted
from fsjoule.report.words import named
from fsjoule.statistics.outcome import Outcome
from fsjoule.store.finding import news
from fsjoule.store.gate import Gated, GateVerdict

_OUTPUTS: Final = ("--results", "--markdown", "--html")


def headline(gated: Gated) -> str:
    """`regressed: ext4 write-16k 1.1 % more CPU time; new against old (simulated), 2 pairs of boots`."""
    sides = f"{gated.candidate.name} against {gated.baseline.name}"
    simulated = " (simulated)" if gated.simulated else ""
    figures = counted(len(gated.findings), "figure")
    match gated.verdict:
        case GateVerdict.NO_BASELINE | GateVerdict.IDENTICAL:
            return f"{gated.verdict}: {sides}: {gated.ended}"
        case GateVerdict.REGRESSED:
            told = named([one for one in gated.findings if one.regressed])
        case GateVerdict.PASSED:
            better = [one for one in gated.findings if one.outcome is Outcome.IMPROVED]
            told = figures + (f", {named(better)}" if better else "")
        case GateVerdict.UNDECIDED:
            told = f"{sum(one.undecided for one in gated.findings)} of {figures}"
            far = [one for one in gated.findings if one.far]
            told += f", far beyond the board's own spread: {named(far)}" if far else ""
    told = "; ".join((told, *news(gated.kernel_warnings)))
    return f"{gated.verdict}: {told}; {sides}{simulated}, {counted(gated.pairs, 'pair')} of boots, {gated.ended}"


def facts(gated: Gated) -> list[tuple[str, str]]:
    told = [("baseline", gated.baseline.title), ("candidate", gated.candidate.title)]
    if gated.folder is not None:
        told.append(("run", gated.folder))
    return told


def stalls(gated: Gated) -> list[tuple[str, str]]:
    """Stalled boots per side, which the test ignored but a reader should not."""
    return [
        (one.name, f"baseline {one.basis.stalls_baseline}, candidate {one.basis.stalls_candidate}")
        for one in gated.findings
        if one.basis.stalls_baseline or one.basis.stalls_candidate
    ]


def unusable(gated: Gated) -> list[tuple[str, str]]:
    return [(one.name, ", ".join(one.basis.unusable)) for one in gated.findings if one.basis.unusable]


def unused(gated: Gated) -> list[tuple[str, list[tuple[str, str]]]]:
    """Figures that the test did not count, by title: names with their reasons."""
    sections = {
        "Stalled boots, which the test ignores": stalls(gated),
        "Figures that could not be used": unusable(gated),
    }
    return [(title, lines) for title, lines in sections.items() if lines]


def rules(gated: Gated) -> str:
    """How to read the answer: order, evidence, error rates."""
    policy = gated.policy
    return (
        "order: the loss in units of what matters; the interval of the change holds with 95 %, whenever "
        "the gate ends. evidence: how far it is to the nearer decision. Without any loss the gate "
        f"says regressed with {100 * policy.alpha:g} % at most; a loss of what matters or more passes a figure with "
        f"{100 * policy.beta:g} % at most (docs/gate.md)"
    )


def command(gated: Gated) -> str:
    """The command that repeats the gate, quoted for a shell."""
    return shlex.join(gated.command)


def command_in(gated: Gated, checkout: Path) -> str:
    """The same for somebody else's checkout: without output files, and with paths relative to `checkout`."""
    words: list[str] = []
    for word in gated.command:
        if words and words[-1] in _OUTPUTS:
            words.pop()
        elif not word.startswith(tuple(f"{option}=" for option in _OUTPUTS)):
            words.append(relative(word, checkout))
    return shlex.join(words)


def relative(word: str, checkout: Path) -> str:
    """A path in `checkout`, alone or as in KERNEL@PATH, relative to it; any other word as it is."""
    inside = re.sub(rf"(^|[@=]){re.escape(str(checkout))}/", r"\1", word)
    return "." if inside == str(checkout) else inside
