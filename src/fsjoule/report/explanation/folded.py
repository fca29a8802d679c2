"""Both profiles as folded stacks, as flamegraph.pl takes them for a differential picture: `stack before after`."""

from __future__ import annotations

import re
from typing import Final

from fsjoule.report.explanation.words import module_text
from fsjoule.verdicts.explanation.changes import Explanation

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
