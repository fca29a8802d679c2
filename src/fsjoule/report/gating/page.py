"""The self-contained page of a gate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fsjoule.report.findings import gate_table, notable, rest_text
from fsjoule.report.gating import words
from fsjoule.report.table import Tone
from fsjoule.report.verdict_page import VerdictPage
from fsjoule.store.gate import Gated, GateVerdict
from fsjoule.verdicts.explanation.changes import Explanation

TONES: Final = {
    GateVerdict.REGRESSED: Tone.BAD,
    GateVerdict.PASSED: Tone.GOOD,
    GateVerdict.IDENTICAL: Tone.GOOD,
    GateVerdict.UNDECIDED: Tone.DOUBT,
    GateVerdict.NO_BASELINE: Tone.DOUBT,
}


def render_page(gated: Gated, file: Path, explanations: Sequence[Explanation] = ()) -> str:
    """The page as HTML; `file` is its place, from which it links to its runs."""
    shown, rest = notable(gated.findings)
    return VerdictPage(
        heading=f"Gate: {gated.candidate.name} against {gated.baseline.name}",
        headline=words.headline(gated),
        tone=TONES[gated.verdict],
        simulated=gated.simulated,
        findings=gated.findings,
        shown=gate_table("What matters", shown, simulated=gated.simulated),
        rest=gate_table(rest_text(rest), rest, simulated=gated.simulated),
        rules=words.rules(gated),
        notes=[*map(str, gated.kernel_warnings), *gated.notes],
        lists=[
            *words.unused(gated),
            ("Faults of the lab", [(str(i), fault) for i, fault in enumerate(gated.faults, start=1)]),
            ("What was gated", words.facts(gated)),
        ],
        folders=gated.folders,
        command=words.command(gated),
        explanations=explanations,
    ).render(file)
