"""Pieces of GitLab's and GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from fsjoule.report.table import Table

# A branch called @all would tell everybody; KERNEL@RUN tells nobody.
_MENTION: Final = re.compile(r"(?<!\w)@(?=[\w-])")


def folded(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Lines that a click on the title unfolds."""
    yield ""
    yield f"<details><summary>{title}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"


def table_lines(table: Table) -> Iterator[str]:
    if table.title:
        yield plain(table.title)
        yield ""
    yield "|" + "|".join(f" {column.name} " for column in table.columns) + "|"
    yield "|" + "|".join("---:" if column.is_figure else "---" for column in table.columns) + "|"
    for row in table.rows:
        yield "|" + "|".join(f" {plain(cell.joined)} " for cell in row) + "|"


def named_list(lines: Sequence[tuple[str, str]]) -> list[str]:
    return [f"- {plain(name)}: {plain(text)}" for name, text in lines]


def plain(text: str) -> str:
    """Text with markup escaped: branches and mount options contain underscores, bars and stars."""
    for sign in "\\`*_[]|~":
        text = text.replace(sign, "\\" + sign)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
    return _MENTION.sub("&#64;", text)
