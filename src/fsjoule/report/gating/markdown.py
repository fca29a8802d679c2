"""A gate as Markdown, for a note on a merge request: the answer first, then what changed, the rest folded."""

from __future__ import annotations

from collections.abc import Iterator

from fsjoule.report.gating import words
from fsjoule.report.gating.table import changes, gate_table, the_rest
from fsjoule.report.markdown import folded, named_list, plain, table_lines
from fsjoule.verdicts.gated import Gated


def to_markdown(gated: Gated) -> str:
    """GitLab's and GitHub's Markdown, ending in a newline."""
    return "\n".join(_lines(gated)) + "\n"


def _lines(gated: Gated) -> Iterator[str]:
    verdict, colon, rest = words.headline(gated).partition(":")
    yield f"**fsjoule gate: {plain(verdict)}**{colon}{plain(rest)}"
    changed, rest_of = changes(gated), the_rest(gated)
    if changed:
        yield ""
        yield from table_lines(gate_table("", changed, simulated=gated.simulated))
    yield ""
    yield from (f"- {name}: {plain(text)}" for name, text in words.facts(gated))
    yield from (f"- {plain(note)}" for note in gated.notes)
    if rest_of:
        table = gate_table("", rest_of, simulated=gated.simulated)
        yield from folded(f"{len(rest_of)} other figures", list(table_lines(table)))
    for title, lines in (
        ("Stalled boots, which the test looks past", named_list(words.stalls(gated))),
        ("Figures that could not be used", named_list(words.unusable(gated))),
        ("Faults of the lab", [f"- {plain(fault)}" for fault in gated.faults]),
        ("To repeat it", ["```sh", words.command(gated).replace("```", ""), "```"] if gated.command else []),
    ):
        if lines:
            yield from folded(title, lines)
    if gated.tested:
        yield ""
        yield f"<sub>{plain(words.rules(gated))}</sub>"
