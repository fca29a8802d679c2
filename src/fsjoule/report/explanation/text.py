"""An explanation as tables, in the terminal (the answer first), as a JSON document, and as folded stacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console, ConsoleRenderable
from rich.text import Text

from fsjoule.report.explanation import words
from fsjoule.report.explanation.words import headline, module_text
from fsjoule.report.table import Cell, Column, Table, Tone
from fsjoule.report.terminal import footnote, named_lines, room_of, table_lines
from fsjoule.verdicts.explanation.changes import Explanation, FunctionChange, TimeChange

_SHOWN: Final = 10


def print_explanation(
    console: Console, explanation: Explanation, *, everything: bool = False, wide: bool = False
) -> None:
    """Print what changed, and which functions, modules and parts of the kernel it was."""
    for renderable in _renderables(explanation, room_of(console, wide=wide), everything=everything):
        console.print(renderable, crop=False)


def _renderables(explanation: Explanation, room: int | None, *, everything: bool) -> Iterator[ConsoleRenderable]:
    yield Text(words.headline(explanation), style="bold")
    yield Text(words.because(explanation))
    count = None if everything else _SHOWN
    functions, modules, subsystems = explanation.functions, explanation.modules, explanation.subsystems
    shown = f"{len(functions[:count])} of {len(functions)} functions, by difference"
    yield from table_lines(function_table(shown, explanation, functions[:count]), room)
    remarks = [(each.name, remark) for each in functions[:count] if (remark := words.remark(each, explanation))]
    if remarks:
        yield named_lines("Names", remarks)
    yield from table_lines(_group_table("Modules", "module", explanation, modules[:count]), room)
    yield from table_lines(_group_table("Parts of the kernel", "from", explanation, subsystems[:count]), room)
    yield footnote(words.method(explanation))
    yield Text("")
    for name, text in words.facts(explanation):
        yield Text(f"{name:<10}{text}")


def function_table(title: str, explanation: Explanation, functions: Sequence[FunctionChange]) -> Table:
    """One row a function."""
    return Table(
        title,
        explanation.simulated,
        (
            Column("function", is_figure=False, head=True),
            Column("module", is_figure=False),
            *_figures(explanation),
            Column("from", is_figure=False, optional=True),
        ),
        tuple(
            (
                Cell(each.name),
                Cell(words.module_text(each.module)),
                *_cells(each, explanation),
                Cell(each.subsystem),
            )
            for each in functions
        ),
    )


def _group_table(title: str, name: str, explanation: Explanation, groups: Sequence[TimeChange]) -> Table:
    """One row a module, or a part of the kernel."""
    return Table(
        title,
        explanation.simulated,
        (Column(name, is_figure=False, head=True), *_figures(explanation)),
        tuple((Cell(words.module_text(each.name)), *_cells(each, explanation)) for each in groups),
    )


def _figures(explanation: Explanation) -> tuple[Column, ...]:
    unit = f"ns/{explanation.unit}"
    return (
        Column(explanation.baseline.kernel, unit),
        Column(explanation.candidate.kernel, unit),
        Column("difference", unit),
        *((Column("±", unit),) if explanation.period_ns else ()),
        Column("of the change", ""),
    )


def _cells(change: TimeChange, explanation: Explanation) -> tuple[Cell, ...]:
    tone = Tone.BAD if change.difference_ns > 0 else Tone.GOOD if change.difference_ns < 0 else Tone.PLAIN
    if abs(change.difference_ns) < words.CERTAIN * change.error_ns:
        tone = Tone.PLAIN
    return (
        Cell(words.ns_text(change.baseline_ns)),
        Cell(words.ns_text(change.candidate_ns)),
        Cell(words.signed_ns(change.difference_ns), tone=tone),
        *((Cell(words.ns_text(words.CERTAIN * change.error_ns)),) if explanation.period_ns else ()),
        Cell(words.share_of_change(change.difference_ns, explanation.change_ns)),
    )


EXPLAIN_SCHEMA: Final = "fsjoule.explain/1"


def to_document(explanations: Sequence[Explanation], folder: Path) -> dict[str, object]:
    """All that was found. Shares are fractions; what is not known is null."""
    return {
        "schema": EXPLAIN_SCHEMA,
        "run": str(folder),
        "explanations": [explained(each) for each in explanations],
    }


def explained(explanation: Explanation) -> dict[str, object]:
    """One of them, as a part of a document."""
    return {
        "headline": headline(explanation),
        "series": explanation.series,
        "unit": explanation.unit,
        "simulated": explanation.simulated,
        "sampling_period_ns": explanation.period_ns or None,
        "baseline": asdict(explanation.baseline),
        "candidate": asdict(explanation.candidate),
        "change_ns": explanation.change_ns,
        "explained_by_ten": explanation.explained(),
        "functions": [_change(each) for each in explanation.functions],
        "modules": [_change(each) for each in explanation.modules],
        "subsystems": [_change(each) for each in explanation.subsystems],
    }


def _change(change: TimeChange) -> dict[str, object]:
    return {**asdict(change), "difference_ns": change.difference_ns}


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
