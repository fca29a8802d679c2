"""A comparison as Markdown, for a merge request: what changed first, all the rest folded."""

from __future__ import annotations

from collections.abc import Iterator

from fsjoule.report.comparison import words
from fsjoule.report.comparison.model import Compared
from fsjoule.report.comparison.table import comparison_table
from fsjoule.report.tables import Table


def to_markdown(compared: Compared, *, only_changes: bool = False) -> str:
    """GitLab's and GitHub's Markdown, ending in a newline."""
    return "\n".join(_lines(compared, only_changes=only_changes)) + "\n"


def _lines(compared: Compared, *, only_changes: bool) -> Iterator[str]:
    yield f"**{_plain(words.headline(compared))}**"
    yield ""
    for name, text in words.side_facts(compared):
        yield f"- {name}: {_plain(text)}"
    for note in compared.notes:
        yield f"- {_plain(note)}"
    changes = comparison_table(compared, only_changes=True)
    if changes.rows:
        yield ""
        yield from _table(changes)
    if not only_changes:
        yield from _folded(f"All {len(compared.judged)} verdicts", list(_table(comparison_table(compared))))
    needs = [f"- {_plain(need)}: {_plain(', '.join(names))}" for need, names in words.needs(compared)]
    for title, lines in (
        ("To decide the rest", [] if only_changes else needs),
        ("Not compared", _list(words.only_here(compared))),
        ("Figures that could not be used", _list(words.left_out(compared))),
        ("Invalid measurements, not used", _list(words.invalid(compared))),
        ("Damaged, left out", _list(list(compared.damaged.items()))),
    ):
        if lines:
            yield from _folded(title, lines)
    yield ""
    yield f"<sub>{_plain(words.rules(compared.criteria))}</sub>"


def _folded(title: str, lines: list[str]) -> Iterator[str]:
    yield ""
    yield f"<details><summary>{title}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"


def _table(table: Table) -> Iterator[str]:
    yield "|" + "|".join(f" {column.name} " for column in table.columns) + "|"
    yield "|" + "|".join("---:" if column.is_figure else "---" for column in table.columns) + "|"
    for row in table.rows:
        yield "|" + "|".join(f" {_plain(cell.joined)} " for cell in row) + "|"


def _list(lines: list[tuple[str, str]]) -> list[str]:
    return [f"- {_plain(name)}: {_plain(text)}" for name, text in lines]


def _plain(text: str) -> str:
    """Text that is no markup: names of branches and mount options hold underscores, bars and stars."""
    for sign in "\\`*_[]|~":
        text = text.replace(sign, "\\" + sign)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
