"""A gate as Markdown, for a note on a merge request: the answer, then the important figures, the rest folded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fsjoule.report.findings import notable, note_table, rest_text
from fsjoule.report.gating import words
from fsjoule.report.markdown import folded, named_list, plain, table_lines
from fsjoule.store.gate import Gated


def to_markdown(gated: Gated, *, checkout: Path) -> str:
    """GitLab's and GitHub's Markdown, ending in a newline. Paths in `checkout` are told relative to it."""
    return "\n".join(_lines(gated, checkout)) + "\n"


def _lines(gated: Gated, checkout: Path) -> Iterator[str]:
    verdict, _, answer = words.headline(gated).partition(":")
    boards = sorted({one.subject.series.board for one in gated.findings})
    where = f" on {plain(', '.join(boards))}" if boards else ""
    yield f"**fsjoule gate: {plain(verdict)}**{where}:{plain(answer)}"
    shown, rest = notable(gated.findings)
    if shown:
        yield ""
        yield from table_lines(note_table(shown, simulated=gated.simulated))
    if rest:
        yield from folded(rest_text(rest), list(table_lines(note_table(rest, simulated=gated.simulated))))
    yield ""
    yield from (f"- {name}: {plain(words.relative(text, checkout))}" for name, text in words.facts(gated))
    yield from (f"- {plain(note)}" for note in (*map(str, gated.kernel_warnings), *gated.notes))
    for title, lines in words.unused(gated):
        yield from folded(title, named_list(lines))
    if gated.faults:
        yield from folded("Faults of the lab", [f"- {plain(fault)}" for fault in gated.faults])
    if gated.command:
        yield from folded("To repeat it", ["```sh", words.command_in(gated, checkout).replace("```", ""), "```"])
    if gated.findings:
        yield ""
        yield f"<sub>{plain(words.rules(gated))}</sub>"
