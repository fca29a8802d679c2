"""An explanation as a section of another page: its sentences, its largest functions, its picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

from markupsafe import Markup

from fsjoule.host.plaintext import plain_line
from fsjoule.report.explanation import words
from fsjoule.report.explanation.text import function_table
from fsjoule.report.explanation.words import headline, module_text, ns_text, signed_ns
from fsjoule.report.table import Table
from fsjoule.report.template import marked_up
from fsjoule.verdicts.explanation.changes import Explanation

_FUNCTIONS: Final = 10


@dataclass(frozen=True, slots=True)
class ExplanationSection:
    headline: str
    because: str
    functions: Table
    picture: Markup


def section(explanation: Explanation) -> ExplanationSection:
    functions = explanation.functions
    title = f"{min(_FUNCTIONS, len(functions))} of {len(functions)} functions, by difference"
    return ExplanationSection(
        headline=words.headline(explanation),
        because=words.because(explanation),
        functions=function_table(title, explanation, functions[:_FUNCTIONS]),
        picture=marked_up([draw(explanation)])[0],
    )


_WIDTH: Final = 1200
_ROW: Final = 22
_TOP: Final = 44
_MARGIN: Final = 8
# Narrower boxes are not drawn, and text is not drawn in boxes that hold less than this many letters.
_LEAST: Final = 0.4
_LETTER: Final = 6.7
_LETTERS: Final = 3
# Also in the pages' own style sheet, because a service's pages may have no other.
_STYLE: Final = (
    ".icicle text{font:12px ui-monospace,monospace;fill:#111}.icicle .t{font:bold 14px sans-serif}"
    ".icicle .n{font:12px sans-serif}"
    "@media (prefers-color-scheme:dark){.icicle text{fill:#e6eaf0}.icicle .b{fill:#181f27}"
    ".icicle .more{fill:#a3302a}.icicle .less{fill:#2f52b5}}"
)


@dataclass(slots=True)
class _Box:
    name: str
    baseline_ns: float = 0.0
    candidate_ns: float = 0.0
    width_ns: float = 0.0
    inside: dict[str, _Box] = field(default_factory=dict[str, "_Box"])

    @property
    def difference_ns(self) -> float:
        return self.candidate_ns - self.baseline_ns

    def add(self, path: Sequence[str], baseline_ns: float, candidate_ns: float) -> None:
        self.baseline_ns += baseline_ns
        self.candidate_ns += candidate_ns
        self.width_ns += max(baseline_ns, candidate_ns)
        if path:
            self.inside.setdefault(path[0], _Box(path[0])).add(path[1:], baseline_ns, candidate_ns)


def draw(explanation: Explanation) -> str:
    """The picture as SVG."""
    root = _Box("all")
    for each in explanation.functions:
        module = [] if each.subsystem == each.module else [module_text(each.module)]
        root.add([each.subsystem, *module, each.name], each.baseline_ns, each.candidate_ns)
    strongest = max((abs(each.difference_ns) for each in explanation.functions), default=0.0)
    scale = (_WIDTH - 2 * _MARGIN) / root.width_ns if root.width_ns else 0.0
    drawn = "".join(_boxes(root, _MARGIN, 0, scale, _Ink(explanation, strongest)))
    title = headline(explanation) + (" (simulated)" if explanation.simulated else "")
    note = "as wide as the larger of both times; red: more in the candidate, blue: less; flat, without callers"
    height = _TOP + 4 * _ROW + _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="icicle" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}">'
        f'<style>{_STYLE}</style><rect class="b" width="100%" height="100%" fill="#fff"/>'
        f'<text class="t" x="{_MARGIN}" y="18">{_shown(title)}</text>'
        f'<text class="n" x="{_MARGIN}" y="36">{_shown(note)}</text>{drawn}</svg>\n'
    )


@dataclass(frozen=True, slots=True)
class _Ink:
    explanation: Explanation
    strongest_ns: float

    def fill(self, difference_ns: float) -> str:
        """The more opaque the more has changed, by the root, so that smaller differences are seen, too."""
        part = math.sqrt(min(1.0, abs(difference_ns) / self.strongest_ns)) if self.strongest_ns else 0.0
        name, colour = ("more", "#ff5050") if difference_ns > 0 else ("less", "#5050ff")
        return f'class="{name}" fill="{colour}" fill-opacity="{part:.3g}"'


def _boxes(box: _Box, x: float, depth: int, scale: float, ink: _Ink) -> Iterable[str]:
    width = box.width_ns * scale
    if width < _LEAST:
        return
    y = _TOP + depth * _ROW
    letters = int((width - 4) / _LETTER)
    text = box.name if len(box.name) <= letters else f"{box.name[: letters - 1]}…"
    told = (
        f"{box.name}: {ns_text(box.baseline_ns)} → {ns_text(box.candidate_ns)} ns per {ink.explanation.unit}, "
        f"{signed_ns(box.difference_ns)}"
    )
    yield (
        f'<g><title>{_shown(told)}</title><rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW - 1}" '
        f'{ink.fill(box.difference_ns)} stroke="#999" stroke-width="0.4"/>'
    )
    if letters >= _LETTERS:
        yield f'<text x="{x + 3:.2f}" y="{y + 15}">{_shown(text)}</text>'
    yield "</g>"
    for inner in sorted(box.inside.values(), key=lambda each: (-each.width_ns, each.name)):
        yield from _boxes(inner, x, depth + 1, scale, ink)
        x += inner.width_ns * scale


def _shown(text: str) -> str:
    return escape(plain_line(text))
