"""A comparison as Markdown, for a merge request: important figures first, the rest folded."""

from __future__ import annotations

from collections.abc import Iterator

from fsjoule.report.comparison import words
from fsjoule.report.findings import comparison_table, notable, rest_text
from fsjoule.report.markdown import folded, named_list, plain, table_lines
from fsjoule.verdicts.comparison import Compared


def to_markdown(compared: Compared, *, only_changes: bool = False) -> str:
    """GitLab's and GitHub's Markdown, ending in a newline."""
    return "\n".join(_lines(compared, only_changes=only_changes)) + "\n"


def _lines(compared: Compared, *, only_changes: bool) -> Iterator[str]:
    yield f"**{plain(words.headline(compared))}**"
    shown, rest = notable([one for one in compared.findings if one.changed or not only_changes])
    if shown:
        yield ""
        yield from table_lines(comparison_table("", shown, simulated=compared.simulated))
    if rest:
        yield from folded(rest_text(rest), list(table_lines(comparison_table("", rest, simulated=compared.simulated))))
    yield ""
    for name, text in words.side_facts(compared):
        yield f"- {name}: {plain(text)}"
    for note in (*map(str, compared.kernel_warnings), *compared.notes):
        yield f"- {plain(note)}"
    needs = [] if only_changes else words.needs(compared)
    for title, lines in (*([("To decide the rest", needs)] if needs else []), *words.unused(compared)):
        yield from folded(title, named_list(lines))
    yield ""
    yield f"<sub>{plain(words.rules(compared))}</sub>"
